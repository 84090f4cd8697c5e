"""Two ends of a link trust each other only if both know the secret."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.actors.runtime.frames import LINK_VERSION
from raylog.actors.runtime.handshake import CONNECTING, GREETING, SERVING, Handshake
from raylog.actors.runtime.link_secret import LinkSecrets
from raylog.wire.errors import DecodeError

SECRET = LinkSecrets(b"s" * 32)


def pair(secret: LinkSecrets = SECRET) -> tuple[Handshake, Handshake]:
    return Handshake(SECRET, SERVING, "server"), Handshake(secret, CONNECTING, "client")


def proof_of(one: Handshake, other: Handshake) -> list[Any]:
    """The second frame of `one`."""
    proof = one.took(other.greeting())
    assert proof is not None
    return proof


def trusting(*ends: Handshake) -> list[bool]:
    return [one.done for one in ends]


def test_peers_that_know_the_secret_trust_each_other() -> None:
    server, client = pair()
    of_server, of_client = proof_of(server, client), proof_of(client, server)
    assert trusting(server, client) == [False, False]
    assert server.took(of_client) is None
    assert client.took(of_server) is None
    assert trusting(server, client) == [True, True]
    assert (server.peer_instance, client.peer_instance) == ("client", "server")


OLD, NEW = b"o" * 32, b"n" * 32
STEPS = [LinkSecrets(OLD)]
for _ in range(3):
    STEPS.append(STEPS[-1].advanced(NEW))


@pytest.mark.parametrize("step", range(4))
@pytest.mark.parametrize("later", [0, 1])
@pytest.mark.parametrize("serves", [False, True], ids=["connects", "serves"])
def test_while_the_secret_is_replaced_neighbouring_steps_trust_one_another(
    step: int, later: int, serves: bool
) -> None:
    if step + later >= len(STEPS):
        return
    ahead, behind = STEPS[step + later], STEPS[step]
    serving, connecting = (ahead, behind) if serves else (behind, ahead)
    server = Handshake(serving, SERVING, "server")
    client = Handshake(connecting, CONNECTING, "client")
    of_server, of_client = proof_of(server, client), proof_of(client, server)
    server.took(of_client)
    client.took(of_server)
    assert trusting(server, client) == [True, True]


def test_the_old_secret_opens_nothing_once_it_is_replaced() -> None:
    server = Handshake(STEPS[3], SERVING, "server")
    client = Handshake(STEPS[0], CONNECTING, "client")
    of_client = proof_of(client, server)
    proof_of(server, client)
    with pytest.raises(DecodeError, match="secret"):
        server.took(of_client)


def test_a_newer_build_that_speaks_this_version_is_greeted() -> None:
    server, client = pair()
    greeting = client.greeting()
    greeting[1], greeting[4] = LINK_VERSION + 5, "9.9"
    assert server.took([*greeting, "of a newer build", 7]) is not None
    assert server.version == LINK_VERSION


def test_the_secret_never_travels() -> None:
    server, client = pair()
    for head in (server.greeting(), proof_of(server, client)):
        assert SECRET.current not in head


def test_another_secret_is_turned_away_by_both() -> None:
    server, client = pair(LinkSecrets(b"x" * 32))
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
        ([GREETING, 2, b"n" * 16, "x"], "build 'before 3' speaks link versions 2 to 2, this build"),
        (
            [GREETING, LINK_VERSION + 2, b"n" * 16, "x", "9.9", LINK_VERSION + 1],
            f"build '9.9' speaks link versions {LINK_VERSION + 1} to {LINK_VERSION + 2}",
        ),
        ([GREETING, "3", b"n" * 16, "x", "9.9", 3], "expected link versions"),
        ([GREETING, 3, b"n" * 16, "x", "9.9", 4], "expected link versions"),
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
