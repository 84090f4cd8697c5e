"""SCRAM: the exchanges in the RFCs, and servers that lie."""

import base64
import hashlib
import hmac

import pytest

from raylog.client.errors import AuthenticationFailed
from raylog.client.security.sasl import PlainClient, sasl_client
from raylog.client.security.scram import ITERATIONS_MAX, ScramClient
from raylog.client.security.settings import SecuritySettings

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = NONCE + "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")


def client(mechanism: str = "SCRAM-SHA-256", username: str = "user") -> ScramClient:
    return ScramClient(mechanism, username, "pencil", NONCE)


def server_first(
    nonce: str = SERVER_NONCE, salt: str = "W22ZaJ0SNY7soEsUEjb6gQ==", iterations: str = "4096"
) -> bytes:
    return f"r={nonce},s={salt},i={iterations}".encode()


def test_the_exchange_of_rfc_7677() -> None:
    scram = client()
    assert scram.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert scram.step(server_first()) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert not scram.is_done
    assert scram.step(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None
    assert scram.is_done


@pytest.mark.parametrize("name", ["sha256", "sha512"])
def test_a_server_that_stores_keys_only_is_convinced(name: str) -> None:
    """As RFC 5802 has the server check it: from StoredKey and ServerKey."""
    scram = client(f"SCRAM-{name[:3].upper()}-{name[3:]}")
    salted = hashlib.pbkdf2_hmac(name, b"pencil", SALT, 4096)
    client_key = hmac.digest(salted, b"Client Key", name)
    stored_key, server_key = (
        hashlib.new(name, client_key).digest(),
        hmac.digest(salted, b"Server Key", name),
    )
    first = scram.first()
    final = scram.step(server_first())
    assert final is not None
    without_proof, _, proof = final.partition(b",p=")
    exchange = b",".join((first[3:], server_first(), without_proof))
    signature = hmac.digest(stored_key, exchange, name)
    recovered = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
    assert hashlib.new(name, recovered).digest() == stored_key
    scram.step(b"v=" + base64.b64encode(hmac.digest(server_key, exchange, name)))
    assert scram.is_done


def test_names_are_escaped() -> None:
    assert client(username="a=b,c").first().startswith(b"n,,n=a=3Db=2Cc,r=")
    assert client(username="Jürgen").first().startswith("n,,n=Jürgen,".encode())


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (server_first(nonce="another"), "expected a nonce that goes on from the client's"),
        (server_first(nonce=NONCE), "expected a nonce that goes on"),
        (server_first(iterations="4095"), "expected 4096 to 262144 iterations, found '4095'"),
        (server_first(iterations=str(ITERATIONS_MAX + 1)), "found '262145'"),
        (server_first(iterations="9" * 5000), "expected a number of iterations"),
        (server_first(iterations="-5000"), "expected a number of iterations"),
        (server_first(iterations="٤٠٩٦"), "expected a number of iterations"),
        (server_first(salt="!"), "expected a salt in base64"),
        (server_first(salt=""), "expected a salt of 1 to 1024 bytes"),
        (server_first(salt="A" * 4000), "expected a salt of 1 to 1024 bytes"),
        (b"m=ext," + server_first(), "expected no mandatory extension"),
        (b"e=unknown-user", "the broker says 'unknown-user'"),
        (b"", "expected r=, s= and i="),
        (b"v=abc", "expected r=, s= and i="),
        (b"\xff\xfe", "expected UTF-8"),
        (b"r" * 20_000, "expected at most 16384 bytes"),
    ],
)
def test_first_messages_that_lie(message: bytes, expected: str) -> None:
    with pytest.raises(AuthenticationFailed, match=expected):
        client().step(message)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95H4=", "does not know the password"),
        (b"v=", "does not know the password"),
        (b"v=?", "expected a signature in base64"),
        (b"e=invalid-proof", "the broker says 'invalid-proof'"),
        (server_first(), "expected v="),
        (b"", "expected v="),
    ],
)
def test_final_messages_that_lie(message: bytes, expected: str) -> None:
    scram = client()
    scram.step(server_first())
    with pytest.raises(AuthenticationFailed, match=expected):
        scram.step(message)
    assert not scram.is_done


def test_message_after_the_end_is_refused() -> None:
    scram = client()
    scram.step(server_first())
    scram.step(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    with pytest.raises(AuthenticationFailed, match="expected no more"):
        scram.step(b"v=")


def test_plain() -> None:
    plain = PlainClient("ann", "sécret")
    assert plain.first() == b"\0ann\0s\xc3\xa9cret"
    plain.step(b"")
    assert plain.is_done
    with pytest.raises(AuthenticationFailed, match="expected no token, found 3 bytes"):
        PlainClient("a", "b").step(b"abc")


def test_nonces_are_unique() -> None:
    settings = SecuritySettings(
        "SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-512", sasl_username="u", sasl_password="p"
    )
    assert sasl_client(settings).first() != sasl_client(settings).first()
