"""Markers of transactions: what one request of a coordinator writes, and what became of each."""

from __future__ import annotations

from itertools import islice
from typing import Any

from raylog.actors.replica.api import ProduceAnswer
from raylog.actors.runtime.base import LinkRequest
from raylog.actors.transaction.api import Marker
from raylog.wire.control import EndTxnMarker, encode_end_txn_marker
from raylog.wire.errors import ErrorCode


class MarkerCodes:
    """Answers with error codes: a list for each marker, in the order of its partitions."""

    def __init__(self, request: LinkRequest, counts: list[int]) -> None:
        self._request = request
        self._counts = counts
        self.count = sum(counts)
        if not self.count:
            self.reply([])

    def reply(self, header: Any) -> None:
        """Take the answers of all writes; of one that failed, code and message."""
        codes = iter(
            [
                int(ErrorCode.NONE) if isinstance(answer, ProduceAnswer) else answer[0]
                for answer in header
            ]
        )
        self._request.reply([list(islice(codes, count)) for count in self._counts])


def marker_batch(marker: Marker, now_ms: int) -> bytes:
    """The control batch that ends a transaction."""
    return bytes(
        encode_end_txn_marker(
            EndTxnMarker(marker.committed, marker.coordinator_epoch),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp_ms=now_ms,
        )
    )
