"""Requests to a schema registry: several URLs, bounded retries, and checked answers."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import cast
from urllib.parse import quote, urlencode

from raylog.client.retries import backoff_ms
from raylog.client.schemas.errors import (
    NotARegistry,
    RegistryError,
    RegistryUnavailable,
    refusal,
)
from raylog.client.schemas.http import Http, HttpRequest, HttpResponse, RequestFailed
from raylog.client.schemas.settings import RegistrySettings

_MAY_PASS = frozenset({408, 429, 500, 502, 503, 504})
_ACCEPT = (
    "application/vnd.schemaregistry.v1+json, application/vnd.schemaregistry+json, application/json"
)
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_SHOWN_MAX = 200

Query = Mapping[str, str | int | bool]


def path(*parts: str | int) -> str:
    """Return a path of the REST API; subjects may contain any character."""
    return "/".join(quote(str(part), safe="") for part in parts)


class Asking:
    """Sends requests through an Http, which may block or suspend."""

    def __init__(self, http: Http, settings: RegistrySettings, chance: random.Random) -> None:
        self._http = http
        self._settings = settings
        self._chance = chance
        self._preferred = 0
        """Index of the URL that answered last."""
        self._headers = {"Accept": _ACCEPT, "User-Agent": "raylog"}
        if settings.bearer_auth_token is not None:
            self._headers["Authorization"] = f"Bearer {settings.bearer_auth_token}"

    async def ask(
        self, method: str, where: str, query: Query | None = None, body: object = None
    ) -> object:
        """Send a request and return the JSON of the answer; raises SchemaError.

        The URLs are tried in turn. If none answers, they are tried again after a pause, until
        `max_retries` or the deadline is reached.
        """
        settings = self._settings
        deadline = self._http.now() + settings.deadline_ms / 1000
        failure: Exception | None = None
        for attempt in range(settings.max_retries + 1):
            if attempt and not await self._paused(attempt - 1, deadline):
                break
            for turn in range(len(settings.url)):
                number = (self._preferred + turn) % len(settings.url)
                left = deadline - self._http.now()
                if left <= 0:
                    break
                request = self._request(settings.url[number], method, where, query, body)
                try:
                    answer = await self._http.ask(
                        request, min(left, settings.request_timeout_ms / 1000)
                    )
                    if answer.status not in _MAY_PASS:
                        self._preferred = number
                        return _content(request, answer)
                    failure = _refused(request, answer)
                except RequestFailed as failed:
                    failure = failed
        raise RegistryUnavailable(
            f"no answer to {method} /{where} from {', '.join(settings.url)} within "
            f"{settings.max_retries + 1} rounds and {settings.deadline_ms} ms; the last failure: "
            f"{failure or 'the deadline passed'}"
        ) from failure

    async def _paused(self, round_number: int, deadline: float) -> bool:
        """Pause before the next round; return False if the deadline comes first."""
        settings = self._settings
        most_ms = backoff_ms(settings.retries_wait_ms, settings.retries_max_wait_ms, round_number)
        seconds = self._chance.random() * most_ms / 1000
        if self._http.now() + seconds >= deadline:
            return False
        await self._http.pause(seconds)
        return True

    def _request(
        self, url: str, method: str, where: str, query: Query | None, body: object
    ) -> HttpRequest:
        headers, content = self._headers, None
        if body is not None:
            headers = headers | {"Content-Type": _CONTENT_TYPE}
            content = json.dumps(body).encode()
        words = urlencode(
            {
                name: str(value).lower() if isinstance(value, bool) else value
                for name, value in (query or {}).items()
            }
        )
        return HttpRequest(method, f"{url}/{where}{'?' if words else ''}{words}", headers, content)


def _content(request: HttpRequest, answer: HttpResponse) -> object:
    """Return the JSON of a successful answer; raise the error in any other."""
    if not 200 <= answer.status < 300:
        raise _refused(request, answer)
    if answer.status == 204:
        return None
    try:
        return cast(object, json.loads(answer.body))
    except (ValueError, RecursionError) as failure:
        raise _unclear(request, answer) from failure


def _refused(request: HttpRequest, answer: HttpResponse) -> RegistryError | NotARegistry:
    """Return the exception for an answer that reports an error."""
    try:
        said = json.loads(answer.body)
    except (ValueError, RecursionError):
        said = None
    code = said.get("error_code") if isinstance(said, dict) else None
    text = str(said.get("message")) if isinstance(said, dict) else ""
    if not isinstance(code, int):
        if answer.status not in (401, 403):
            return _unclear(request, answer)
        code = 0
    advice = ""
    if answer.status in (401, 403):
        advice = " (credentials: basic_auth_user_info or bearer_auth_token)"
    return refusal(
        answer.status,
        code,
        f"{request.method} {request.url}: the registry answered HTTP {answer.status}, code {code}: "
        f"{text[:_SHOWN_MAX] or 'no reason given'}{advice}",
    )


def _unclear(request: HttpRequest, answer: HttpResponse) -> NotARegistry:
    shown = answer.body[:80].decode("utf-8", "replace")
    return NotARegistry(
        f"{request.method} {request.url}: expected JSON of a schema registry, found HTTP "
        f"{answer.status} with {answer.content_type or 'no content type'}: {shown!r}"
    )
