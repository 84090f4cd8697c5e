"""Output that a socket has not accepted yet, in uncopied pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice

from raylog.client.connection import Buffer

_VECTORS_MAX = 64
"""Most pieces per system call, well below the system's limit."""


class Unsent:
    """A queue of bytes. False when it is empty."""

    def __init__(self) -> None:
        self._pieces: deque[memoryview] = deque()

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, chunks: Iterable[Buffer]) -> None:
        """Queue chunks behind what is there."""
        self._pieces.extend(memoryview(chunk) for chunk in chunks if len(chunk))

    def first(self) -> list[memoryview]:
        """Return the first pieces, as many as one system call accepts."""
        return list(islice(self._pieces, _VECTORS_MAX))

    def drop(self, count: int) -> None:
        """Drop the first `count` bytes, which were sent."""
        while count:
            first = self._pieces[0]
            if count < len(first):
                self._pieces[0] = first[count:]
                return
            count -= len(first)
            self._pieces.popleft()

    def take(self, count: int) -> memoryview:
        """Remove and return the first piece, or its first `count` bytes."""
        taken = self._pieces[0][:count]
        self.drop(len(taken))
        return taken

    def take_all(self) -> list[memoryview]:
        """Remove and return all pieces."""
        pieces = list(self._pieces)
        self._pieces.clear()
        return pieces
