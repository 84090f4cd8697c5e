"""Limits how much memory large requests and their responses take.

As objects, a request takes ten times its bytes, and its response takes as much again until it is
encoded. Without a limit, clients that send the largest requests at the same time would have all of
that in memory at once. Small requests never wait here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from raylog.actors.runtime.base import Runtime
from raylog.wire.api import ELEMENT_BYTES, limit_of
from raylog.wire.codec import decode_counted

if TYPE_CHECKING:
    from raylog.actors.gateway.context import RequestContext

DECODED_BYTES_MAX = 8 << 20
"""For requests in progress, at `ELEMENT_BYTES` per element: one of the largest size, or several
smaller ones."""
STANDSTILL_MS = 1_000
"""A request that had no turn between two checks waits for a peer, and no longer counts."""

R = TypeVar("R")


class LargeRequests:
    """Decodes large requests and encodes large responses in threads, one at a time, in order.

    A connection has at most one request waiting here, which is fair to all connections. A request
    counts until it is answered, waits for something, or makes no progress. One more request may be
    decoded beyond the limit.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._decoding = asyncio.Lock()
        """Also held by the request that waits for room."""
        self._encoding = asyncio.Lock()
        self._freed = asyncio.Event()
        self._held = 0

    async def decode(
        self, context: RequestContext, message_class: type[Any], body: memoryview
    ) -> Any:
        """Decode a request's body and wait until there is room for it; raises DecodeError."""
        elements_max = limit_of(context.header.api_key).elements_max
        async with self._decoding:
            message, _, elements = await self._runtime.run_blocking(
                decode_counted, message_class, context.version, body, 0, elements_max
            )
            size = elements * ELEMENT_BYTES
            context.slot.grow(size)
            await self._room_for(size)
            context.slot.on_settled = _Decoded(self, self._runtime, context, size).end
        return message

    async def encode(self, encode: Callable[[], R]) -> R:
        """Run `encode` in a thread and return its result."""
        async with self._encoding:
            return await self._runtime.run_blocking(encode)

    async def _room_for(self, size: int) -> None:
        while self._held and self._held + size > DECODED_BYTES_MAX:
            self._freed.clear()
            await self._freed.wait()

    def hold(self, size: int) -> None:
        """Count this many bytes from now on."""
        self._held += size

    def free(self, size: int) -> None:
        """Stop counting this many bytes."""
        self._held -= size
        self._freed.set()


class _Decoded:
    """A large request that counts."""

    __slots__ = ("_context", "_large", "_runtime", "_size", "_timer", "_turns")

    def __init__(
        self, large: LargeRequests, runtime: Runtime, context: RequestContext, size: int
    ) -> None:
        self._large = large
        self._runtime = runtime
        self._context = context
        self._size = size
        large.hold(size)
        self._look_later()

    def end(self) -> None:
        """Stop counting it; may be called more than once."""
        self._timer.cancel()
        size, self._size = self._size, 0
        self._large.free(size)

    def _look_later(self) -> None:
        self._turns = self._context.turns_taken
        self._timer = self._runtime.call_later(STANDSTILL_MS, self._look)

    def _look(self) -> None:
        if self._context.turns_taken == self._turns:
            self.end()
        else:
            self._look_later()
