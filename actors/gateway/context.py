"""What a handler has in hand: the request's envelope and the gateway's view of the cluster."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from raylog.actors.failures import FORESEEN, error_code_of, message_of
from raylog.actors.runtime.base import Buffer
from raylog.wire.api import ApiKey
from raylog.wire.errors import EncodeError
from raylog.wire.frame import RequestHeader, encode_response
from raylog.wire.messages.registry import response_class
from raylog.wire.schema import layout_of

if TYPE_CHECKING:
    from raylog.actors.gateway.actor import GatewayActor
    from raylog.actors.gateway.connection import ClientConnection, Slot

log = logging.getLogger(__name__)


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
        try:
            answer = encode_response(
                ApiKey(header.api_key), version, header.correlation_id, response
            )
        except EncodeError:
            log.exception("the answer to %s cannot be written", self)
            self.refuse("internal error")
        else:
            self._slot.fill(answer)

    def reply_frame(self, frame: Buffer) -> None:
        """Answer with a whole response frame that another actor has made."""
        self._slot.fill((frame,))

    def fail(self, failure: Exception) -> None:
        """Answer a failure of the whole request, or close where the answer has no place for one.

        A failure that nobody foresaw is our bug: it is logged and costs the client its connection.
        """
        if not isinstance(failure, FORESEEN):
            log.error("%s failed", self, exc_info=failure)
            self.refuse("internal error")
            return
        response = top_level_error(ApiKey(self.header.api_key), self.version, failure)
        if response is None:
            self.refuse(f"{self} failed: {failure}")
        else:
            self.reply(response)

    def __str__(self) -> str:
        header = self.header
        name = ApiKey(header.api_key).name
        return f"{name} v{header.api_version} of {header.client_id} at {self._connection.peer}"

    def no_reply(self) -> None:
        """End a request that gets no answer (acks=0)."""
        self._slot.fill(())

    def refuse(self, why: str) -> None:
        """Close the connection: the only way to say no to acks=0 and to unknown requests."""
        self._connection.give_up(why)


def top_level_error(api_key: ApiKey, version: int, failure: Exception) -> Any | None:
    """The answer that says only that everything failed; None if this version has none."""
    response = response_class(api_key)
    fields = {one.name for one in layout_of(response).fields if version in one.versions}
    if "error_code" not in fields:
        return None
    answer = response(error_code=int(error_code_of(failure)))
    if "error_message" in fields:
        answer.error_message = message_of(failure)
    return answer
