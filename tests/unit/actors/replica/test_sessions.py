"""Replica-side fetch sessions: requests check changes only; nothing is repeated or lost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from raylog.actors.common_messages import PartitionKey, TopicId
from raylog.actors.replica.messages import FetchAsk, FetchedPartition, Interest
from raylog.actors.replica.rules.sessions import LOOKS_MAX, FetchSession

T = TopicId(b"t" * 16)


class Logs:
    """Partitions with `available[key]` bytes from the fetcher's offset on."""

    def __init__(self, **available: int) -> None:
        self.available = {int(name[1:]): count for name, count in available.items()}
        self.errors: dict[int, int] = {}
        self.diverging: dict[int, list[int]] = {}
        self.reads: list[int] = []

    def read(
        self, interest: Interest, room: int, at_least_one: bool, isolation: int
    ) -> FetchedPartition:
        self.reads.append(interest.partition)
        there = self.available.get(interest.partition, 0)
        length = min(there, room) or (there if at_least_one else 0)
        error = self.errors.get(interest.partition, 0)
        end = interest.offset + bool(there)
        return FetchedPartition(
            T, interest.partition, error, end, end, 0, "s", 0, 0 if error else length, None,
            self.diverging.get(interest.partition),
        )  # fmt: skip


def ask(
    *partitions: int,
    wait: bool = True,
    min_bytes: int = 1,
    max_bytes: int = 1000,
    complete: bool = False,
    forgotten: Sequence[PartitionKey] = (),
    offset: int = 0,
) -> FetchAsk:
    changes = [Interest(T, p, offset, 100, -1, -1) for p in partitions]
    return FetchAsk(1, False, complete, 0, max_bytes, min_bytes, wait, changes, list(forgotten))


def change(session: FetchSession, asked: FetchAsk) -> None:
    """As a request that waits here does."""
    session.asked(asked)
    for topic_id, index in asked.forgotten:
        session.forget((topic_id, index))
    for interest in asked.changes:
        session.news[session.watch(interest)] = None


def begun(logs: Logs, asked: FetchAsk) -> tuple[FetchSession, bool]:
    session = FetchSession(1)
    change(session, asked)
    return session, session.collect(logs.read)


def answered(session: FetchSession) -> list[tuple[int, int]]:
    return [(part.partition, part.length) for part in session.take_found()]


def test_data_that_is_there_is_an_answer_at_once() -> None:
    session, ready = begun(Logs(p0=50), ask(0, 1))
    assert ready
    assert answered(session) == [(0, 50), (1, 0)]


def test_nothing_there_waits_and_the_next_look_costs_only_the_news() -> None:
    logs = Logs()
    session, ready = begun(logs, ask(*range(100)))
    assert not ready
    logs.reads.clear()
    logs.available[7] = 10
    session.news[(T, 7)] = None
    assert session.collect(logs.read)
    assert logs.reads == [7]
    answer = answered(session)
    assert (7, 10) in answer
    assert len(answer) == 100


def test_records_stay_news_until_the_fetcher_moves_past_them() -> None:
    logs = Logs(p0=50)
    session, _ = begun(logs, ask(0))
    answered(session)
    change(session, ask())
    assert session.collect(logs.read)
    assert answered(session) == [(0, 50)]
    logs.available[0] = 0
    change(session, ask(0, offset=5))
    assert not session.collect(logs.read)


def test_min_bytes_are_summed_over_partitions_and_looks() -> None:
    logs = Logs(p0=40)
    session, ready = begun(logs, ask(0, 1, min_bytes=80))
    assert not ready
    logs.available[1] = 30
    session.news[(T, 1)] = None
    assert not session.collect(logs.read)
    logs.available[0] = 60
    session.news[(T, 0)] = None
    assert session.collect(logs.read)


def test_an_error_is_an_answer_at_once() -> None:
    logs = Logs()
    logs.errors[1] = 6
    _, ready = begun(logs, ask(0, 1, min_bytes=1000))
    assert ready


def test_where_a_fetcher_must_cut_its_log_is_an_answer_at_once() -> None:
    logs = Logs()
    logs.diverging[1] = [3, 7]
    _, ready = begun(logs, ask(0, 1, min_bytes=1000))
    assert ready


def test_reported_error_does_not_complete_the_next_answer() -> None:
    logs = Logs()
    logs.errors[1] = 6
    session, _ = begun(logs, ask(0, 1))
    answered(session)
    logs.errors.clear()
    change(session, ask(0, 1))
    assert not session.collect(logs.read)


@pytest.mark.parametrize("before", [True, False])
def test_each_request_says_whether_it_waits(before: bool) -> None:
    session, _ = begun(Logs(), ask(0, wait=before))
    assert session.waits == before
    answered(session)
    change(session, ask(wait=not before))
    assert session.waits == (not before)


@pytest.mark.parametrize("complete", [True, False])
def test_a_fetch_of_very_many_partitions_is_looked_at_in_parts(complete: bool) -> None:
    """A complete answer waits for all of them; another one goes with what is found."""
    logs = Logs(p0=50)
    count = 2 * LOOKS_MAX + 1
    session, ready = begun(logs, ask(*range(count), complete=complete))
    assert (len(logs.reads), session.has_more, ready) == (LOOKS_MAX, True, not complete)
    session.collect(logs.read)
    assert (len(logs.reads), session.has_more) == (2 * LOOKS_MAX, True)
    assert session.collect(logs.read)
    assert (len(logs.reads), session.has_more) == (count, False)
    assert logs.reads == list(range(count)), "each once, in turn"
    answer = answered(session)
    assert len(answer) == count


def test_as_many_partitions_as_are_looked_at_in_one_go_leave_no_more() -> None:
    session, _ = begun(Logs(), ask(*range(LOOKS_MAX)))
    assert not session.has_more


def test_max_bytes_leave_the_rest_for_the_next_answer_in_turn() -> None:
    logs = Logs(p0=60, p1=60, p2=60)
    session, _ = begun(logs, ask(0, 1, 2, max_bytes=100))
    assert answered(session) == [(0, 60), (1, 40)]
    change(session, ask(max_bytes=100))
    session.collect(logs.read)
    answer = answered(session)
    assert answer[0] == (2, 60)


def test_partition_without_room_is_looked_at_only_once_more() -> None:
    logs = Logs(p0=60, p1=60, p2=60)
    session, _ = begun(logs, ask(0, 1, 2, max_bytes=100))
    answered(session)
    logs.available.clear()
    for _ in range(2):
        change(session, ask(0, 1, 2, offset=5))
        session.collect(logs.read)
        answered(session)
    logs.reads.clear()
    change(session, ask())
    session.collect(logs.read)
    assert logs.reads == []


def test_a_complete_answer_names_every_partition() -> None:
    logs = Logs(p0=100, p1=60, p2=60)
    session, _ = begun(logs, ask(0, 1, 2, max_bytes=100, complete=True))
    assert answered(session) == [(0, 100), (1, 0), (2, 0)]
    change(session, ask(0, offset=9, max_bytes=100))
    assert (T, 1) in session.news, "what did not fit is still news"


def test_the_first_batch_may_exceed_the_bytes() -> None:
    class OneBatch(Logs):
        def read(
            self, interest: Interest, room: int, at_least_one: bool, isolation: int
        ) -> FetchedPartition:
            length = 500 if at_least_one else 0
            return FetchedPartition(T, interest.partition, 0, 9, 9, 0, "s", 0, length, None, None)

    session, _ = begun(OneBatch(), ask(0, 1, max_bytes=100))
    assert answered(session) == [(0, 500)]


def test_a_forgotten_partition_is_not_looked_at() -> None:
    logs = Logs(p0=10, p1=10)
    session, _ = begun(logs, ask(0, 1))
    answered(session)
    logs.reads.clear()
    change(session, ask(forgotten=[(T, 0)]))
    session.collect(logs.read)
    assert answered(session) == [(1, 10)]


class Batches(Logs):
    """Partitions of batches with these sizes, from the fetcher's offset on: one offset each."""

    def __init__(self, **batches: list[int]) -> None:
        super().__init__()
        self.batches = {int(name[1:]): sizes for name, sizes in batches.items()}

    def read(
        self, interest: Interest, room: int, at_least_one: bool, isolation: int
    ) -> FetchedPartition:
        self.reads.append(interest.partition)
        room = min(room, interest.max_bytes)
        sizes = self.batches[interest.partition]
        length = 0
        for size in sizes[interest.offset :]:
            if length + size > room and (length or not at_least_one):
                break
            length += size
        return FetchedPartition(
            T, interest.partition, 0, len(sizes), len(sizes), 0, "s", 0, length, None, None
        )


@pytest.mark.parametrize("complete", [True, False])
def test_a_batch_that_does_not_fit_behind_others_is_first_in_the_next_answer(
    complete: bool,
) -> None:
    logs = Batches(p0=[17], p1=[50], p2=[20])
    session, ready = begun(logs, ask(0, 1, 2, max_bytes=60, complete=complete))
    assert ready
    assert answered(session) == [(0, 17), (1, 0), (2, 20)]
    change(session, ask(0, 2, offset=1, max_bytes=60))
    assert session.collect(logs.read)
    assert answered(session) == [(1, 50), (0, 0), (2, 0)]


def test_partition_that_did_not_fit_is_no_news_after_it_was_sent() -> None:
    logs = Batches(p0=[17], p1=[50], p2=[20])
    session, _ = begun(logs, ask(0, 1, 2, max_bytes=60))
    answered(session)
    for moved in ((0, 2), (1,)):
        change(session, ask(*moved, offset=1, max_bytes=60))
        session.collect(logs.read)
        answered(session)
    logs.reads.clear()
    change(session, ask())
    session.collect(logs.read)
    assert logs.reads == []


def test_a_batch_above_its_partitions_bytes_comes_alone() -> None:
    logs = Batches(p0=[17], p1=[500])
    session, _ = begun(logs, ask(0, 1))
    assert answered(session) == [(0, 17), (1, 0)]
    change(session, ask(0, offset=1))
    assert session.collect(logs.read)
    assert answered(session) == [(1, 500), (0, 0)]


def test_more_bytes_than_fit_are_not_waited_for() -> None:
    logs = Batches(p0=[17], p1=[50])
    _, ready = begun(logs, ask(0, 1, min_bytes=60, max_bytes=60))
    assert ready


def test_exhausted_partition_is_not_read_again() -> None:
    logs = Batches(p0=[17], p1=[])
    session, _ = begun(logs, ask(0, 1))
    answered(session)
    assert list(session.news) == [(T, 0)]


def test_only_stable_records_count_toward_the_room_of_an_answer() -> None:
    class Open(Batches):
        def read(
            self, interest: Interest, room: int, at_least_one: bool, isolation: int
        ) -> FetchedPartition:
            part = super().read(interest, room, at_least_one, isolation)
            return part._replace(last_stable_offset=0, length=part.length * (part.partition == 0))

    asked = ask(0, 1, max_bytes=60)
    session, _ = begun(Open(p0=[17], p1=[50]), asked._replace(isolation_level=1))
    answered(session)
    assert list(session.news) == [(T, 0)]
