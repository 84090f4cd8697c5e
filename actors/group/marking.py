"""Markers of transactions that wrote offsets: into the shards, and what became of them back."""

from __future__ import annotations

from functools import partial

from raylog.actors.coordination.led import LedShards
from raylog.actors.group.hosting import ShardHost
from raylog.actors.runtime.base import LinkRequest
from raylog.actors.transaction.api import ANY_LEADER_EPOCH, MarkedPartition, Marker
from raylog.wire.errors import ErrorCode


class _Outcomes:
    """Of the markers of one request: answered together, when the last of them is known."""

    def __init__(self, request: LinkRequest, markers: list[Marker]) -> None:
        self._request = request
        self._codes = [[0] * len(marker.partitions) for marker in markers]
        self._left = sum(len(marker.partitions) for marker in markers)
        self._answer_if_all_are_known()

    def settle(self, number: int, place: int, code: ErrorCode) -> None:
        """Note the outcome of one marker in one of its partitions."""
        self._codes[number][place] = int(code)
        self._left -= 1
        self._answer_if_all_are_known()

    def _answer_if_all_are_known(self) -> None:
        if not self._left:
            self._request.reply(self._codes)


def take_markers(request: LinkRequest, shards: LedShards[ShardHost]) -> None:
    """Serve COMPLETE_TRANSACTION: answer when every marker is below the high watermark, or failed.

    What is not led here, or is loading, is NOT_LEADER_OR_FOLLOWER, as in Apache Kafka.
    """
    markers = [Marker.of(plain) for plain in request.header]
    outcomes = _Outcomes(request, markers)
    for number, marker in enumerate(markers):
        for place, where in enumerate(marker.partitions):
            marked = partial(outcomes.settle, number, place)
            host = shards.get(where.partition)
            if host is None or not _is_of(host, where):
                marked(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                host.end_transaction(marker, marked)


def _is_of(host: ShardHost, where: MarkedPartition) -> bool:
    """Whether the marker is for this very topic and, if it says one, this leader epoch."""
    if host.route.topic_id != where.topic_id:
        return False
    return where.leader_epoch in (ANY_LEADER_EPOCH, host.route.leader_epoch)
