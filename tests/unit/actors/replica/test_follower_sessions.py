"""What a leader's process tells a follower's, request by request; the follower is played."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from raylog.actors.ports import OpenPartition, PartitionKey
from raylog.actors.replica.api import (
    DELETE_RECORDS,
    REPLICATE,
    ReplicaInterest,
    ReplicateAsk,
    ReplicatedPart,
)
from raylog.actors.replica.serving import FIGURES_MS
from raylog.actors.runtime.deadlines import TICK_MS
from raylog.storage.log import Log, Slice
from raylog.wire.errors import ErrorCode
from raylog.wire.records import iter_batches
from tests.support.gateway_world import settle
from tests.support.logs import batch
from tests.support.replica_world import ReplicaWorld, run_world

LEADER, FOLLOWER = 1, 9
BATCH = len(batch())
LONG_MS = 10_000
Told = asyncio.Future[list[ReplicatedPart]]


class Played:
    """A follower's process: what it asks, and what it is told."""

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
    ) -> Told:
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


def lengths(asked: Told) -> list[tuple[int, int]]:
    """Partitions and bytes of an answer."""
    assert asked.done(), "it should be answered by now"
    return [(part.partition, part.length) for part in asked.result()]


def records(asked: Told) -> list[tuple[int, int]]:
    """The same of partitions with records."""
    return [(index, length) for index, length in lengths(asked) if length]


def test_what_an_answer_had_no_room_for_comes_without_being_named_again() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        for index in range(2):
            await write(world, index)
        played = Played(world)
        interests = [played.interest(key) for key in world.keys]
        first = played.ask(*interests, max_bytes=BATCH)
        await world.pass_ms(1)
        assert records(first) == [(0, BATCH)]
        second = played.ask(max_bytes=BATCH)
        await world.pass_ms(1)
        assert records(second) == [(1, BATCH)]

    run_world(scenario, brokers=1, partitions=2)


def test_what_is_too_little_for_an_answer_comes_with_the_rest() -> None:
    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario, brokers=1, partitions=2)


def test_the_request_before_is_answered_when_another_one_comes() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        played = Played(world)
        first = played.ask(*[played.interest(key) for key in world.keys])
        second = played.ask()
        await world.pass_ms(1)
        assert lengths(first) == []
        assert not second.done()
        await write(world)
        await world.pass_ms(1)
        assert lengths(second) == [(0, BATCH)]

    run_world(scenario, brokers=1)


def test_nothing_is_told_twice_before_the_follower_has_named_it_again() -> None:
    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario, brokers=1)


def test_what_is_forgotten_is_told_no_more_and_the_rest_is() -> None:
    """Also where its figures were to be told, and its records."""

    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario, brokers=1, partitions=2)


def test_a_follower_that_knows_a_newer_epoch_waits_until_the_leader_does() -> None:
    """It is level: all that it is told then is how far records count."""

    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario, brokers=1)


def test_a_partition_that_is_not_open_here_is_refused() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        played = Played(world)
        stranger = played.interest(world.keys[0])._replace(partition=7)
        asked = played.ask(stranger, played.interest(world.keys[0]))
        await world.pass_ms(1)
        found = [(part.partition, part.error_code) for part in asked.result()]
        assert (7, ErrorCode.NOT_LEADER_OR_FOLLOWER) in found

    run_world(scenario, brokers=1)


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
def test_a_follower_is_told_where_its_history_is_another(
    offset: int, last_epoch: int, diverging: list[int] | None
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        await write(world, batches=3)
        world.change(leader=FOLLOWER)
        await world.elect(LEADER)
        await write(world)
        played = Played(world)
        asked = played.ask(
            played.interest(world.keys[0], offset, last_epoch=last_epoch), wait_ms=100
        )
        await world.pass_ms(200)
        found = [part.diverging for part in asked.result()]
        assert [one for one in found if one] == ([diverging] if diverging else [])

    run_world(scenario, brokers=1)


def test_damaged_records_reach_no_follower() -> None:
    """What nobody has read since a clean start is checked before it is copied."""

    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario, brokers=1)


def test_a_process_that_is_gone_is_told_nothing_more() -> None:
    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario, brokers=1)


def test_nothing_is_read_for_a_process_that_goes_in_the_turn_of_an_append(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[int] = []
    of_log = Log.read

    def counted(log: Log, offset: int, *bounds: int, **how: bool) -> Slice | None:
        read.append(offset)
        return of_log(log, offset, *bounds, **how)

    monkeypatch.setattr(Log, "read", counted)

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
def test_who_forgets_a_partition_while_it_is_given_up_hears_of_the_others(
    opened_anew: bool,
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        played = Played(world)
        first = played.ask(*[played.interest(key) for key in world.keys])
        await world.pass_ms(FIGURES_MS)
        assert lengths(first) == [(0, 0), (1, 0)]
        lost, actor = world.replica(LEADER), world.nodes[LEADER].actor
        asked = played.ask(played.interest(world.keys[1]), forgotten=world.keys[:1])
        lost.host.has_failed(lost)
        await world.pass_ms(FIGURES_MS)
        assert world.failed == [(LEADER, world.keys[:1])]
        if opened_anew:
            directory = world.directory(LEADER, 0)
            again = OpenPartition(*world.keys[0][:1], "t", 0, directory, world.config, world.own)
            assert [one.error for one in await actor.open_partitions([again])] == [None]
            await world.publish()
            assert world.replica(LEADER).machine.is_leader
        lost.host.has_figures(lost)
        await world.pass_ms(FIGURES_MS)
        if asked.done():
            assert records(asked) == []
            asked = played.ask(played.interest(world.keys[1]))
        await write(world, 1)
        await world.pass_ms(FIGURES_MS)
        assert lengths(asked) == [(1, BATCH)]

    run_world(scenario, brokers=1, partitions=2)


def test_who_is_followed_anew_is_told_its_figures_soon_and_once() -> None:
    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario, brokers=1)


def test_a_request_is_answered_when_its_time_is_over_though_there_is_nothing() -> None:
    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario, brokers=1)


def test_a_high_watermark_that_moves_behind_the_records_is_told_by_itself() -> None:
    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario, brokers=2)


def test_figures_wait_for_a_request_and_only_who_lacks_them_is_told() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        first, second = Played(world), Played(world)
        for played, key in ((first, world.keys[0]), (second, world.keys[1])):
            told = played.ask(played.interest(key))
            await world.pass_ms(FIGURES_MS)
            assert told.done()
        unconcerned = second.ask()
        await write(world)
        await world.pass_ms(2 * FIGURES_MS)
        assert not unconcerned.done()
        asked = first.ask()
        await world.pass_ms(1)
        assert lengths(asked) == [(0, BATCH)]
        assert [part.high_watermark for part in asked.result()] == [1]

    run_world(scenario, brokers=1, partitions=2)


def test_a_deletion_is_told_at_once() -> None:
    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario, brokers=1)


def test_nobody_waits_for_who_forgot_the_partition() -> None:
    """Neither who deletes records nor who leads anew."""

    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario, brokers=1, partitions=2)


def test_records_are_loaded_once_for_all_who_are_told_of_them_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded: list[Slice] = []
    of_log = Log.load

    def counted(log: Log, found: Slice) -> bytes:
        loaded.append(found)
        return of_log(log, found)

    monkeypatch.setattr(Log, "load", counted)

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


def test_a_refusal_comes_at_once_and_is_not_repeated() -> None:
    """However many bytes are waited for."""

    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario, brokers=1)


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
def test_a_follower_is_told_what_the_leader_has_where_it_asks_for_something_else(
    offset: int, error: ErrorCode, length: int
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        await write(world, batches=5)
        world.replica(LEADER).log.delete_records_to(2)
        played = Played(world)
        asked = played.ask(played.interest(world.keys[0], offset))
        await world.pass_ms(FIGURES_MS)
        (part,) = asked.result()
        assert (part.error_code, part.length) == (error, length)
        assert (part.log_start_offset, part.log_end_offset) == (2, 5)

    run_world(scenario, brokers=1)


def test_a_follower_of_an_older_epoch_is_fenced() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        await world.elect(LEADER)
        played = Played(world)
        asked = played.ask(played.interest(world.keys[0], ahead=-1))
        await world.pass_ms(1)
        (part,) = asked.result()
        assert part.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert part.leader_epoch == world.metadata[world.keys[0]].leader_epoch - 1

    run_world(scenario, brokers=1)


def test_old_records_and_new_ones_come_each_with_their_partition() -> None:
    """A thread reads the old ones; one of the partitions has none to tell."""

    async def scenario(world: ReplicaWorld) -> None:
        await write(world, 0, batches=8)
        for index in (2, 3):
            await write(world, index, batches=index)
        played = Played(world)
        changes = [played.interest(key, last_epoch=-1) for key in world.keys]
        assert not world.replica(LEADER).log.is_recent(_first(world, 0))
        assert world.replica(LEADER, 2).log.is_recent(_first(world, 2))
        header = ReplicateAsk(FOLLOWER, LONG_MS, 1, 100 * BATCH, changes, [])
        told: list[tuple[Any, bytes]] = []
        played.link.request(
            REPLICATE,
            header,
            (),
            lambda *answer: told.append((answer[0], bytes(answer[1]))),
            _raise,
        )
        await world.pass_ms(FIGURES_MS)
        ((parts, payload),) = told
        begin, found = 0, {}
        for part in [ReplicatedPart(*one) for one in parts]:
            data = payload[begin : begin + part.length]
            begin += part.length
            found[part.partition] = [one.base_offset for one, _ in iter_batches(data)]
            assert world.raw(LEADER, part.partition).startswith(data)
        assert found.pop(0)[0] == 0
        assert found in ({2: [0, 1], 3: [0, 1, 2]}, {1: [], 2: [0, 1], 3: [0, 1, 2]})
        assert begin == len(payload)

    run_world(scenario, brokers=1, partitions=4, config={"internal.segment.bytes": "1024"})


def _first(world: ReplicaWorld, partition: int) -> Slice:
    log = world.replica(LEADER, partition).log
    found = log.read(0, 1, log.log_end_offset)
    assert found is not None
    return found


def _raise(failure: Exception) -> None:
    raise failure
