"""SCRAM-SHA-256 and SCRAM-SHA-512 from the client's side (RFC 5802, RFC 7677), without I/O.

The password never leaves the client, and the server proves that it knows it too: a server that
cannot is refused before anything is sent to it. As in Kafka's own clients and brokers, names and
passwords are taken as UTF-8 without SASLprep, and channel binding is not used.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re

from raylog.client.errors import AuthenticationFailed

ITERATIONS_MIN = 4_096
"""RFC 7677 asks for no less; a server that names fewer wants the password guessed."""
ITERATIONS_MAX = 1 << 18
"""Kafka's brokers store at most 16,384; more would only keep the client busy."""
_SALT_BYTES_MAX = 1_024
_MESSAGE_BYTES_MAX = 16 * 1024
_NO_BINDING = "n,,"
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """What a broker keeps of a password, and a client proves that it can compute (PBKDF2)."""
    return hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)


class ScramClient:
    """One login: `first`, then `step` with each message of the server until `is_done`.

    Transitions: first message sent → server's first message: final message sent → server's final
    message: done. Whatever does not fit raises AuthenticationFailed, and the login is over.
    """

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        """`nonce`: printable, never used before, without commas."""
        assert re.fullmatch(r"[!-+\--~]+", nonce), "a nonce is printable, without commas"
        self._mechanism = mechanism
        self._hash = _HASHES[mechanism]
        self._password = password
        self._nonce = nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}"
        self._expected_signature: bytes | None = None
        self.is_done = False

    def first(self) -> bytes:
        """The message to begin with."""
        return (_NO_BINDING + self._first_bare).encode()

    def step(self, message: bytes) -> bytes | None:
        """Take the server's message: the answer to it, or None at the end."""
        if self.is_done:
            raise AuthenticationFailed(f"{self._mechanism}: expected no more, found a message")
        text = self._text(message)
        if self._expected_signature is None:
            return self._final(text)
        self._verify(text)
        return None

    def _final(self, text: str) -> bytes:
        """Prove that the client knows the password."""
        nonce, salt, iterations = self._read_first(text)
        salted = salted_password(self._mechanism, self._password, salt, iterations)
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        binding = base64.b64encode(_NO_BINDING.encode()).decode()
        without_proof = f"c={binding},r={nonce}"
        exchange = f"{self._first_bare},{text},{without_proof}".encode()
        signature = self._hmac(stored_key, exchange)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._expected_signature = self._hmac(self._hmac(salted, b"Server Key"), exchange)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _read_first(self, text: str) -> tuple[str, bytes, int]:
        """Nonce, salt and iterations."""
        fields = text.split(",")
        if fields[0].startswith("m="):
            raise self._refused("no mandatory extension", fields[0])
        if fields[0].startswith("e="):
            raise AuthenticationFailed(f"{self._mechanism}: the broker says {fields[0][2:]!r}")
        names = [field[:2] for field in fields[:3]]
        if names != ["r=", "s=", "i="]:
            raise self._refused("r=, s= and i=", text)
        nonce, salt_text, count_text = (field[2:] for field in fields[:3])
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise self._refused("a nonce that goes on from the client's", nonce)
        salt = self._base64("salt", salt_text)
        if not 0 < len(salt) <= _SALT_BYTES_MAX:
            raise self._refused(f"a salt of 1 to {_SALT_BYTES_MAX} bytes", str(len(salt)))
        if not (count_text.isascii() and count_text.isdigit() and len(count_text) < 10):
            raise self._refused("a number of iterations", count_text)
        iterations = int(count_text)
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise self._refused(f"{ITERATIONS_MIN} to {ITERATIONS_MAX} iterations", str(iterations))
        return nonce, salt, iterations

    def _verify(self, text: str) -> None:
        """See that the server knows the password's keys."""
        field = text.split(",")[0]
        if field.startswith("e="):
            raise AuthenticationFailed(f"{self._mechanism}: the broker says {field[2:]!r}")
        if not field.startswith("v="):
            raise self._refused("v=", text)
        assert self._expected_signature is not None, "the server's first message came before"
        if not hmac.compare_digest(self._base64("signature", field[2:]), self._expected_signature):
            raise AuthenticationFailed(
                f"{self._mechanism}: the broker does not know the password: its signature is "
                "wrong. Is it the broker that you meant?"
            )
        self.is_done = True

    def _text(self, message: bytes) -> str:
        """A message of reasonable size as text."""
        if len(message) > _MESSAGE_BYTES_MAX:
            raise self._refused(f"at most {_MESSAGE_BYTES_MAX} bytes", str(len(message)))
        try:
            return message.decode()
        except UnicodeDecodeError:
            raise self._refused("UTF-8", repr(message[:40])) from None

    def _base64(self, what: str, text: str) -> bytes:
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise self._refused(f"a {what} in base64", text) from None

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)

    def _refused(self, expected: str, found: str) -> AuthenticationFailed:
        return AuthenticationFailed(
            f"{self._mechanism}: expected {expected}, found {found[:80]!r} from the broker"
        )
