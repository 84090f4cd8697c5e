"""A schema registry in this process, for tests without Go.

It keeps schemas, answers as franz-go's srfake does (a test compares them), and records requests.
`trouble` sees each request first and may answer it.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit
from uuid import NAMESPACE_URL, uuid5

Json = dict[str, object]


class Call(NamedTuple):
    """One request: query parameters in lower case and sorted, the body as JSON."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...]
    body: str

    @classmethod
    def read(cls, method: str, uri: str, body: str) -> Call:
        """Parse a request; the spacing of its JSON makes no difference."""
        parts = urlsplit(uri)
        words = sorted((name, word.lower()) for name, word in parse_qsl(parts.query))
        shown = json.dumps(json.loads(body), sort_keys=True) if body else ""
        return cls(method, parts.path, tuple(words), shown)


class Reply(NamedTuple):
    """A response before it is sent."""

    status: int
    body: bytes
    content_type: str = "application/vnd.schemaregistry.v1+json"

    @classmethod
    def of(cls, answer: object, status: int = 200) -> Reply:
        """Return a JSON response."""
        return cls(status, json.dumps(answer).encode())

    @classmethod
    def error(cls, status: int, code: int, message: str) -> Reply:
        """Return an error response."""
        return cls.of({"error_code": code, "message": message}, status)


Trouble = Callable[[Call], Reply | None]


@dataclass(slots=True)
class FakeRegistry:
    """Subjects, their versions, and the requests received."""

    url: str = ""
    calls: list[Call] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    trouble: Trouble | None = None
    authorization: str | None = None
    _subjects: dict[str, dict[int, Json]] = field(default_factory=dict)
    _ids: dict[str, int] = field(default_factory=dict)
    _schemas_by_id: dict[int, Json] = field(default_factory=dict)
    """The first form of each schema."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, call: Call, authorization: str | None) -> Reply:
        """Return the response to one request."""
        with self._lock:
            self.calls.append(call)
            trouble = self.trouble
        if trouble is not None and (reply := trouble(call)) is not None:
            return reply
        if self.authorization is not None and authorization != self.authorization:
            status = 403 if authorization else 401
            return Reply.error(status, 50002, "User not authorized")
        parts = [unquote(part) for part in call.path.strip("/").split("/")]
        with self._lock:
            reply = self._schemas(call, parts) if parts[0] == "schemas" else self._of(call, parts)
        return reply or Reply(404, b"404 page not found\n", "text/plain; charset=utf-8")

    def _schemas(self, call: Call, parts: list[str]) -> Reply | None:
        match call.method, parts:
            case "GET", ["schemas", "ids", number]:
                return self._by_id(int(number), dict(call.query).get("subject"))
            case "GET", ["schemas", "guids", guid]:
                return self._by_guid(guid)
        return None

    def _of(self, call: Call, parts: list[str]) -> Reply | None:
        match call.method, parts:
            case "GET", ["subjects"]:
                return Reply.of(sorted(self._subjects))
            case "GET", ["subjects", subject, "versions", version]:
                return self._version(subject, version)
            case "POST", ["subjects", subject, "versions"]:
                return self._register(subject, json.loads(call.body))
            case "POST", ["subjects", subject]:
                return self._lookup(subject, json.loads(call.body))
            case "GET" | "DELETE", ["subjects", subject, *_] if subject not in self._subjects:
                return _no_subject(subject)
            case "GET", ["subjects", subject, "versions"]:
                return Reply.of(sorted(self._subjects[subject]))
            case "DELETE", ["subjects", subject]:
                return Reply.of(sorted(self._subjects.pop(subject)))
        return None

    def _by_id(self, number: int, subject: str | None) -> Reply:
        if subject is not None and number not in [
            one["id"] for one in self._subjects.get(subject, {}).values()
        ]:
            return _no_schema()
        return (
            Reply.of(self._schemas_by_id[number]) if number in self._schemas_by_id else _no_schema()
        )

    def _by_guid(self, guid: str) -> Reply:
        for versions in self._subjects.values():
            for one in versions.values():
                if one["guid"] == guid:
                    return Reply.of(one)
        return _no_schema()

    def _version(self, subject: str, version: str) -> Reply:
        versions = self._subjects.get(subject)
        if versions is None:
            return _no_subject(subject)
        number = max(versions) if version == "latest" else int(version)
        if number not in versions:
            return Reply.error(404, 40402, f'version {number} not found for "{subject}"')
        return Reply.of(versions[number])

    def _register(self, subject: str, body: Json) -> Reply:
        wrong = _wrong(body)
        if wrong is not None:
            return Reply.error(422, 42201, wrong)
        for reference in _references(body):
            if reference["version"] not in self._subjects.get(str(reference["subject"]), {}):
                named = f'reference "{reference["name"]}" subject "{reference["subject"]}"'
                return Reply.error(422, 42201, f"{named} version {reference['version']} not found")
        versions = self._subjects.setdefault(subject, {})
        key = _key(body)
        for one in versions.values():
            if _key(one) == key:
                return Reply.of({"id": one["id"]})
        number = self._ids.setdefault(key, len(self._ids) + 1)
        self._schemas_by_id.setdefault(number, _schema(body))
        version = max(versions, default=0) + 1
        versions[version] = {
            "subject": subject,
            "version": version,
            "id": number,
            "guid": str(uuid5(NAMESPACE_URL, key)),
            **_schema(body),
        }
        return Reply.of({"id": number})

    def _lookup(self, subject: str, body: Json) -> Reply:
        versions = self._subjects.get(subject)
        if versions is None:
            return _no_subject(subject)
        for one in versions.values():
            if _key(one) == _key(body):
                return Reply.of(one)
        return _no_schema()


def _schema(body: Json) -> Json:
    """Return the schema of a request or response in the form of responses."""
    found: Json = {"schema": body["schema"]}
    if body.get("schemaType", "AVRO") != "AVRO":
        found["schemaType"] = body["schemaType"]
    if body.get("references"):
        found["references"] = body["references"]
    return found


def _references(body: Json) -> list[Json]:
    found = body.get("references") or []
    assert isinstance(found, list)
    return found


def _key(body: Json) -> str:
    """Return a key that is equal for equal schemas; the spacing of JSON makes no difference."""
    text = str(body["schema"])
    try:
        text = json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        text = text.strip()
    return json.dumps([body.get("schemaType", "AVRO"), text, _references(body)])


def _wrong(body: Json) -> str | None:
    if not str(body.get("schema", "")).strip():
        return "schema cannot be empty"
    if body.get("schemaType", "AVRO") == "PROTOBUF":
        return None
    try:
        json.loads(str(body["schema"]))
    except ValueError:
        return "invalid JSON schema"
    return None


def _no_subject(subject: str) -> Reply:
    return Reply.error(404, 40401, f'subject "{subject}" not found')


def _no_schema() -> Reply:
    return Reply.error(404, 40403, "schema not found")


@contextmanager
def running(authorization: str | None = None) -> Iterator[FakeRegistry]:
    """Run a registry until the block ends."""
    registry = FakeRegistry(authorization=authorization)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            registry.headers.append(dict(self.headers.items()))
            reply = registry.answer(
                Call.read(self.command, self.path, body), self.headers.get("Authorization")
            )
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.content_type)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # a client may give up meanwhile
                self.wfile.write(reply.body)

        do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 — http.server's names

        def log_message(self, *_: object) -> None:
            """Print nothing: tests are quiet."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        thread.start()
        registry.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
