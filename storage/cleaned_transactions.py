"""What the cleaner knows of transactions while it walks over a log (KIP-98, KIP-534).

| batch | what becomes of it |
|---|---|
| of an aborted transaction | its records go |
| of a committed one, or of none | its records are judged by their keys |
| marker, with batches of its transaction before it | stays |
| marker, all batches of its transaction gone | stays for `delete.retention.ms`, then goes |

No undecided transaction reaches into what is cleaned: that ends at the last stable offset.
"""

from collections import deque
from collections.abc import Iterable

from raylog.storage.index import AbortedTransaction
from raylog.storage.producers import marker_in
from raylog.wire.records import BatchHeader


class CleanedTransactions:
    """Told of every batch of a part of the log, in order; `aborted` are those of that part."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._to_come = deque(sorted(aborted, key=lambda each: each.first_offset))
        self._aborted: dict[int, AbortedTransaction] = {}  # open ones, by producer id
        self._seen: set[int] = set()  # producers of `_aborted` that have batches before the marker
        self._committed: set[int] = set()  # producers with batches whose marker is to come
        self.kept: list[AbortedTransaction] = []
        """Aborted transactions whose markers stay: the index of what was cleaned."""

    def is_discarded(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether a data batch was aborted, or a marker has nothing left to mark."""
        if not header.is_transactional and not header.is_control:
            return False
        while self._to_come and self._to_come[0].first_offset <= header.last_offset:
            transaction = self._to_come.popleft()
            self._aborted.setdefault(transaction.producer_id, transaction)
        if header.is_control:
            return self._ends(header, batch)
        if header.producer_id in self._aborted:
            self._seen.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def _ends(self, header: BatchHeader, batch: memoryview) -> bool:
        if header.record_count == 0:
            return True  # emptied when it was cleaned before
        marker = marker_in(batch)
        if marker is None:
            return False
        producer_id = header.producer_id
        if marker.is_commit:
            nothing_left = producer_id not in self._committed
            self._committed.discard(producer_id)
            return nothing_left
        transaction = self._aborted.pop(producer_id, None)
        if transaction is None or producer_id not in self._seen:
            return True
        self._seen.discard(producer_id)
        self.kept.append(transaction)
        return False
