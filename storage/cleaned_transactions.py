"""Transactions as the cleaner sees them while it walks through a log (KIP-98, KIP-534).

| batch | what happens to it |
|---|---|
| of an aborted transaction | its records are removed |
| of a committed transaction, or of none | its records are judged by their keys |
| marker, with batches of its transaction before it | kept |
| marker, all batches of its transaction gone | kept for `delete.retention.ms`, then removed |

Cleaning ends at the last stable offset, so no undecided transaction is part of it.
"""

from collections import deque
from collections.abc import Iterable

from raylog.storage.index import AbortedTransaction
from raylog.storage.producers import marker_in
from raylog.wire.records import BatchHeader


class CleanedTransactions:
    """Sees every batch of a part of the log, in order; `aborted` are its aborted transactions."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._to_come = deque(sorted(aborted, key=lambda each: each.first_offset))
        self._aborted: dict[int, AbortedTransaction] = {}  # open ones, by producer id
        self._seen: set[int] = set()  # producers of `_aborted` with batches seen before the marker
        self._committed: set[int] = set()  # producers with batches whose marker has not been seen
        self.kept: list[AbortedTransaction] = []
        """Aborted transactions whose markers are kept: they go into the cleaned segment's index."""

    def is_discarded(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether a data batch was aborted, or a marker has no batches left."""
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
            return True  # emptied by an earlier cleaning
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
