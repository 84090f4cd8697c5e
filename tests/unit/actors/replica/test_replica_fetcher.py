"""Which of its leader's answers a follower accepts: those to its current request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from raylog.actors.replica.messages import REPLICATE, ReplicateAsk, ReplicatedPart
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.replica_fetcher import ReplicaFetcher
from raylog.wire.errors import ErrorCode, KafkaError
from tests.worlds.decorators import in_world
from tests.worlds.replica.actor import SETTINGS, ReplicaWorld, run_world
from tests.worlds.runtime import FakeLink
from tests.worlds.storage.logs import batch

FOLLOWER = 2


class _Unthrottled:
    follows = False


class _Followers:
    """Records the calls that the stream makes."""

    def __init__(self) -> None:
        self.noted: list[str] = []

    def refused(self, partition: Partition) -> None:
        self.noted.append("refused")

    def served(self, partition: Partition) -> None:
        self.noted.append("served")

    def truncate(self, partition: Partition, truncation: object, stream: ReplicaFetcher) -> None:
        self.noted.append("cut")

    def starts_later(self, partition: Partition, stream: ReplicaFetcher) -> None:
        self.noted.append("starts later")


def _stream(world: ReplicaWorld, link: FakeLink, followers: _Followers) -> ReplicaFetcher:
    fakes: Any = (link, followers, _Unthrottled())
    runtime: Any = world.nodes[FOLLOWER].runtime
    return ReplicaFetcher(runtime, SETTINGS, FOLLOWER, *fakes)


Befalls = Callable[[Partition], AbstractContextManager[int]]
"""Something that befalls a follower; gives the leader epoch that an answer has meanwhile."""


@contextmanager
def _moved(partition: Partition) -> Iterator[int]:
    yield partition.machine.leader_epoch - 1


@contextmanager
def _shortened(partition: Partition) -> Iterator[int]:
    partition.work.reserve(lambda: None)
    yield partition.machine.leader_epoch
    partition.work.release()


ANSWERS: dict[str, dict[str, Any]] = {
    "records": {"high_watermark": 1, "log_end_offset": 1},
    "where the histories part": {"log_end_offset": 1, "diverging": [0, 0]},
    "an offset out of range": {"error_code": 1, "log_start_offset": 7, "log_end_offset": 9},
    "a refusal": {"error_code": 6},
}


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("befalls", [_moved, _shortened])
@in_world(run_world)
async def test_stale_answer_is_ignored(world: ReplicaWorld, *, befalls: Befalls, kind: str) -> None:
    """Of a leader epoch that is over, or while a thread shortens the log."""

    partition = world.replica(FOLLOWER)
    link, followers = FakeLink(), _Followers()
    stream = _stream(world, link, followers)
    stream.add([partition])
    records = bytes(batch(leader_epoch=partition.machine.leader_epoch))
    answer = ANSWERS[kind]
    if kind == "records":
        answer = {**answer, "length": len(records)}
    with befalls(partition) as epoch:
        late = ReplicatedPart(*partition.key, epoch, **{"error_code": 0, **answer})
        link.take(REPLICATE).reply([tuple(late)], records)
        assert followers.noted == []
        assert partition.log.log_end_offset == 0
        assert partition.high_watermark == 0

    current = late._replace(leader_epoch=partition.machine.leader_epoch)
    link.take(REPLICATE).reply([tuple(current)], records)
    expected = {"records": "served", "a refusal": "refused"}.get(kind, "cut")
    assert followers.noted == [expected]
    assert partition.log.log_end_offset == (kind == "records")


@in_world(run_world)
async def test_nothing_is_asked_for_a_leader_that_is_none_any_more(world: ReplicaWorld) -> None:
    """A log is shortened, or was refused records, and meanwhile another replica leads."""

    partition = world.replica(FOLLOWER)
    link = FakeLink()
    stream = _stream(world, link, _Followers())
    stream.add([partition])
    asked = len(link.requests)
    stream.resume(partition, partition.machine.leader_epoch - 1)
    assert len(link.requests) == asked
    stream.resume(partition, partition.machine.leader_epoch)
    assert len(link.requests) == asked + 1


@in_world(run_world, partitions=2)
async def test_the_leader_hears_whom_nobody_follows_any_more(world: ReplicaWorld) -> None:
    """Once; and not of a partition that is followed again before it could be told."""

    first, second = world.replica(FOLLOWER, 0), world.replica(FOLLOWER, 1)
    link = FakeLink()
    stream = _stream(world, link, _Followers())
    stream.add([first, second])
    stream.remove(first)
    stream.resume(second, second.machine.leader_epoch)
    asked = ReplicateAsk(*link.requests[-1].header)
    assert asked.forgotten == [first.key]
    assert [change[1] for change in asked.changes] == [1]
    stream.resume(second, second.machine.leader_epoch)
    assert ReplicateAsk(*link.requests[-1].header).forgotten == []
    stream.add([first])
    stream.remove(first)
    stream.add([first])
    asked = ReplicateAsk(*link.requests[-1].header)
    assert asked.forgotten == []
    assert [change[1] for change in asked.changes] == [0]


@in_world(run_world)
async def test_a_leader_that_begins_behind_the_followers_end_is_asked_again_a_little_later(
    world: ReplicaWorld,
) -> None:
    """Of records that are gone there it has none: it is told so when it asks the next time."""

    partition = world.replica(FOLLOWER)
    link, followers = FakeLink(), _Followers()
    stream = _stream(world, link, followers)
    stream.add([partition])
    epoch = partition.machine.leader_epoch
    part = ReplicatedPart(*partition.key, epoch, 0, log_start_offset=5, log_end_offset=9)
    link.take(REPLICATE).reply([tuple(part)], b"")
    assert followers.noted[0] == "served"
    assert partition.log.log_start_offset == 0
    assert partition.is_behind
    (change,) = ReplicateAsk(*link.requests[-1].header).changes
    assert change.offset == 0, "at once: nothing has failed"


@in_world(run_world)
async def test_contradictory_out_of_range_answer_is_retried_after_a_pause(
    world: ReplicaWorld,
) -> None:
    """Out of range, it says, of an offset that it has: not at once, or both would never rest."""

    partition = world.replica(FOLLOWER)
    link, followers = FakeLink(), _Followers()
    stream = _stream(world, link, followers)
    stream.add([partition])
    epoch = partition.machine.leader_epoch
    part = ReplicatedPart(*partition.key, epoch, 1, log_start_offset=0, log_end_offset=9)
    link.take(REPLICATE).reply([tuple(part)], b"")
    assert followers.noted == []
    named = sum(len(ReplicateAsk(*one.header).changes) for one in link.requests)
    await world.pass_ms(SETTINGS.backoff_ms - 1)
    assert sum(len(ReplicateAsk(*one.header).changes) for one in link.requests) == named
    await world.pass_ms(1)
    assert sum(len(ReplicateAsk(*one.header).changes) for one in link.requests) == named + 1


@in_world(run_world)
async def test_the_leader_hears_of_a_log_start_when_it_is_durable(world: ReplicaWorld) -> None:
    """Before that a crash brings deleted records back, and DeleteRecords was answered."""

    partition = world.replica(FOLLOWER)
    written = world.produce(1, batch(5))
    await world.pass_ms(60)
    await written
    link = FakeLink()
    stream = _stream(world, link, _Followers())
    partition.log.delete_records_to(3)
    stream.add([partition])
    (change,) = ReplicateAsk(*link.requests[-1].header).changes
    assert (change.offset, change.log_start_offset) == (5, 0)


def _named(link: FakeLink) -> list[list[int]]:
    """The partitions that each request names."""
    return [[change[1] for change in ReplicateAsk(*one.header).changes] for one in link.requests]


def _level(partition: Partition, **changes: Any) -> tuple[Any, ...]:
    """An answer that tells nothing new."""
    end = partition.log.log_end_offset
    part = ReplicatedPart(*partition.key, partition.machine.leader_epoch, 0, log_end_offset=end)
    return tuple(part._replace(**changes))


@in_world(run_world, partitions=2)
async def test_one_request_at_least_waits_at_the_leader_and_no_more_than_there_is_to_say(
    world: ReplicaWorld,
) -> None:
    first, second = world.replica(FOLLOWER, 0), world.replica(FOLLOWER, 1)
    link = FakeLink()
    stream = _stream(world, link, _Followers())
    stream.add([first])
    stream.add([second])
    assert _named(link) == [[0], [1]]
    link.take().reply([], b"")
    assert _named(link) == [[0], [1]], "another one still waits"
    link.take().reply([], b"")
    assert _named(link) == [[0], [1], []]
    data = bytes(batch(leader_epoch=second.machine.leader_epoch))
    link.take().reply([_level(second, length=len(data), log_end_offset=1)], data)
    assert _named(link) == [[0], [1], [], [1]]


@in_world(run_world, partitions=2)
async def test_a_link_over_which_nobody_follows_any_more_is_closed_at_its_next_answer(
    world: ReplicaWorld,
) -> None:
    first, second = world.replica(FOLLOWER, 0), world.replica(FOLLOWER, 1)
    link = FakeLink()
    stream = _stream(world, link, _Followers())
    stream.add([first, second])
    stream.remove(first)
    link.take().reply([], b"")
    assert link.is_open
    stream.remove(second)
    assert link.is_open
    link.take().reply([], b"")
    assert not link.is_open


@in_world(run_world)
async def test_a_process_that_does_not_understand_the_follower_loses_its_link(
    world: ReplicaWorld,
) -> None:
    partition = world.replica(FOLLOWER)
    link = FakeLink()
    stream = _stream(world, link, _Followers())
    stream.add([partition])
    link.take().fail(KafkaError("it is not understood"))
    assert not link.is_open
    assert stream.end() == [partition]
    assert stream.end() == []
    asked = len(link.requests)
    stream.resume(partition, partition.machine.leader_epoch)
    assert len(link.requests) == asked, "it is followed over this link no more"


@in_world(run_world, partitions=2)
async def test_removing_an_unfollowed_partition_forgets_nothing(world: ReplicaWorld) -> None:
    first, second = world.replica(FOLLOWER, 0), world.replica(FOLLOWER, 1)
    link = FakeLink()
    stream = _stream(world, link, _Followers())
    stream.add([first])
    stream.remove(second)
    stream.remove(first)
    stream.remove(first)
    stream.add([second])
    assert ReplicateAsk(*link.requests[-1].header).forgotten == [first.key]
    assert _named(link) == [[0], [1]]


@in_world(run_world, partitions=4)
async def test_each_partition_of_an_answer_gets_its_own_records(world: ReplicaWorld) -> None:
    """Also behind those of one that is not followed any more, and behind one without records."""

    partitions = [world.replica(FOLLOWER, index) for index in range(4)]
    link = FakeLink()
    stream = _stream(world, link, _Followers())
    stream.add(partitions)
    data, parts = b"", []
    for count, partition in enumerate(partitions):
        epoch = partition.machine.leader_epoch
        records = bytes(batch(count, leader_epoch=epoch)) if count else b""
        parts.append(_level(partition, length=len(records), log_end_offset=count))
        data += records
    stream.remove(partitions[1])
    link.take().reply(parts, data)
    assert [one.log.log_end_offset for one in partitions] == [0, 0, 2, 3]
    assert _named(link)[1:] == [[2, 3]]


@pytest.mark.parametrize(("leaders_end", "is_behind"), [(1, False), (2, True)])
@in_world(run_world)
async def test_a_follower_is_behind_where_the_leader_has_more_than_it_sent(
    world: ReplicaWorld, *, leaders_end: int, is_behind: bool
) -> None:
    partition = world.replica(FOLLOWER)
    partition.is_behind = not is_behind
    link, followers = FakeLink(), _Followers()
    stream = _stream(world, link, followers)
    stream.add([partition])
    data = bytes(batch(leader_epoch=partition.machine.leader_epoch))
    answer = _level(partition, length=len(data), log_end_offset=leaders_end, high_watermark=1)
    link.take().reply([answer], data)
    assert (partition.log.log_end_offset, partition.high_watermark) == (1, 1)
    assert partition.is_behind == is_behind
    assert followers.noted == ["served"]


@pytest.mark.parametrize(
    ("leaders_start", "start", "noted", "asks_at_once"),
    [
        (0, 0, ["served"], False),
        (3, 3, ["served", "starts later"], True),
        (5, 5, ["served", "starts later"], True),
        (7, 5, ["served", "starts later"], True),
    ],
)
@in_world(run_world)
async def test_a_log_begins_where_the_leaders_does_as_far_as_there_are_records(
    world: ReplicaWorld, *, leaders_start: int, start: int, noted: list[str], asks_at_once: bool
) -> None:
    written = world.produce(1, batch(5))
    await world.pass_ms(60)
    await written
    partition = world.replica(FOLLOWER)
    link, followers = FakeLink(), _Followers()
    stream = _stream(world, link, followers)
    stream.add([partition])
    link.take().reply([_level(partition, log_start_offset=leaders_start)], b"")
    assert partition.log.log_start_offset == start
    assert followers.noted == noted
    assert _named(link)[1:] == [[0] if asks_at_once else []]


@in_world(run_world)
async def test_a_log_start_that_is_the_leaders_but_not_durable_is_made_so(
    world: ReplicaWorld,
) -> None:
    written = world.produce(1, batch(5))
    await world.pass_ms(60)
    await written
    partition = world.replica(FOLLOWER)
    partition.log.delete_records_to(3)
    link, followers = FakeLink(), _Followers()
    stream = _stream(world, link, followers)
    stream.add([partition])
    link.take().reply([_level(partition, log_start_offset=3)], b"")
    assert followers.noted == ["served", "starts later"]
    assert _named(link)[1:] == [[]], "the leader hears of it once it is durable"


@in_world(run_world)
async def test_damaged_records_are_asked_for_again_after_a_pause_and_not_before(
    world: ReplicaWorld,
) -> None:
    partition = world.replica(FOLLOWER)
    link, followers = FakeLink(), _Followers()
    stream = _stream(world, link, followers)
    stream.add([partition])
    data = bytearray(batch(leader_epoch=partition.machine.leader_epoch))
    data[-1] ^= 1
    answer = _level(partition, length=len(data), log_end_offset=1, high_watermark=1)
    link.take().reply([answer], bytes(data))
    assert (partition.log.log_end_offset, partition.high_watermark) == (0, 0)
    assert _named(link)[1:] == [[]]
    await world.pass_ms(SETTINGS.backoff_ms - 1)
    assert _named(link)[1:] == [[]]
    await world.pass_ms(1)
    assert _named(link)[1:] == [[], [0]]


@in_world(run_world)
async def test_a_follower_that_is_fenced_waits_for_the_metadata(world: ReplicaWorld) -> None:
    """Whoever is refused for another reason looks for the leader again."""

    partition = world.replica(FOLLOWER)
    link, followers = FakeLink(), _Followers()
    stream = _stream(world, link, followers)
    stream.add([partition])
    code = int(ErrorCode.FENCED_LEADER_EPOCH)
    link.take().reply([_level(partition, error_code=code)], b"")
    assert followers.noted == []
    assert _named(link)[1:] == [[]], "it is not asked for again"
    code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    link.take().reply([_level(partition, error_code=code)], b"")
    assert followers.noted == ["refused"]


@in_world(run_world, partitions=2)
async def test_partition_refused_after_its_records_is_forgotten(world: ReplicaWorld) -> None:
    first, second = world.replica(FOLLOWER, 0), world.replica(FOLLOWER, 1)
    link, followers = FakeLink(), _Followers()
    stream = _stream(world, link, followers)
    followers.refused = stream.remove  # type: ignore[method-assign]  # as in a process
    stream.add([first, second])
    data = bytes(batch(leader_epoch=first.machine.leader_epoch))
    code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    answer = _level(first, length=len(data), log_end_offset=1)
    link.take().reply([answer, _level(first, error_code=code)], data)
    assert first.log.log_end_offset == 1
    assert _named(link)[1:] == [[]]
    assert ReplicateAsk(*link.requests[-1].header).forgotten == [first.key]


@in_world(run_world)
async def test_claims_of_the_leader_count_from_where_they_go_beyond_what_was_held(
    world: ReplicaWorld,
) -> None:
    partition = world.replica(FOLLOWER)
    link = FakeLink()
    stream = _stream(world, link, _Followers())
    stream.add([partition])
    ends = []
    for offset, claims_end in enumerate([0, 1, 3, 3]):
        epoch = partition.machine.leader_epoch
        data = bytes(batch(offset=offset, leader_epoch=epoch))
        answer = _level(partition, length=len(data), claims_end=claims_end)
        link.take().reply([answer], data)
        claims = partition.log.state.claims
        ends.append(None if claims is None else claims.end)
    assert ends == [None, None, 3, 3]
