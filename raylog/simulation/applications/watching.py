"""Checks the commits that clients send."""

from __future__ import annotations

from raylog.client.cluster import TopicPartition
from raylog.simulation.applications.history import GroupHistory
from raylog.simulation.properties import Checks, Property
from raylog.wire.api import ApiKey
from raylog.wire.frame import LENGTH_BYTES, decode_request, decode_request_header
from raylog.wire.messages.offset_commit import OffsetCommitRequest

_API_KEY_BYTES = 2


class CommitWatch:
    """Checks one member's OffsetCommit requests."""

    def __init__(self, checks: Checks, group: GroupHistory, topic: str, label: str) -> None:
        """`topic` is the topic that the group reads."""
        self._checks = checks
        self._group = group
        self._topic = topic
        self._label = label
        self._last: dict[TopicPartition, tuple[int, int]] = {}
        """The generation in which the position was last reset, and the last offset since then."""

    def moved(self, key: TopicPartition, generation: int) -> None:
        """Accept a smaller offset next: the position of the partition was reset.

        A commit of an earlier generation that is sent again is refused, whatever its offset.
        """
        self._last[key] = generation, -1

    def sent(self, frame: bytes) -> None:
        """Check a request that the client sends."""
        api_key = frame[LENGTH_BYTES : LENGTH_BYTES + _API_KEY_BYTES]
        if int.from_bytes(api_key, "big") != ApiKey.OFFSET_COMMIT:
            return
        header, position = decode_request_header(frame, LENGTH_BYTES)
        request = decode_request(header, frame, position)
        assert isinstance(request, OffsetCommitRequest), "the header says so"
        hold, group = self._checks.hold, self._group
        for topic in request.topics:
            for one in topic.partitions:
                key = TopicPartition(self._topic, one.partition_index)
                offset = one.committed_offset
                group.ask(key, offset)
                since, last = self._last.get(key, (-1, -1))
                if not 0 <= request.generation_id_or_member_epoch < since:
                    hold(Property.COMMITS_IN_ORDER, offset >= last, self._label, key, last, offset)
                    self._last[key] = since, offset
