"""What commits leave a client, by the requests that it sends."""

from __future__ import annotations

from raylog.actors.simulation.properties import Checks, Property
from raylog.client.cluster import TopicPartition
from raylog.simulation.history import GroupHistory
from raylog.wire.api import ApiKey
from raylog.wire.frame import LENGTH_BYTES, decode_request, decode_request_header
from raylog.wire.messages.offset_commit import OffsetCommitRequest

_API_KEY_BYTES = 2


class CommitWatch:
    """Looks at one member's OffsetCommit requests."""

    def __init__(self, checks: Checks, group: GroupHistory, topic: str, label: str) -> None:
        """`topic` is the one that the group reads."""
        self._checks = checks
        self._group = group
        self._topic = topic
        self._label = label
        self._last: dict[TopicPartition, int] = {}

    def moved(self, key: TopicPartition) -> None:
        """The position of a partition is another one: it may be smaller."""
        self._last.pop(key, None)

    def sent(self, frame: bytes) -> None:
        """A request leaves the client."""
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
                last = self._last.get(key, offset)
                hold(Property.COMMITS_IN_ORDER, offset >= last, self._label, key, last, offset)
                self._last[key] = offset
                group.ask(key, offset)
