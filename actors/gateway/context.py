"""What a handler has in hand: the request's envelope and the gateway's view of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raylog.wire.api import ApiKey
from raylog.wire.frame import RequestHeader, encode_response

if TYPE_CHECKING:
    from raylog.actors.gateway.actor import GatewayActor
    from raylog.actors.gateway.connection import ClientConnection, Slot


class RequestContext:
    """One request on its way. It is answered once, by `reply`, `no_reply` or `refuse`."""

    __slots__ = ("_connection", "_slot", "gateway", "header")

    def __init__(
        self,
        gateway: GatewayActor,
        connection: ClientConnection,
        slot: Slot,
        header: RequestHeader,
    ) -> None:
        self.gateway = gateway
        self.header = header
        self._connection = connection
        self._slot = slot

    @property
    def version(self) -> int:
        """The request's version."""
        return self.header.api_version

    @property
    def client_gone(self) -> bool:
        """Whether nobody would read an answer."""
        return self._connection.is_closing

    @property
    def connection(self) -> ClientConnection:
        """Whose request it is; fetch sessions and quotas hang on it."""
        return self._connection

    def reply(self, response: Any, version: int | None = None) -> None:
        """Answer in the request's version, or in `version`."""
        header = self.header
        if version is None:
            version = header.api_version
        self._slot.fill(
            encode_response(ApiKey(header.api_key), version, header.correlation_id, response)
        )

    def no_reply(self) -> None:
        """End a request that gets no answer (acks=0)."""
        self._slot.fill(())

    def refuse(self, why: str) -> None:
        """Close the connection: the only way to say no to acks=0 and to unknown requests."""
        self._connection.give_up(why)
