"""Fetch sessions of replicas: whatever the sizes, all is read and everybody gets a turn."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.ports import TopicId
from raylog.actors.replica.api import FetchAsk, FetchedPartition, Interest
from raylog.actors.replica.sessions import FetchSession
from raylog.wire.errors import KafkaError

T = TopicId(b"t" * 16)
PARTITION_BYTES = 100
Logs = list[list[int]]
"""Of each partition the sizes of its batches; an offset counts batches."""


class Fetcher:
    """Asks as a gateway does, and moves past what it got."""

    def __init__(self, logs: Logs, max_bytes: int) -> None:
        self.logs = logs
        self.max_bytes = max_bytes
        self.session = FetchSession(once=False)
        self.offsets = [0] * len(logs)

    def fetch(self, changed: list[int], *, complete: bool) -> list[int]:
        """Partitions that had records in an answer."""
        changes = [Interest(T, one, self.offsets[one], PARTITION_BYTES, -1, -1) for one in changed]
        self.session.change(FetchAsk(1, False, complete, 0, self.max_bytes, 1, True, changes, []))
        self.session.parked = request = Parked()
        if not self.session.collect(self.read):
            return []
        self.session.answer()
        served = [part for part in request.answer if part.length]
        assert served, "an answer before its time has records"
        for part in served:
            self.offsets[part.partition] += part.position
        return [part.partition for part in served]

    def read(
        self, interest: Interest, room: int, at_least_one: bool, isolation: int
    ) -> FetchedPartition:
        sizes = self.logs[interest.partition]
        room, length, count = min(room, PARTITION_BYTES), 0, 0
        for size in sizes[interest.offset :]:
            if length + size > room and (length or not at_least_one):
                break
            length, count = length + size, count + 1
        end = len(sizes)
        return FetchedPartition(
            T, interest.partition, 0, end, end, 0, "s", count, length, None, None
        )


class Parked:
    """A link request that remembers its answer."""

    def __init__(self) -> None:
        self.peer, self.kind, self.header, self.payload = 1, "fetch", None, memoryview(b"")
        self.answer: list[FetchedPartition] = []

    def reply(self, header: Any, payload: Sequence[Any] = ()) -> None:
        self.answer = header

    def fail(self, failure: KafkaError) -> None:
        raise failure


SIZES = st.integers(1, 3 * PARTITION_BYTES)


@given(st.lists(st.lists(SIZES, max_size=8), min_size=1, max_size=5), st.integers(1, 400))
def test_all_is_read_and_nobody_waits_for_more_than_one_turn_of_the_others(
    logs: Logs, max_bytes: int
) -> None:
    fetcher = Fetcher(logs, max_bytes)
    waited = [0] * len(logs)
    served = fetcher.fetch(list(range(len(logs))), complete=True)
    while served:
        for one, sizes in enumerate(logs):
            waits = one not in served and fetcher.offsets[one] < len(sizes)
            waited[one] = waited[one] + 1 if waits else 0
            assert waited[one] < len(logs)
        served = fetcher.fetch(served, complete=False)
    assert fetcher.offsets == [len(sizes) for sizes in logs]
