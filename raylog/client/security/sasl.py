"""The SASL mechanisms as machines: tokens of the broker in, tokens of the client out."""

from __future__ import annotations

import secrets
from typing import Protocol

from raylog.client.errors import AuthenticationFailed
from raylog.client.security.scram import ScramClient
from raylog.client.security.settings import SecuritySettings

_NONCE_BYTES = 24


class SaslClient(Protocol):
    """One login."""

    is_done: bool
    """Whether the broker has shown all that the mechanism asks of it."""

    def first(self) -> bytes:
        """The token to begin with."""

    def step(self, message: bytes) -> bytes | None:
        """Take the broker's token: the next one, or None at the end."""


class PlainClient:
    """PLAIN (RFC 4616): the password itself, so only under TLS."""

    def __init__(self, username: str, password: str) -> None:
        self._token = b"\0" + username.encode() + b"\0" + password.encode()
        self.is_done = False

    def first(self) -> bytes:
        """Name and password."""
        return self._token

    def step(self, message: bytes) -> None:
        """The broker has nothing to add."""
        if message:
            raise AuthenticationFailed(f"PLAIN: expected no token, found {len(message)} bytes")
        self.is_done = True


def sasl_client(settings: SecuritySettings) -> SaslClient:
    """A login as settings say."""
    mechanism, username = settings.sasl_mechanism, settings.sasl_username
    password = settings.sasl_password
    assert mechanism is not None, "SecuritySettings were checked"
    assert username is not None, "SecuritySettings were checked"
    assert password is not None, "SecuritySettings were checked"
    if mechanism == "PLAIN":
        return PlainClient(username, password)
    return ScramClient(mechanism, username, password, secrets.token_hex(_NONCE_BYTES))
