"""Which offset is the latest of each key: what compaction keeps, and drops the others by."""

from collections.abc import Iterable
from hashlib import blake2b

from raylog.wire.bulk import BulkRecord

_WHOLE_KEY_BYTES = 64
"""Longer keys are known by a digest, which is one byte longer than any key that is kept whole."""
_ENTRY_BYTES = 200
"""Of a key of about 50 bytes, its offset, and their places in a dictionary that has just grown."""


class LatestOffsets:
    """Latest offsets of the keys in [start_offset, end_offset), as many as memory allows."""

    __slots__ = ("_latest", "_room", "end_offset", "start_offset")

    def __init__(self, start_offset: int, memory_bytes: int) -> None:
        self.start_offset = self.end_offset = start_offset
        self._latest: dict[bytes, int] = {}
        self._room = max(memory_bytes // _ENTRY_BYTES, 1)

    @property
    def is_full(self) -> bool:
        """Whether no more batches are to be noted."""
        return len(self._latest) >= self._room

    def note(self, records: Iterable[BulkRecord]) -> None:
        """Note one batch's records."""
        latest = self._latest
        for offset, key, _, _ in records:
            if key is not None:
                latest[key if len(key) <= _WHOLE_KEY_BYTES else _short(key)] = offset

    def is_overtaken(self, offset: int, key: bytes) -> bool:
        """Whether the key has a later record."""
        short = key if len(key) <= _WHOLE_KEY_BYTES else _short(key)
        return offset < self._latest.get(short, -1)


def _short(key: bytes) -> bytes:
    return b"#" + blake2b(key).digest()
