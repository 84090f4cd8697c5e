"""What a socket has not taken yet, in pieces that are not copied."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice

from raylog.client.connection import Buffer

_VECTORS_MAX = 64
"""Pieces handed to one system call, well below the system's limit."""


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
        """The first pieces, as many as one system call takes."""
        return list(islice(self._pieces, _VECTORS_MAX))

    def drop(self, count: int) -> None:
        """Forget the first `count` bytes: they were sent."""
        while count:
            first = self._pieces[0]
            if count < len(first):
                self._pieces[0] = first[count:]
                return
            count -= len(first)
            self._pieces.popleft()

    def take(self, count: int) -> memoryview:
        """The first piece, or the first `count` bytes of it; it counts as sent."""
        taken = self._pieces[0][:count]
        self.drop(len(taken))
        return taken

    def take_all(self) -> list[memoryview]:
        """All pieces; they count as sent."""
        pieces = list(self._pieces)
        self._pieces.clear()
        return pieces
