"""From connection to channel: negotiate versions (KIP-511), then authenticate (KIP-152)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from raylog import __version__
from raylog.client.connection import Connection
from raylog.client.errors import (
    AuthenticationFailed,
    ConnectionLost,
    NotConnected,
    NotKafka,
    NotSupported,
    RequestTimedOut,
)
from raylog.client.refusals import check
from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode, error_of
from raylog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from raylog.wire.schema import layout_of

if TYPE_CHECKING:
    from raylog.client.io import Io, Transport
    from raylog.client.security.settings import SecuritySettings

R = TypeVar("R")

_API_VERSIONS_VERSION = 3
_HANDSHAKE_VERSION = 1
"""SaslAuthenticate follows it; after version 0 the tokens would be sent without a header."""
_SESSION_PART = 0.85
"""Part of a session's lifetime after which the client logs in again, as in Kafka (KIP-368)."""
_SESSION_MS_MIN = 1_000.0
"""Shorter sessions are left to expire: the broker ends the connection, the client reconnects."""
_STEPS_MAX = 10
"""Most tokens in one login; SCRAM has two."""


def api_versions_request() -> ApiVersionsRequest:
    """Return the request for versions and features, which names the client (KIP-511)."""
    return ApiVersionsRequest(client_software_name="raylog", client_software_version=__version__)


class Channel:
    """A connection whose API versions have been negotiated."""

    def __init__(
        self,
        connection: Connection,
        transport: Transport,
        address: tuple[str, int],
        *,
        is_encrypted: bool = False,
    ) -> None:
        self.connection = connection
        self.transport = transport
        self.address = address
        self.is_encrypted = is_encrypted
        self.versions: dict[int, range] = {}
        """The versions that the broker speaks, by API key."""
        self.used_ms = 0.0
        """When the channel was last used."""
        self.login_again_ms = float("inf")
        """When the client should log in again, shortly before the session ends."""
        self.opened_ms = 0.0
        """When it became ready for requests."""
        self.opening_answers = 0
        """Number of answers received until then."""

    @property
    def is_open(self) -> bool:
        """Whether requests can still be sent."""
        return self.connection.ended is None

    @property
    def has_served(self) -> bool:
        """Whether any request was answered since the channel was opened."""
        return self.connection.answer_count > self.opening_answers

    def version_for(self, api_key: ApiKey, at_most: int | None = None, at_least: int = 0) -> int:
        """Return the newest version both sides support, within bounds; raises NotSupported."""
        theirs = self.versions.get(api_key)
        if theirs is None:
            host, port = self.address
            raise NotSupported(f"the broker {host}:{port} does not serve {api_key.name}")
        newest = min(api_key.versions.stop, theirs.stop) - 1
        if at_most is not None:
            newest = min(newest, at_most)
        oldest = max(api_key.first_version, at_least)
        if newest < max(oldest, theirs.start):
            newest = api_key.last_version if at_most is None else at_most
            raise NotSupported(
                f"{api_key.name}: the client speaks versions {oldest} to {newest}, "
                f"the broker {theirs.start} to {theirs.stop - 1}"
            )
        return newest

    def end(self, reason: Exception) -> None:
        """Fail all pending requests and close the connection."""
        self.connection.end(reason)
        self.transport.close()


class Opening:
    """The steps that open a connection, all within one deadline."""

    def __init__(self, io: Io, channel: Channel, deadline_ms: float) -> None:
        self.io = io
        self.channel = channel
        self.deadline_ms = deadline_ms

    async def negotiate(self) -> ApiVersionsResponse:
        """Ask for the broker's API versions, if need be with an older version of the request."""
        request = api_versions_request()
        response = await self._ask(request, ApiVersionsResponse, _API_VERSIONS_VERSION)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            newest = next(
                (
                    one.max_version
                    for one in response.api_keys
                    if one.api_key == ApiKey.API_VERSIONS
                ),
                0,
            )
            older = max(0, min(newest, _API_VERSIONS_VERSION - 1))
            response = await self._ask(ApiVersionsRequest(), ApiVersionsResponse, older)
        check(response.error_code, f"ApiVersions at {self._address}")
        self.channel.versions = {
            key.api_key: range(key.min_version, key.max_version + 1) for key in response.api_keys
        }
        return response

    async def log_in(self, settings: SecuritySettings) -> None:
        """Authenticate, for the first time or again; raises the broker's error."""
        from raylog.client.security.sasl import sasl_client  # most clients never log in
        from raylog.wire.messages.sasl_authenticate import (
            SaslAuthenticateRequest,
            SaslAuthenticateResponse,
        )

        client = sasl_client(settings)
        await self._choose(settings.sasl_mechanism or "")
        token: bytes | None = client.first()
        version = self.channel.version_for(ApiKey.SASL_AUTHENTICATE)
        lifetime_ms = 0
        for _ in range(_STEPS_MAX):
            if token is None:
                break
            response = await self._ask(
                SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, version
            )
            check(
                response.error_code,
                f"{settings.sasl_mechanism} as {settings.sasl_username!r} at {self._address}",
                response.error_message or "the broker gives no reason",
            )
            lifetime_ms = response.session_lifetime_ms
            token = client.step(bytes(response.auth_bytes))
        if not client.is_done:
            raise AuthenticationFailed(f"{self._address}: the login has no end")
        now_ms = self.io.now_ms()
        self.channel.login_again_ms = (
            now_ms + max(_SESSION_PART * lifetime_ms, _SESSION_MS_MIN)
            if lifetime_ms > 0
            else float("inf")
        )

    async def _choose(self, mechanism: str) -> None:
        """Tell the broker which SASL mechanism follows."""
        from raylog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

        theirs = self.channel.versions.get(ApiKey.SASL_HANDSHAKE)
        if theirs is None or _HANDSHAKE_VERSION not in theirs:
            raise NotSupported(f"{self._address}: the broker does not serve SASL_HANDSHAKE 1")
        response = await self._ask(
            SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, _HANDSHAKE_VERSION
        )
        if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(response.mechanisms) or "none"
            raise error_of(
                response.error_code,
                f"{self._address}: expected a sasl.mechanism of the broker's, {offered}, found "
                f"{mechanism}",
            )
        if response.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise error_of(
                response.error_code,
                f"{self._address}: expected a listener with SASL, found one without: is "
                "security.protocol PLAINTEXT or SSL there?",
            )
        check(response.error_code, f"SaslHandshake at {self._address}")

    async def _ask(self, request: object, expected: type[R], version: int) -> R:
        """Send one request on a connection that nothing else uses yet; return the answer."""
        pending, chunks = self.channel.connection.request(
            request, expected, version, self.deadline_ms
        )
        self.channel.transport.send(chunks)
        await self.io.wait(lambda: pending.done, max(0.0, self.deadline_ms - self.io.now_ms()))
        key = layout_of(type(request)).api_key
        assert key is not None, f"{type(request).__name__} is not a request"
        if not pending.done:
            raise NotConnected(
                f"{self._address} takes connections but does not answer {key.name} in time"
            )
        try:
            return pending.result()
        except (ConnectionLost, RequestTimedOut) as error:
            raise NotConnected(
                f"{self._address} ended the connection: {error}{self._hint(key)}"
            ) from error
        except NotKafka as error:
            raise NotKafka(f"{self._address}: {error}") from error

    def _hint(self, key: ApiKey) -> str:
        """Return a likely reason why the broker ended the connection at its first request."""
        if key is ApiKey.API_VERSIONS and not self.channel.is_encrypted:
            return ": does this listener expect TLS (security.protocol SSL or SASL_SSL)?"
        return ""

    @property
    def _address(self) -> str:
        host, port = self.channel.address
        return f"{host}:{port}"
