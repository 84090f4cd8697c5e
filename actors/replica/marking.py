"""Transaction markers: what one coordinator request writes, and each marker's outcome."""

from __future__ import annotations

from typing import Any

from raylog.actors.replica.messages import ProduceAnswer
from raylog.actors.runtime.base import LinkRequest
from raylog.actors.transaction.messages import Marker, by_marker
from raylog.wire.control import EndTxnMarker, encode_end_txn_marker
from raylog.wire.errors import ErrorCode


class MarkerCodes:
    """Answers with error codes: one list per marker, in the order of its partitions."""

    def __init__(self, request: LinkRequest, markers: list[Marker]) -> None:
        self._request = request
        self._markers = markers
        self.count = sum(len(marker.partitions) for marker in markers)
        if not self.count:
            self.reply([])

    def reply(self, header: Any) -> None:
        """Record the outcomes of all writes; a failed one has code and message."""
        codes = [
            ErrorCode.NONE if isinstance(answer, ProduceAnswer) else answer[0] for answer in header
        ]
        self._request.reply(by_marker(self._markers, codes))


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
