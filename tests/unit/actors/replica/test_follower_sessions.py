"""What a leader's process sends a fake follower, request by request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from raylog.actors.common_messages import OpenPartition, PartitionKey
from raylog.actors.replica.follower_sessions import FIGURES_MS
from raylog.actors.replica.messages import (
    DELETE_RECORDS,
    REPLICATE,
    ReplicaInterest,
    ReplicateAsk,
    ReplicatedPart,
)
from raylog.actors.runtime.deadlines import TICK_MS
from raylog.storage.log import Slice
from raylog.storage.reader import LogReader
from raylog.wire.errors import ErrorCode
from raylog.wire.records import iter_batches
from tests.worlds.decorators import in_world
from tests.worlds.replica.actor import ReplicaWorld, run_world
from tests.worlds.runtime import settle
from tests.worlds.storage.logs import batch

LEADER, FOLLOWER = 1, 9
BATCH = len(batch())
LONG_MS = 10_000
Answer = asyncio.Future[list[ReplicatedPart]]


class Played:
    """A fake follower's process: its requests and the answers."""

    def __init__(self, world: ReplicaWorld) -> None:
        self.world = world
        self.link = world.connect(world.nodes[LEADER].address)

    def interest(
        self, key: PartitionKey, offset: int = 0, *, last_epoch: int = -1, ahead: int = 0
    ) -> ReplicaInterest:
        epoch = self.world.metadata[key].leader_epoch + ahead
        return ReplicaInterest(*key, epoch, offset, last_epoch, 0, "played", 100 * BATCH)

    def ask(
        self,
        *changes: ReplicaInterest,
        wait_ms: int = LONG_MS,
        min_bytes: int = 1,
        max_bytes: int = 100 * BATCH,
        forgotten: Sequence[PartitionKey] = (),
    ) -> Answer:
        header = ReplicateAsk(
            FOLLOWER, wait_ms, min_bytes, max_bytes, list(changes), list(forgotten)
        )
        return asyncio.ensure_future(self._parts(header))

    async def _parts(self, header: ReplicateAsk) -> list[ReplicatedPart]:
        return [ReplicatedPart(*part) for part in await self.link.ask(REPLICATE, header)]


async def write(world: ReplicaWorld, partition: int = 0, batches: int = 1) -> None:
    written = world.produce(LEADER, *[batch() for _ in range(batches)], partition=partition)
    await world.pass_ms(1)
    await written


def lengths(asked: Answer) -> list[tuple[int, int]]:
    """Partitions and bytes of an answer."""
    assert asked.done(), "it should be answered by now"
    return [(part.partition, part.length) for part in asked.result()]


def records(asked: Answer) -> list[tuple[int, int]]:
    """The same of partitions with records."""
    return [(index, length) for index, length in lengths(asked) if length]


@pytest.mark.parametrize("max_bytes", [BATCH, 0])
@in_world(run_world, brokers=1, partitions=2)
async def test_records_beyond_max_bytes_come_with_the_next_answer(
    world: ReplicaWorld, *, max_bytes: int
) -> None:
    for index in range(2):
        await write(world, index)
    played = Played(world)
    interests = [played.interest(key) for key in world.keys]
    first = played.ask(*interests, max_bytes=max_bytes)
    await world.pass_ms(1)
    assert records(first) == [(0, BATCH)]
    second = played.ask(max_bytes=max_bytes)
    await world.pass_ms(1)
    assert records(second) == [(1, BATCH)]


@in_world(run_world, brokers=1, partitions=2)
async def test_records_below_min_bytes_wait_for_more(world: ReplicaWorld) -> None:
    played = Played(world)
    asked = played.ask(*[played.interest(key) for key in world.keys], min_bytes=2 * BATCH)
    await world.pass_ms(FIGURES_MS + 1)
    asked = played.ask(min_bytes=2 * BATCH) if asked.done() else asked
    await write(world, 1)
    await world.pass_ms(1)
    assert not asked.done()
    await write(world, 0)
    await world.pass_ms(1)
    assert lengths(asked) == [(1, BATCH), (0, BATCH)]


@in_world(run_world, brokers=1)
async def test_the_request_before_is_answered_when_another_one_comes(world: ReplicaWorld) -> None:
    played = Played(world)
    first = played.ask(*[played.interest(key) for key in world.keys])
    second = played.ask()
    await world.pass_ms(1)
    assert lengths(first) == []
    assert not second.done()
    await write(world)
    await world.pass_ms(1)
    assert lengths(second) == [(0, BATCH)]


@in_world(run_world, brokers=1)
async def test_nothing_is_reported_twice_before_the_follower_has_named_it_again(
    world: ReplicaWorld,
) -> None:
    played = Played(world)
    await write(world)
    first = played.ask(played.interest(world.keys[0]))
    await world.pass_ms(1)
    assert lengths(first) == [(0, BATCH)]
    second = played.ask()
    await write(world)
    await world.pass_ms(1)
    assert not second.done()
    third = played.ask(played.interest(world.keys[0], 1, last_epoch=0))
    await world.pass_ms(1)
    assert lengths(third) == [(0, BATCH)]


@in_world(run_world, brokers=1, partitions=2)
async def test_forgotten_partition_is_left_out_of_later_answers(world: ReplicaWorld) -> None:
    """Also where its figures were to be told, and its records."""

    played = Played(world)
    for index in range(2):
        await write(world, index)
    both = [played.interest(key, 1, last_epoch=0) for key in world.keys]
    played.ask(*both)
    await world.pass_ms(1)
    after = played.ask(forgotten=world.keys[:1])
    await world.pass_ms(FIGURES_MS + 1)
    assert [index for index, _ in lengths(after)] == [1]
    asked = played.ask(both[1])
    await write(world, 0)
    await world.pass_ms(FIGURES_MS + 1)
    assert not asked.done() or lengths(asked) == [(1, 0)]


@in_world(run_world, brokers=1)
async def test_a_follower_that_knows_a_newer_epoch_waits_until_the_leader_does(
    world: ReplicaWorld,
) -> None:
    """It is level: all that it is told then is how far records count."""

    played = Played(world)
    await write(world)
    early = played.ask(played.interest(world.keys[0], 1, last_epoch=0, ahead=1))
    await world.pass_ms(2 * FIGURES_MS)
    asked = played.ask() if early.done() else early
    assert not early.done() or early.result() == []
    await world.elect(LEADER)
    await world.pass_ms(FIGURES_MS + 1)
    assert lengths(asked) == [(0, 0)]
    (part,) = asked.result()
    assert (part.leader_epoch, part.high_watermark) == (1, 1)


@in_world(run_world, brokers=1)
async def test_a_partition_that_is_not_open_here_is_refused(world: ReplicaWorld) -> None:
    played = Played(world)
    stranger = played.interest(world.keys[0])._replace(partition=7)
    asked = played.ask(stranger, played.interest(world.keys[0]))
    await world.pass_ms(1)
    found = [(part.partition, part.error_code) for part in asked.result()]
    assert (7, ErrorCode.NOT_LEADER_OR_FOLLOWER) in found


@pytest.mark.parametrize(
    ("offset", "last_epoch", "diverging"),
    [
        (3, 0, None),
        (2, 0, None),
        (4, 0, [0, 3]),  # it has more of the epoch than the leader
        (2, 1, [0, 3]),  # an epoch of which the leader has nothing, in an offset that it has
        (4, 2, None),
        (5, 2, [2, 4]),
    ],
)
@in_world(run_world, brokers=1)
async def test_a_follower_is_told_where_its_history_is_another(
    world: ReplicaWorld, *, offset: int, last_epoch: int, diverging: list[int] | None
) -> None:
    await write(world, batches=3)
    world.change(leader=FOLLOWER)
    await world.elect(LEADER)
    await write(world)
    played = Played(world)
    asked = played.ask(played.interest(world.keys[0], offset, last_epoch=last_epoch), wait_ms=100)
    await world.pass_ms(200)
    found = [part.diverging for part in asked.result()]
    assert [one for one in found if one] == ([diverging] if diverging else [])


@in_world(run_world, brokers=1)
async def test_damaged_records_reach_no_follower(world: ReplicaWorld) -> None:
    """What nobody has read since a clean start is checked before it is copied."""

    await write(world, batches=2)
    await world.nodes[LEADER].actor.stop()
    await world.kill(LEADER)
    path = f"{world.directory(LEADER, 0)}/{0:020}.log"
    world.disks[LEADER].corrupt(path, BATCH + 100, b"\xff")
    await world.start(LEADER)
    await world.elect(LEADER)
    played = Played(world)
    asked = played.ask(played.interest(world.keys[0]), wait_ms=100)
    await world.pass_ms(200)
    assert sum(part.length for part in asked.result()) <= BATCH
    again = played.ask(played.interest(world.keys[0], 1, last_epoch=0), wait_ms=100)
    await world.pass_ms(200)
    assert all(part.length == 0 for part in again.result())
    assert world.failed == [(LEADER, world.keys)]


@in_world(run_world, brokers=1)
async def test_a_process_that_is_gone_is_told_nothing_more(world: ReplicaWorld) -> None:
    played = Played(world)
    asked = played.ask(played.interest(world.keys[0]))
    await world.pass_ms(1)
    played.link.close()
    await world.pass_ms(1)
    assert asked.done()
    assert asked.exception() is not None
    await write(world)
    await world.pass_ms(FIGURES_MS + 1)
    assert world.replica(LEADER).followers == {}


def test_nothing_is_read_for_a_process_that_goes_in_the_turn_of_an_append(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[int] = []
    of_log = LogReader.read

    def counted(log: LogReader, offset: int, *bounds: int, **how: bool) -> Slice | None:
        read.append(offset)
        return of_log(log, offset, *bounds, **how)

    monkeypatch.setattr(LogReader, "read", counted)

    async def scenario(world: ReplicaWorld) -> None:
        played = Played(world)
        asked = played.ask(played.interest(world.keys[0]))
        await world.pass_ms(1)
        read.clear()
        written = world.produce(LEADER, batch(), acks=1)
        await settle()
        played.link.close()
        await world.pass_ms(1)
        assert await written
        assert asked.exception() is not None
        assert read == []

    run_world(scenario, brokers=1)


@pytest.mark.parametrize("opened_anew", [False, True])
@in_world(run_world, brokers=1, partitions=2)
async def test_session_that_forgets_a_failing_partition_still_serves_the_others(
    world: ReplicaWorld, *, opened_anew: bool
) -> None:
    played = Played(world)
    first = played.ask(*[played.interest(key) for key in world.keys])
    await world.pass_ms(FIGURES_MS)
    assert lengths(first) == [(0, 0), (1, 0)]
    lost, actor = world.replica(LEADER), world.nodes[LEADER].actor
    asked = played.ask(played.interest(world.keys[1]), forgotten=world.keys[:1])
    lost.host.failed(lost)
    await world.pass_ms(FIGURES_MS)
    assert world.failed == [(LEADER, world.keys[:1])]
    if opened_anew:
        directory = world.directory(LEADER, 0)
        again = OpenPartition(*world.keys[0][:1], "t", 0, directory, world.config, world.own)
        assert [one.error for one in await actor.open_partitions([again])] == [None]
        await world.publish()
        assert world.replica(LEADER).machine.is_leader
    lost.host.follower_sessions.watermarks_changed(lost)
    await world.pass_ms(FIGURES_MS)
    if asked.done():
        assert records(asked) == []
        asked = played.ask(played.interest(world.keys[1]))
    await write(world, 1)
    await world.pass_ms(FIGURES_MS)
    assert lengths(asked) == [(1, BATCH)]


@in_world(run_world, brokers=1)
async def test_new_partition_of_a_session_gets_its_offsets_soon_and_once(
    world: ReplicaWorld,
) -> None:
    played = Played(world)
    await write(world)
    level = played.interest(world.keys[0], 1, last_epoch=0)
    first = played.ask(level)
    await world.pass_ms(FIGURES_MS - 1)
    assert not first.done()
    await world.pass_ms(1)
    (part,) = first.result()
    figures = (part.high_watermark, part.log_start_offset, part.log_end_offset)
    assert (part.length, part.error_code, figures) == (0, 0, (1, 0, 1))
    second = played.ask(level)
    await world.pass_ms(10 * FIGURES_MS)
    assert not second.done()


@in_world(run_world, brokers=1)
async def test_a_request_is_answered_when_its_time_is_over_though_there_is_nothing(
    world: ReplicaWorld,
) -> None:
    played = Played(world)
    first = played.ask(played.interest(world.keys[0]))
    await world.pass_ms(FIGURES_MS)
    assert first.done()
    asked = played.ask(wait_ms=LONG_MS)
    await world.pass_ms(LONG_MS - 1)
    assert not asked.done()
    await world.pass_ms(2 * TICK_MS)
    assert lengths(asked) == []
    assert not played.ask().done()


@in_world(run_world, brokers=2)
async def test_a_high_watermark_that_moves_behind_the_records_is_reported_by_itself(
    world: ReplicaWorld,
) -> None:
    played = Played(world)
    await world.kill(2)
    first = played.ask(played.interest(world.keys[0]))
    await world.pass_ms(FIGURES_MS)
    assert lengths(first) == [(0, 0)]
    asked = played.ask(played.interest(world.keys[0]))
    await world.produce(LEADER, acks=1)
    await world.pass_ms(1)
    assert lengths(asked) == [(0, BATCH)]
    assert [part.high_watermark for part in asked.result()] == [0]
    level = played.interest(world.keys[0], 1, last_epoch=0)
    asked = played.ask(level)
    await world.pass_ms(2 * FIGURES_MS)
    assert not asked.done()
    world.change(isr=(LEADER,))
    await world.publish()
    await world.pass_ms(FIGURES_MS - 1)
    assert not asked.done()
    await world.pass_ms(1)
    assert [part.high_watermark for part in asked.result()] == [1]


@in_world(run_world, brokers=1, partitions=2)
async def test_figures_wait_for_a_request_and_only_who_lacks_them_is_notified(
    world: ReplicaWorld,
) -> None:
    first, second = Played(world), Played(world)
    for played, key in ((first, world.keys[0]), (second, world.keys[1])):
        answer = played.ask(played.interest(key))
        await world.pass_ms(FIGURES_MS)
        assert answer.done()
    unconcerned = second.ask()
    await write(world)
    await world.pass_ms(2 * FIGURES_MS)
    assert not unconcerned.done()
    asked = first.ask()
    await world.pass_ms(1)
    assert lengths(asked) == [(0, BATCH)]
    assert [part.high_watermark for part in asked.result()] == [1]


@in_world(run_world, brokers=1)
async def test_a_deletion_is_reported_at_once(world: ReplicaWorld) -> None:
    played = Played(world)
    await write(world, batches=5)
    level = played.interest(world.keys[0], 5, last_epoch=0)
    first = played.ask(level)
    await world.pass_ms(FIGURES_MS)
    assert first.done()
    asked = played.ask(level)
    deleted = asyncio.ensure_future(world.ask(LEADER, DELETE_RECORDS, 3))
    await world.pass_ms(1)
    assert [part.log_start_offset for part in asked.result()] == [3]
    await world.pass_ms(100)
    assert not deleted.done()
    played.ask(level._replace(log_start_offset=2))
    await world.pass_ms(100)
    assert not deleted.done()
    played.ask(level._replace(log_start_offset=3))
    await world.pass_ms(100)
    assert deleted.result() == 3


@in_world(run_world, brokers=1, partitions=2)
async def test_nobody_waits_for_who_forgot_the_partition(world: ReplicaWorld) -> None:
    """Neither who deletes records nor who leads anew."""

    played = Played(world)
    await write(world, batches=2)
    played.ask(*[played.interest(key, 0) for key in world.keys])
    asked = played.ask(forgotten=world.keys[:1])
    deleted = asyncio.ensure_future(world.ask(LEADER, DELETE_RECORDS, 1))
    await world.pass_ms(10)
    assert deleted.result() == 1
    await world.elect(LEADER)
    await world.pass_ms(FIGURES_MS)
    assert [index for index, _ in lengths(asked)] == [1]


def test_records_are_loaded_once_for_all_who_are_told_of_them_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded: list[Slice] = []
    of_log = LogReader.load

    def counted(log: LogReader, found: Slice) -> bytes:
        loaded.append(found)
        return of_log(log, found)

    monkeypatch.setattr(LogReader, "load", counted)

    async def scenario(world: ReplicaWorld) -> None:
        all_played = [Played(world) for _ in range(3)]
        asked = [played.ask(played.interest(world.keys[0])) for played in all_played]
        await world.pass_ms(FIGURES_MS)
        assert all(one.done() for one in asked)
        asked = [played.ask(played.interest(world.keys[0])) for played in all_played]
        await write(world)
        await world.pass_ms(1)
        assert [lengths(one) for one in asked] == [[(0, BATCH)]] * 3
        assert len(loaded) == 1
        for played in all_played[:2]:  # each in a turn of its own
            again = played.ask(played.interest(world.keys[0]))
            await world.pass_ms(1)
            assert lengths(again) == [(0, BATCH)]
        assert len(loaded) == 3, "what was loaded is not kept"

    run_world(scenario, brokers=1)


@in_world(run_world, brokers=1)
async def test_a_refusal_comes_at_once_and_is_not_repeated(world: ReplicaWorld) -> None:
    """However many bytes are waited for."""

    played = Played(world)
    stranger = played.interest(world.keys[0])._replace(partition=7)
    asked = played.ask(stranger, min_bytes=10 * BATCH)
    await world.pass_ms(1)
    (part,) = asked.result()
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    asked = played.ask(min_bytes=10 * BATCH)
    await world.pass_ms(FIGURES_MS)
    assert not asked.done()
    again = played.ask(stranger, min_bytes=10 * BATCH)
    await world.pass_ms(1)
    assert [part.partition for part in again.result()] == [7]


@pytest.mark.parametrize(
    ("offset", "error", "length"),
    [
        (1, ErrorCode.OFFSET_OUT_OF_RANGE, 0),
        (2, ErrorCode.NONE, 3 * BATCH),
        (4, ErrorCode.NONE, BATCH),
        (5, ErrorCode.NONE, 0),
        (6, ErrorCode.OFFSET_OUT_OF_RANGE, 0),
    ],
)
@in_world(run_world, brokers=1)
async def test_a_follower_is_told_what_the_leader_has_where_it_asks_for_something_else(
    world: ReplicaWorld, *, offset: int, error: ErrorCode, length: int
) -> None:
    await write(world, batches=5)
    world.replica(LEADER).log.delete_records_to(2)
    played = Played(world)
    asked = played.ask(played.interest(world.keys[0], offset))
    await world.pass_ms(FIGURES_MS)
    (part,) = asked.result()
    assert (part.error_code, part.length) == (error, length)
    assert (part.log_start_offset, part.log_end_offset) == (2, 5)


@in_world(run_world, brokers=1)
async def test_a_follower_of_an_older_epoch_is_fenced(world: ReplicaWorld) -> None:
    await world.elect(LEADER)
    played = Played(world)
    asked = played.ask(played.interest(world.keys[0], ahead=-1))
    await world.pass_ms(1)
    (part,) = asked.result()
    assert part.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert part.leader_epoch == world.metadata[world.keys[0]].leader_epoch - 1


@in_world(run_world, brokers=1, partitions=4, config={"internal.segment.bytes": "1024"})
async def test_old_records_and_new_ones_come_each_with_their_partition(world: ReplicaWorld) -> None:
    """A thread reads the old ones; one of the partitions has none to tell."""

    await write(world, 0, batches=8)
    for index in (2, 3):
        await write(world, index, batches=index)
    played = Played(world)
    changes = [played.interest(key, last_epoch=-1) for key in world.keys]
    assert not world.replica(LEADER).log.reader.is_recent(_first(world, 0))
    assert world.replica(LEADER, 2).log.reader.is_recent(_first(world, 2))
    header = ReplicateAsk(FOLLOWER, LONG_MS, 1, 100 * BATCH, changes, [])
    answers: list[tuple[Any, bytes]] = []
    played.link.request(
        REPLICATE,
        header,
        (),
        lambda *answer: answers.append((answer[0], bytes(answer[1]))),
        _raise,
    )
    await world.pass_ms(FIGURES_MS)
    ((parts, payload),) = answers
    begin, found = 0, {}
    for part in [ReplicatedPart(*one) for one in parts]:
        data = payload[begin : begin + part.length]
        begin += part.length
        found[part.partition] = [one.base_offset for one, _ in iter_batches(data)]
        assert world.raw(LEADER, part.partition).startswith(data)
    assert found.pop(0)[0] == 0
    assert found in ({2: [0, 1], 3: [0, 1, 2]}, {1: [], 2: [0, 1], 3: [0, 1, 2]})
    assert begin == len(payload)


def _first(world: ReplicaWorld, partition: int) -> Slice:
    log = world.replica(LEADER, partition).log
    found = log.read(0, 1, log.log_end_offset)
    assert found is not None
    return found


def _raise(failure: Exception) -> None:
    raise failure
