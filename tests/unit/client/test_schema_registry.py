"""The registry client with a registry that is slow, gone, wrong, or refuses."""

from __future__ import annotations

import asyncio
import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raylog.client.errors import InvalidSetting
from raylog.client.schemas import (
    AsyncSchemaRegistry,
    IncompatibleSchema,
    InvalidSchema,
    NotARegistry,
    Reference,
    Registered,
    RegistryError,
    RegistryUnauthorized,
    RegistryUnavailable,
    Schema,
    SchemaNotFound,
    SchemaRegistry,
    SubjectNotFound,
    VersionNotFound,
)
from raylog.client.schemas.settings import registry_settings
from tests.worlds.decorators import in_loop
from tests.worlds.servers import registry as fake_registry
from tests.worlds.servers.registry import Call, FakeRegistry, Reply, Trouble

INT = Schema('{"type":"int"}')
FAST = {"retries_wait_ms": 0, "max_retries": 2}


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with fake_registry.running() as registry:
        yield registry


@pytest.fixture
def client(fake: FakeRegistry) -> Iterator[SchemaRegistry]:
    with SchemaRegistry(fake.url, retries_wait_ms=0, max_retries=2) as client:
        yield client


def unused_url() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def replies(*given: Reply | None) -> Trouble:
    """Answer with these in turn; None is what the registry says itself."""
    left = list(given)

    def trouble(call: Call) -> Reply | None:
        del call
        return left.pop(0) if left else None

    return trouble


def test_schemas_are_asked_for_once(fake: FakeRegistry, client: SchemaRegistry) -> None:
    first = client.register("s", INT)
    for _ in range(3):
        assert client.register("s", INT) == first
        assert client.schema(first.id) == INT
        assert client.lookup("s", INT).version == 1
        assert client.version("s", 1).schema == INT
        assert client.latest("s").guid is not None
    assert len(fake.calls) == 5
    client.core.forget()
    assert client.schema(first.id) == INT
    assert len(fake.calls) == 6


def test_the_latest_version_is_taken_for_it_as_long_as_is_said(fake: FakeRegistry) -> None:
    with (
        SchemaRegistry(fake.url) as forever,
        SchemaRegistry(fake.url, cache_latest_ttl_sec=0) as never,
    ):
        forever.register("s", INT)
        assert forever.latest("s").version == never.latest("s").version == 1
        forever.register("s", Schema('{"type":"long"}'))
        assert (forever.latest("s").version, never.latest("s").version) == (1, 2)


def test_cache_capacity_is_bounded(fake: FakeRegistry) -> None:
    with SchemaRegistry(fake.url, cache_capacity=2) as client:
        for number in range(4):
            client.register(f"s{number}", INT)
        asked = len(fake.calls)
        client.register("s3", INT)
        assert len(fake.calls) == asked
        client.register("s0", INT)
        assert len(fake.calls) == asked + 1


def test_subjects_may_hold_any_character(fake: FakeRegistry, client: SchemaRegistry) -> None:
    subject = "a/b c?d#e%2Få:-value"
    client.register(subject, INT)
    assert client.subjects() == [subject]
    assert client.versions(subject) == [1]
    assert client.delete_subject(subject) == [1]
    assert client.subjects() == []
    assert fake.calls[0].path == "/subjects/a%2Fb%20c%3Fd%23e%252F%C3%A5%3A-value/versions"


REFUSALS: list[tuple[type[RegistryError], Callable[[SchemaRegistry], object], int]] = [
    (SchemaNotFound, lambda client: client.schema(77), 40403),
    (SchemaNotFound, lambda client: client.schema_by_guid("no"), 40403),
    (SubjectNotFound, lambda client: client.latest("none"), 40401),
    (SubjectNotFound, lambda client: client.lookup("none", INT), 40401),
    (VersionNotFound, lambda client: client.version("there", 9), 40402),
    (SchemaNotFound, lambda client: client.lookup("there", Schema('"x"')), 40403),
    (InvalidSchema, lambda client: client.register("s", Schema("{")), 42201),
    (
        InvalidSchema,
        lambda client: client.register("s", Schema("{}", "JSON", (Reference("a", "b", 1),))),
        42201,
    ),
]


@pytest.mark.parametrize(("kind", "ask", "code"), REFUSALS)
def test_refusals_are_reported_by_their_code(
    client: SchemaRegistry,
    kind: type[RegistryError],
    ask: Callable[[SchemaRegistry], object],
    code: int,
) -> None:
    client.register("there", INT)
    with pytest.raises(kind) as refused:
        ask(client)
    assert refused.value.error_code == code
    assert f"code {code}" in str(refused.value)
    again = pickle.loads(pickle.dumps(refused.value))
    assert (type(again), again.error_code, str(again)) == (kind, code, str(refused.value))


def test_a_schema_that_is_not_compatible(fake: FakeRegistry, client: SchemaRegistry) -> None:
    fake.trouble = replies(Reply.error(409, 409, "READER_FIELD_MISSING_DEFAULT_VALUE"))
    with pytest.raises(IncompatibleSchema, match="READER_FIELD_MISSING_DEFAULT_VALUE"):
        client.register("s", INT)


def test_an_unknown_id_is_not_asked_for_with_each_record(fake: FakeRegistry) -> None:
    with SchemaRegistry(fake.url, missing_id_ttl_sec=3_600) as client:
        for _ in range(5):
            with pytest.raises(SchemaNotFound) as refused:
                client.schema(7)
            assert refused.value.http_status == 404
        assert len(fake.calls) == 1
    with SchemaRegistry(fake.url, missing_id_ttl_sec=0) as client:
        with pytest.raises(SchemaNotFound):
            client.schema(1)
        client.register("s", INT)
        assert client.schema(1) == INT


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_transient_registry_error_is_retried(
    fake: FakeRegistry, client: SchemaRegistry, status: int
) -> None:
    fake.trouble = replies(Reply(status, b"<html>"), Reply.error(status, 50001, "later"))
    assert client.register("s", INT).id == 1
    assert len(fake.calls) == 3


def test_repeats_are_bounded_and_the_last_failure_is_reported(
    fake: FakeRegistry, client: SchemaRegistry
) -> None:
    fake.trouble = lambda call: Reply.error(500, 50001, "the store is gone")
    with pytest.raises(RegistryUnavailable, match=r"within 3 rounds.*the store is gone"):
        client.register("s", INT)
    assert len(fake.calls) == 3


def test_a_registry_that_is_not_there() -> None:
    url = unused_url()
    with (
        SchemaRegistry(url, retries_wait_ms=0) as client,
        pytest.raises(RegistryUnavailable, match=r"GET /schemas/ids/1 from http://127.0.0.1:"),
    ):
        client.schema(1)


def test_the_next_url_is_asked_and_then_asked_first(fake: FakeRegistry) -> None:
    with SchemaRegistry({"url": f"{unused_url()},{fake.url}"}, max_retries=0) as client:
        assert client.register("s", INT).id == 1
        assert client._http is not None
        assert client.core._asking._preferred == 1
        assert client.subjects() == ["s"]


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that takes connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def dripping() -> Iterator[str]:
    """A server that answers a byte at a time, without end."""
    ended = threading.Event()
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def serve() -> None:
            taken, _ = server.accept()
            with taken:
                taken.recv(65_536)
                taken.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                while not ended.wait(0.01):
                    try:
                        taken.sendall(b" ")
                    except OSError:
                        return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        ended.set()
        thread.join()


def test_a_registry_that_never_answers(silent: str) -> None:
    with (
        SchemaRegistry(silent, request_timeout_ms=50, max_retries=1, retries_wait_ms=0) as client,
        pytest.raises(RegistryUnavailable, match="timed out"),
    ):
        client.schema(1)


def test_the_deadline_holds_whatever_the_number_of_repeats(silent: str) -> None:
    with (
        SchemaRegistry(silent, deadline_ms=100, max_retries=1_000, retries_wait_ms=0) as client,
        pytest.raises(RegistryUnavailable, match="within 1001 rounds and 100 ms"),
    ):
        client.schema(1)


def test_an_answer_that_does_not_end(dripping: str) -> None:
    with (
        SchemaRegistry(dripping, request_timeout_ms=100, max_retries=0) as client,
        pytest.raises(RegistryUnavailable, match=r"took longer than 0.1 s"),
    ):
        client.schema(1)


@in_loop
async def test_an_answer_that_does_not_end_on_an_event_loop(dripping: str) -> None:
    async with AsyncSchemaRegistry(dripping, request_timeout_ms=100, max_retries=0) as client:
        with pytest.raises(RegistryUnavailable, match=r"took longer than 0.1 s"):
            await client.schema(1)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, b"<html><body>Welcome</body></html>", "text/html"),
        Reply(404, b"<html>not here</html>", "text/html"),
        Reply(302, b"", "text/html"),
        Reply(200, b"[" * 100_000, "application/json"),
        Reply.of([1]),
        Reply.of({"schema": 5}),
        Reply.of({"schema": "{}", "schemaType": "XML"}),
        Reply.of({"schema": "{}", "references": {"a": 1}}),
        Reply.of({"schema": "{}", "references": [{"name": "a", "subject": "b"}]}),
        Reply(200, b""),
        Reply(204, b""),
        Reply(200, b"\xff\xfe\x00"),
    ],
)
def test_answer_of_another_server_raises_not_a_registry(
    fake: FakeRegistry, client: SchemaRegistry, reply: Reply
) -> None:
    fake.trouble = lambda call: reply
    with pytest.raises(NotARegistry, match=r"expected .*, found"):
        client.schema(1)


@pytest.mark.parametrize("answer", [{}, {"id": "1"}, {"id": True}, {"id": -1}, [], None, "text"])
def test_invalid_schema_id_raises_not_a_registry(
    fake: FakeRegistry, client: SchemaRegistry, answer: object
) -> None:
    fake.trouble = lambda call: Reply.of(answer)
    with pytest.raises(NotARegistry):
        client.register("s", INT)


def test_an_answer_that_is_too_large(fake: FakeRegistry) -> None:
    fake.trouble = lambda call: Reply(200, b" " * 100_000)
    with (
        SchemaRegistry(fake.url, response_bytes_max=50_000) as client,
        pytest.raises(NotARegistry, match="at most 50000 bytes"),
    ):
        client.schema(1)


@pytest.mark.long
def test_a_schema_of_ten_megabytes(fake: FakeRegistry, client: SchemaRegistry) -> None:
    symbols = ",".join(f'"S{number:08}"' for number in range(900_000))
    schema = Schema(f'{{"type":"enum","name":"E","symbols":[{symbols}]}}')
    assert len(schema.text) > 10_000_000
    registered = client.register("s", schema)
    client.core.forget()
    assert client.schema(registered.id) == schema


def test_credentials_are_sent_and_never_shown() -> None:
    with fake_registry.running("Basic bWU6cDpAdw==") as fake:  # me:p:@w
        named = SchemaRegistry({"url": fake.url, "basic.auth.user.info": "me:p:@w"})
        in_url = SchemaRegistry(fake.url.replace("//", "//me:p%3A%40w@"))
        for client in (named, in_url):
            with client:
                client.register("s", INT)
        with (
            SchemaRegistry(fake.url.replace("//", "//me:secret@")) as wrong,
            pytest.raises(RegistryUnauthorized, match="basic_auth_user_info") as refused,
        ):
            wrong.register("s", INT)
        assert refused.value.http_status == 403
        assert "secret" not in str(refused.value)
        with SchemaRegistry(fake.url) as nobody, pytest.raises(RegistryUnauthorized) as refused:
            nobody.register("s", INT)
        assert refused.value.http_status == 401


def test_a_token_is_sent() -> None:
    with (
        fake_registry.running("Bearer abc") as fake,
        SchemaRegistry(fake.url, bearer_auth_token="abc") as client,
    ):
        assert client.register("s", INT).id == 1


def test_blocking_and_async_registry_agree(fake: FakeRegistry) -> None:
    async def ask() -> list[object]:
        async with AsyncSchemaRegistry(fake.url) as client:
            registered = await client.register("s", INT)
            found = [registered, await client.schema(registered.id), await client.latest("s")]
            with pytest.raises(SchemaNotFound):
                await client.schema(99)
            return [*found, await client.subjects(), await client.versions("s")]

    with SchemaRegistry(fake.url) as client:
        found = asyncio.run(ask())
        assert found == [
            client.register("s", INT),
            client.schema(1),
            client.latest("s"),
            ["s"],
            [1],
        ]


def test_several_threads_may_ask(client: SchemaRegistry) -> None:
    found: list[Registered] = []
    threads = [
        threading.Thread(target=lambda: found.append(client.register("s", INT))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {one.id for one in found} == {1}
    assert len(found) == 8


@pytest.mark.parametrize(
    ("config", "settings", "said"),
    [
        ({}, {}, "expected the url of a schema registry, found none"),
        ("localhost:8081", {}, "expected url as http://HOST:PORT, found 'localhost:8081'"),
        ("ftp://a", {}, "expected url as http"),
        ({"url": ""}, {}, "found none"),
        ({"url": 5}, {}, "expected url as text or a list, found 5"),
        (
            {"url": "http://a", "basic.auth.userinfo": "a:b"},
            {},
            "did you mean basic_auth_user_info",
        ),
        ("http://a", {"url": "http://b"}, "the setting url is given twice"),
        ("http://a", {"basic_auth_user_info": "no colon"}, "as USER:PASSWORD"),
        ("http://u:p@a", {"basic_auth_user_info": "a:b"}, "expected user and password once"),
        ("http://u:p@a,http://v:p@b", {}, "expected user and password once"),
        ("http://a", {"basic_auth_user_info": "a:b", "bearer_auth_token": "c"}, "not both"),
        ("http://a", {"ssl_key_location": "k"}, "needs ssl_certificate_location"),
        ("http://a", {"max_retries": -1}, "max_retries of 0 or more, found -1"),
        ("http://a", {"deadline_ms": 0}, "deadline_ms of 1 or more, found 0"),
        ("http://a", {"deadline_ms": "soon"}, "deadline_ms as a whole number, found 'soon'"),
        ("http://a", {"cache_latest_ttl_sec": -1}, "as seconds"),
        ("http://a", {"cache_latest_ttl_sec": float("nan")}, "as seconds"),
        ("http://a", {"enable_ssl_certificate_verification": 1}, "as true or false, found 1"),
        ("http://a", {"ssl_ca_location": 1}, "as text, found int"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    config: str | dict[str, object], settings: dict[str, object], said: str
) -> None:
    with pytest.raises(InvalidSetting, match=said):
        registry_settings(config, settings)


def test_settings_have_confluents_names_dotted_or_underscored() -> None:
    read = registry_settings(
        {"schema.registry.url": "http://a/, https://b/x/", "max.retries": "5"},
        {"basic_auth_user_info": "me:p:w", "enable_ssl_certificate_verification": "false"},
    )
    assert read.url == ("http://a", "https://b/x")
    assert read.basic_auth_user_info == ("me", "p:w")
    assert (read.max_retries, read.enable_ssl_certificate_verification) == (5, False)


def test_tls_files_that_cannot_be_used_are_reported(tmp_path: Path) -> None:
    broken = tmp_path / "ca.pem"
    broken.write_text("no certificate")
    with pytest.raises(InvalidSetting, match="TLS files cannot be used"):
        SchemaRegistry("https://a", ssl_ca_location=str(broken))
    with pytest.raises(InvalidSetting, match="TLS files cannot be used"):
        SchemaRegistry("https://a", ssl_certificate_location=str(tmp_path / "none.pem"))
