"""The context of a request: its header, its connection, and the gateway's view of the cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from raylog.actors.failures import FORESEEN, error_code_of, message_of
from raylog.actors.metrics.errors import codes_in
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
TURN = 250
"""Items of a request, such as partitions, that are handled in one turn."""
LARGE_TURNS = 8
"""After more turns than this, the answer is encoded in a thread."""


class RequestContext:
    """One request in progress. It is answered once, by `reply`, `no_reply` or `refuse`."""

    __slots__ = ("_connection", "gateway", "header", "is_large", "slot", "turns_taken")

    def __init__(
        self,
        gateway: GatewayActor,
        connection: ClientConnection,
        slot: Slot,
        header: RequestHeader,
    ) -> None:
        self.gateway = gateway
        self.header = header
        self.slot = slot
        self.is_large = False
        """Whether its answer is too large to be encoded on the event loop."""
        self.turns_taken = 0
        """The turns after the first one of each piece of work."""
        self._connection = connection

    @property
    def version(self) -> int:
        """The request's version."""
        return self.header.api_version

    @property
    def client_gone(self) -> bool:
        """Whether the client has disconnected, so that no response is needed."""
        return self._connection.is_closing

    @property
    def connection(self) -> ClientConnection:
        """The client's connection, to which fetch sessions belong."""
        return self._connection

    @property
    def listener(self) -> str:
        """The listener that the client uses; responses contain the brokers' endpoints for it."""
        return self._connection.listener

    # ---- requests that take long ----------------------------------------------------------

    def takes_long(self) -> None:
        """Hold back the connection's next requests until `is_begun`."""
        self._connection.hold()

    def is_begun(self) -> None:
        """Let the connection's next requests start, as they can no longer overtake this one."""
        self._connection.release()

    def waits(self, left: Callable[[], None]) -> None:
        """Start to wait for something; `left` is called if the client disconnects first."""
        self.slot.wait(left)

    def in_turns(self, steps: Iterator[int], done: Callable[[], None]) -> None:
        """Run all steps of handling a request, TURN items at a time, then call `done`.

        Each step yields how many items it handled. Between two turns, requests of other connections
        may run.
        """
        if _one_turn(steps):
            done()
        else:
            self.takes_long()
            self.gateway.runtime.start(self._other_turns(steps, done), str(self))

    async def turns(self, steps: Iterator[int]) -> None:
        """Run all steps in the same way, for handlers that are coroutines.

        In each round of the event loop one large request gets one turn. So a small request waits
        for one turn only, however many large ones there are.
        """
        turns, is_done = 1, _one_turn(steps)
        while not is_done:
            async with self.gateway.turn:
                await self.gateway.runtime.sleep(0)
                is_done = _one_turn(steps)
            turns += 1
            self.turns_taken += 1
        self.is_large = self.is_large or turns > LARGE_TURNS

    async def _other_turns(self, steps: Iterator[int], done: Callable[[], None]) -> None:
        try:
            async with self.gateway.turn:
                await self.gateway.runtime.sleep(0)
            await self.turns(steps)
            done()
        except AssertionError:
            raise
        except Exception as failure:  # noqa: BLE001 - logged there; other clients go on
            self.fail(failure)
        finally:
            self.is_begun()

    # ---- answers --------------------------------------------------------------------------

    def reply(self, response: Any, version: int | None = None) -> None:
        """Answer in the request's version, or in `version`."""
        if not self.is_large:
            self.gateway.counts.errors.answered(self.header.api_key, response)
        self.reply_well(response, version)

    def reply_well(self, response: Any, version: int | None = None) -> None:
        """Answer with a response that has no errors, so that none need to be counted."""
        if version is None:
            version = self.header.api_version
        if self.is_large:
            self.gateway.runtime.start(self._reply_aside(response, version), str(self))
            return
        try:
            answer = self._encoded(response, version)
        except EncodeError:
            self._cannot_be_written()
        else:
            self.slot.fill(answer)

    def _encoded(self, response: Any, version: int) -> list[Buffer]:
        header = self.header
        assert isinstance(header.api_key, ApiKey), "unknown APIs are not served"
        return encode_response(header.api_key, version, header.correlation_id, response)

    async def _reply_aside(self, response: Any, version: int) -> None:
        """Encode a response in a thread, and send it."""

        def encode() -> tuple[list[Buffer], list[int]]:
            return self._encoded(response, version), codes_in(response)

        try:
            answer, codes = await self.gateway.large_requests.encode(encode)
        except EncodeError:
            self._cannot_be_written()
        else:
            self.gateway.counts.errors.add(self.header.api_key, codes)
            self.slot.fill(answer)

    def _cannot_be_written(self) -> None:
        log.exception("the answer to %s cannot be written", self)
        self.refuse("internal error")

    def reply_frame(self, frame: Buffer) -> None:
        """Answer with a complete response frame from another actor."""
        self.slot.fill((frame,))

    def fail(self, failure: Exception) -> None:
        """Answer that the whole request failed; close the connection if no response can say so.

        An unexpected exception is a bug in Raylog: it is logged, and the client's connection is
        closed.
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
        """End a request that gets no response (acks=0)."""
        self.slot.fill(())

    def refuse(self, why: str) -> None:
        """Close the connection, which is the only way to refuse acks=0 and unknown requests."""
        self._connection.give_up(why)
        self.slot.drop()


def _one_turn(steps: Iterator[int]) -> bool:
    """Run the steps of one turn; return whether these were the last."""
    left = TURN
    for items in steps:
        left -= items
        if left <= 0:
            return False
    return True


def top_level_error(api_key: ApiKey, version: int, failure: Exception) -> Any | None:
    """Build a response that only reports a failure of everything; None if there is none."""
    response = response_class(api_key)
    fields = {one.name for one in layout_of(response).fields if version in one.versions}
    if "error_code" not in fields:
        return None
    answer = response(error_code=int(error_code_of(failure)))
    if "error_message" in fields:
        answer.error_message = message_of(failure)
    return answer
