"""The latest offset of each key, by which compaction drops earlier records."""

from collections.abc import Iterable
from hashlib import blake2b

from raylog.wire.bulk import BulkRecord

_WHOLE_KEY_BYTES = 64
"""Longer keys are stored as a digest, which is one byte longer than any key stored whole."""
_ENTRY_BYTES = 200
"""Estimate for a key of about 50 bytes, its offset and their share of a dictionary just grown."""


class LatestOffsets:
    """Latest offsets of the keys in [start_offset, end_offset), as many as memory allows."""

    __slots__ = ("_latest", "_room", "end_offset", "start_offset")

    def __init__(self, start_offset: int, memory_bytes: int) -> None:
        self.start_offset = self.end_offset = start_offset
        self._latest: dict[bytes, int] = {}
        self._room = max(memory_bytes // _ENTRY_BYTES, 1)

    @property
    def is_full(self) -> bool:
        """Whether there is no room for further batches."""
        return len(self._latest) >= self._room

    def note(self, records: Iterable[BulkRecord]) -> None:
        """Record the keys of one batch's records."""
        latest = self._latest
        for offset, key, _, _ in records:
            if key is not None:
                latest[key if len(key) <= _WHOLE_KEY_BYTES else _short(key)] = offset

    def is_overtaken(self, offset: int, key: bytes) -> bool:
        """Whether a later record of the key is known."""
        short = key if len(key) <= _WHOLE_KEY_BYTES else _short(key)
        return offset < self._latest.get(short, -1)


def _short(key: bytes) -> bytes:
    return b"#" + blake2b(key).digest()
