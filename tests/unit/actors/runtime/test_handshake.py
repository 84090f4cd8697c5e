"""Two ends of a link trust one another only if both know the secret."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.actors.runtime.frames import LINK_VERSION
from raylog.actors.runtime.handshake import CONNECTING, GREETING, SERVING, Handshake
from raylog.wire.errors import DecodeError

SECRET = b"s" * 32


def pair(secret: bytes = SECRET) -> tuple[Handshake, Handshake]:
    return Handshake(SECRET, SERVING, "server"), Handshake(secret, CONNECTING, "client")


def proof_of(one: Handshake, other: Handshake) -> list[Any]:
    """The second frame of `one`."""
    proof = one.took(other.greeting())
    assert proof is not None
    return proof


def trusting(*ends: Handshake) -> list[bool]:
    return [one.done for one in ends]


def test_who_knows_the_secret_is_trusted() -> None:
    server, client = pair()
    of_server, of_client = proof_of(server, client), proof_of(client, server)
    assert trusting(server, client) == [False, False]
    assert server.took(of_client) is None
    assert client.took(of_server) is None
    assert trusting(server, client) == [True, True]
    assert (server.peer_instance, client.peer_instance) == ("client", "server")


def test_the_secret_never_travels() -> None:
    server, client = pair()
    for head in (server.greeting(), proof_of(server, client)):
        assert SECRET not in head


def test_another_secret_is_turned_away_by_both() -> None:
    server, client = pair(b"x" * 32)
    of_server, of_client = proof_of(server, client), proof_of(client, server)
    with pytest.raises(DecodeError, match="secret"):
        server.took(of_client)
    with pytest.raises(DecodeError, match="secret"):
        client.took(of_server)
    assert trusting(server, client) == [False, False]


def test_a_proof_cannot_be_played_back_to_its_author() -> None:
    server, _ = pair()
    of_server = server.took(server.greeting())  # the peer repeats what it hears
    assert of_server is not None
    with pytest.raises(DecodeError, match="secret"):
        server.took(of_server)


def test_a_proof_is_good_for_one_link() -> None:
    server, client = pair()
    overheard = proof_of(client, server)
    later, _ = pair()
    later.took(client.greeting())
    with pytest.raises(DecodeError, match="secret"):
        later.took(overheard)


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (["http", LINK_VERSION, b"n" * 16, "x"], "does not speak"),
        ([GREETING, LINK_VERSION, b"n" * 16], "does not speak"),
        ([GREETING, LINK_VERSION + 1, b"n" * 16, "x"], f"version {LINK_VERSION + 1}, this is"),
        ([GREETING, LINK_VERSION, b"n" * 15, "x"], "nonce of 16 bytes"),
        ([GREETING, LINK_VERSION, "n" * 16, "x"], "nonce of 16 bytes"),
    ],
)
def test_greetings_that_are_none(head: list[Any], why: str) -> None:
    server, _ = pair()
    with pytest.raises(DecodeError, match=why):
        server.took(head)


def test_a_proof_of_the_wrong_type_is_none() -> None:
    server, client = pair()
    server.took(client.greeting())
    with pytest.raises(DecodeError, match="secret"):
        server.took([GREETING, "proof", None])
