"""Passes transaction markers to the shards, and returns their outcomes."""

from __future__ import annotations

from itertools import count

from raylog.actors.coordination.rules.joining import Together
from raylog.actors.coordination.shards import LedShards
from raylog.actors.group.hosting import ShardHost
from raylog.actors.runtime.base import LinkRequest
from raylog.actors.transaction.messages import ANY_LEADER_EPOCH, MarkedPartition, Marker, by_marker
from raylog.wire.errors import ErrorCode


def take_markers(request: LinkRequest, shards: LedShards[ShardHost]) -> None:
    """Handle COMPLETE_TRANSACTION: answer when every marker is committed or has failed.

    Partitions that are not led here, or are loading, get NOT_LEADER_OR_FOLLOWER, as in Apache
    Kafka.
    """
    markers = [Marker.of(plain) for plain in request.header]
    places = count()
    together = Together(
        sum(len(marker.partitions) for marker in markers),
        lambda codes: request.reply(by_marker(markers, codes)),
    )
    for marker in markers:
        for where in marker.partitions:
            marked = together.part(next(places))
            host = shards.get(where.partition)
            if host is None or not _is_of(host, where):
                marked(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                host.end_transaction(marker, marked)


def _is_of(host: ShardHost, where: MarkedPartition) -> bool:
    """Whether a marker is for this topic id and, if given, this leader epoch."""
    if host.route.topic_id != where.topic_id:
        return False
    return where.leader_epoch in (ANY_LEADER_EPOCH, host.route.leader_epoch)
