"""What the fuzzer sees of a broker that does wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from struct import Struct

import pytest

from raylog.actors.gateway.handlers.table import served_versions
from raylog.wire.api import ApiKey
from raylog.wire.error_codes import ErrorCode
from raylog.wire.frame import RequestHeader, decode_request_header, encode_response
from raylog.wire.messages.registry import response_class
from tests.fuzz import episode
from tests.fuzz.episode import Episode, Target
from tests.fuzz.requests import deck_of
from tests.fuzz.tally import Tally
from tests.fuzz.world import Cluster, Topic

_LENGTH = Struct(">i")
_BROKEN = Struct(">ii")
PLANTED = ApiKey.LIST_GROUPS
Misdeed = Callable[[RequestHeader], bytes | None]
"""The answer to a request of the planted API; None closes the connection."""


def played(misdeed: Misdeed, directory: Path) -> Tally:
    """One episode at a broker that answers everything with defaults but one API."""
    return asyncio.run(_played(misdeed, directory))


async def _played(misdeed: Misdeed, directory: Path) -> Tally:

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (length,) = _LENGTH.unpack(await reader.readexactly(4))
                header, _ = decode_request_header(await reader.readexactly(length))
                frame = misdeed(header) if header.api_key is PLANTED else right(header)
                if frame is None:
                    break
                writer.write(frame)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    served: dict[int, range] = {
        key: served_versions()[key] for key in (PLANTED, ApiKey.END_TXN, ApiKey.HEARTBEAT)
    }
    tally = Tally()
    target = Target(
        address=f"127.0.0.1:{port}",
        cluster=Cluster(base=[Topic("base-0", b"\x01" * 16, 1)]),
        served=served,
        deck=deck_of(served, 1),
        seed=1,
        cards=30,
        slots=1,
        huge=10,
        tally=tally,
        directory=directory,
    )
    async with server:
        await Episode(target, 0).run()
    return tally


def right(header: RequestHeader) -> bytes:
    """An answer of defaults."""
    return answer(header, 0)


def answer(header: RequestHeader, code: int) -> bytes:
    """An answer with this error code."""
    key = ApiKey(header.api_key)
    response = response_class(key)(error_code=code)
    return b"".join(encode_response(key, header.api_version, header.correlation_id, response))


def broken(header: RequestHeader) -> bytes:
    """A frame that is whole, but no answer of the API asked."""
    return _BROKEN.pack(7, header.correlation_id) + b"\xff" * 3


def test_a_broker_that_answers_is_not_blamed(tmp_path: Path) -> None:
    tally = played(right, tmp_path)
    assert (tally.failures, tally.reached) == ([], tally.sent)


def test_a_closed_connection_is_a_failure_of_that_request(tmp_path: Path) -> None:
    tally = played(lambda _: None, tmp_path)
    whats = [one.what for one in tally.failures if one.request.startswith(PLANTED.name)]
    assert any(what.startswith("connection closed: alone it ends so, too") for what in whats)
    assert Path(tally.failures[0].replay).exists()


def test_an_unknown_server_error_is_a_failure(tmp_path: Path) -> None:
    tally = played(lambda header: answer(header, ErrorCode.UNKNOWN_SERVER_ERROR), tmp_path)
    assert all(one.what.startswith("unknown server error") for one in tally.failures)
    assert tally.failures


def test_silence_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episode, "ANSWER_TIMEOUT_S", 0.05)
    tally = played(lambda _: b"", tmp_path)
    assert any(one.what.startswith("no answer") for one in tally.failures)


def test_a_broken_answer_is_a_failure(tmp_path: Path) -> None:
    tally = played(broken, tmp_path)
    assert tally.failures
