"""What the sink writes beside the offsets of a transaction: which batch of which query it was.

The mark travels as the metadata of TxnOffsetCommit, in the transaction itself: it is there if and
only if the batch is. Brokers keep at most 4,096 bytes of metadata (`offset.metadata.max.bytes`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass

METADATA_BYTES_MAX = 4_096


class MarkTooLong(ValueError):
    """A query id is so long that no broker keeps the mark."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One micro-batch; ids of batches rise within a query."""

    query_id: str
    batch_id: int

    def encode(self) -> str:
        """The mark as metadata; raises MarkTooLong."""
        text = json.dumps({"query": self.query_id, "batch": self.batch_id}, ensure_ascii=False)
        size = len(text.encode())
        if size > METADATA_BYTES_MAX:
            raise MarkTooLong(
                f"query id {self.query_id[:40]!r}... makes {size} bytes of metadata, "
                f"expected at most {METADATA_BYTES_MAX}"
            )
        return text

    def covers(self, other: Mark) -> bool:
        """Whether `other` is written if this one is the newest mark."""
        return self.query_id == other.query_id and self.batch_id >= other.batch_id


def read_mark(metadata: str | None) -> Mark | None:
    """The mark in a committed offset's metadata; None if it is not the sink's."""
    try:
        found = json.loads(metadata or "")
    except ValueError:
        return None
    match found:
        case {"query": str(query_id), "batch": int(batch_id)}:
            return Mark(query_id, batch_id)
        case _:
            return None
