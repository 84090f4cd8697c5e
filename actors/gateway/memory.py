"""The memory of all client connections of one process.

It counts what is actually held: parts of requests, unanswered requests, and unread responses that
are not in mapped segments. Announcing a large request counts for nothing, so nobody can use up the
limit without sending data.
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
        """Read again, unless something else prevents it, since there is memory."""


class RequestMemory:
    """Counts held memory, and the connections that wait for memory (`queued.max.request.bytes`).

    At the limit connections stop reading, except one at a time that has the beginning of a request,
    which reads until the request is complete. So the limit is exceeded by at most one request, and
    a little by each connection that has already read something, and all held memory can always be
    freed.
    """

    __slots__ = ("_finishing", "_waiting", "bytes_max", "held")

    def __init__(self, bytes_max: int) -> None:
        """A `bytes_max` of -1 means no limit, as in the setting."""
        self.bytes_max = bytes_max if bytes_max > 0 else UNLIMITED
        self.held = 0
        self._waiting: dict[Reader, None] = {}
        self._finishing: Reader | None = None

    @property
    def is_full(self) -> bool:
        """Whether connections should stop reading."""
        return self.held >= self.bytes_max

    def may_read(self, reader: Reader) -> bool:
        """Whether a connection may continue reading; if not, `read_on` is called when it may."""
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
        """Whether a connection may read although the limit is reached."""
        return self._finishing is reader and self.is_full

    def free(self, count: int) -> None:
        """Record that this many bytes are no longer held."""
        self.held -= count
        assert self.held >= 0
        if self.held >= self.bytes_max:
            return
        self._finishing = None  # it may be idle when memory is full again
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for reader in waiting:
                reader.read_on()

    def forget(self, reader: Reader) -> None:
        """Forget a connection that has ended."""
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
    """Return the bytes of a response that take memory until they are sent: all but mapped ones."""
    return sum(
        len(part)
        for part in answer
        if not (isinstance(part, memoryview) and part.readonly and isinstance(part.obj, mmap))
    )
