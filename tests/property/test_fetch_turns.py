"""Fetch sessions of replicas with any sizes: everything is read and every partition gets a turn."""

from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.common_messages import TopicId
from raylog.actors.replica.messages import FetchAsk, FetchedPartition, Interest
from raylog.actors.replica.rules.sessions import FetchSession

T = TopicId(b"t" * 16)
PARTITION_BYTES = 100
Logs = list[list[int]]
"""By partition, the sizes of its batches. An offset counts batches."""


class Fetcher:
    """Fetches as a gateway does, and advances past what it got."""

    def __init__(self, logs: Logs, max_bytes: int) -> None:
        self.logs = logs
        self.max_bytes = max_bytes
        self.session = FetchSession(1)
        self.offsets = [0] * len(logs)

    def fetch(self, changed: list[int], *, complete: bool) -> list[int]:
        """Partitions that had records in an answer."""
        session = self.session
        session.asked(FetchAsk(1, False, complete, 0, self.max_bytes, 1, True, [], []))
        for one in changed:
            session.news[
                session.watch(Interest(T, one, self.offsets[one], PARTITION_BYTES, -1, -1))
            ] = None
        if not session.collect(self.read):
            return []
        served = [part for part in session.take_found() if part.length]
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


SIZES = st.integers(1, 3 * PARTITION_BYTES)


@given(st.lists(st.lists(SIZES, max_size=8), min_size=1, max_size=5), st.integers(1, 400))
def test_partitions_are_read_completely_and_in_fair_turns(logs: Logs, max_bytes: int) -> None:
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
