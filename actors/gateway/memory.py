"""The memory that the clients' connections of one process take together.

What counts is what is really there: parts of requests, requests that are not answered, and answers
that clients do not read, unless these lie in mapped segments. A promise to send a lot counts for
nothing, so nobody can use the bound up without sending.
"""

from __future__ import annotations

from collections.abc import Sequence
from mmap import mmap
from typing import Protocol

from raylog.actors.runtime.base import Buffer

UNLIMITED = 1 << 62


class Reader(Protocol):
    """A connection that may have to stop reading."""

    @property
    def has_part(self) -> bool:
        """Whether it holds the beginning of a request."""

    def read_on(self) -> None:
        """There is memory: go on, if nothing else is in the way."""


class RequestMemory:
    """How much is held, and who waits for some of it to be free (`queued.max.request.bytes`).

    While the bound is reached, connections stop reading, except for one at a time that holds the
    beginning of a request: it reads until that is whole. So the bound is exceeded by one request,
    and by little for each connection that has read already; and what is held can always be freed.
    """

    __slots__ = ("_finishing", "_waiting", "bytes_max", "held")

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max` -1 is no limit, as in the setting."""
        self.bytes_max = bytes_max if bytes_max > 0 else UNLIMITED
        self.held = 0
        self._waiting: dict[Reader, None] = {}
        self._finishing: Reader | None = None

    @property
    def is_full(self) -> bool:
        """Whether connections are to stop reading."""
        return self.held >= self.bytes_max

    def may_read(self, reader: Reader) -> bool:
        """Whether a connection may read on; if not it is told by `read_on` when it may."""
        if self.held < self.bytes_max:
            return True
        if self._finishing in (None, reader) and reader.has_part:
            self._finishing = reader
            self._waiting.pop(reader, None)
            return True
        self._waiting[reader] = None
        if self._finishing is reader:
            self._next_finishes()
        return False

    def is_finishing(self, reader: Reader) -> bool:
        """Whether a connection reads though the bound is reached."""
        return self._finishing is reader and self.is_full

    def free(self, count: int) -> None:
        """Note that so many bytes are no longer held."""
        self.held -= count
        assert self.held >= 0
        if self.held >= self.bytes_max:
            return
        self._finishing = None  # whoever it was, it may be silent when memory is full again
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for reader in waiting:
                reader.read_on()

    def forget(self, reader: Reader) -> None:
        """A connection is gone."""
        self._waiting.pop(reader, None)
        if self._finishing is reader:
            self._next_finishes()

    def _next_finishes(self) -> None:
        self._finishing = None
        for reader in self._waiting:
            if reader.has_part:
                self._finishing = reader
                del self._waiting[reader]
                reader.read_on()
                return


def owned_bytes(answer: Sequence[Buffer]) -> int:
    """Bytes of an answer that take memory until they are sent: not those of mapped segments."""
    return sum(
        len(part)
        for part in answer
        if not (isinstance(part, memoryview) and part.readonly and isinstance(part.obj, mmap))
    )
