"""One partition's answers to clients in edge cases: other epochs, times, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from raylog.actors.replica.messages import (
    DELETE_RECORDS,
    EARLIEST_TIMESTAMP,
    FETCH,
    FETCH_END,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    OFFSET_FOR,
    FetchAsk,
    FetchedPartition,
    Interest,
    ProduceAnswer,
)
from raylog.actors.replica.rules import sessions
from raylog.wire.errors import (
    ErrorCode,
    FencedLeaderEpoch,
    KafkaError,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    PolicyViolation,
    UnknownLeaderEpoch,
)
from tests.worlds.decorators import in_world
from tests.worlds.replica.actor import ReplicaWorld, Threads, run_world
from tests.worlds.replica.fake_host import TOPIC_ID
from tests.worlds.runtime import settle
from tests.worlds.storage.logs import NOW_MS, batch

LEADER, FOLLOWER = 1, 2
LATER_MS = 60_000


async def written(world: ReplicaWorld, *batches: bytearray, acks: int = -1) -> list[ProduceAnswer]:
    asked = world.produce(LEADER, *batches, acks=acks)
    await world.pass_ms(100)
    found = [one for one in await asked if isinstance(one, ProduceAnswer)]
    assert len(found) == len(batches)
    return found


async def fetched(
    world: ReplicaWorld, broker_id: int, offset: int, *, last_epoch: int = -1, epoch: int = -1
) -> FetchedPartition:
    """What a consumer is told that knows leader epochs (KIP-320) and reads from any replica."""
    interest = Interest(TOPIC_ID, 0, offset, 1_000_000, epoch, last_epoch, True)
    link = world.connect(world.nodes[broker_id].address)
    ask = FetchAsk(1, True, True, 0, 1_000_000, 0, False, [interest], [])
    (found,) = await link.ask(FETCH, ask)
    return FetchedPartition(*found)


@in_world(run_world, brokers=1, config={"message.timestamp.type": "LogAppendTime"})
async def test_the_brokers_time_is_answered_found_again_and_repeated(world: ReplicaWorld) -> None:
    """message.timestamp.type=LogAppendTime: the producer's own time is nowhere."""

    first = batch(timestamp=5, producer_id=7)
    (answer,) = await written(world, first)
    append_ms = answer.log_append_time_ms
    assert append_ms == world.clock.now_ms() - 100
    found = await world.ask(LEADER, OFFSET_FOR, -1, 6, 0)
    assert tuple(found)[:2] == (0, append_ms)
    later = await world.ask(LEADER, OFFSET_FOR, -1, append_ms + 1, 0)
    assert tuple(later) == (-1, -1, -1)
    await world.pass_ms(LATER_MS)
    (repeated,) = await written(world, batch(timestamp=5, producer_id=7))
    assert repeated == answer


@pytest.mark.parametrize(
    ("last_epoch", "offset", "diverging"),
    [
        (0, 2, None),  # its history is the leader's
        (0, 3, [0, 2]),  # it has read what epoch 0 did not write
        (1, 3, [0, 2]),  # in an epoch that wrote nothing here
        (2, 3, None),
    ],
)
@in_world(run_world, brokers=2)
async def test_a_consumer_learns_where_its_history_is_another(
    world: ReplicaWorld, *, last_epoch: int, offset: int, diverging: list[int] | None
) -> None:
    await written(world, batch(count=2))
    world.change(leader=FOLLOWER)
    await world.elect(LEADER)
    await written(world, batch(count=2))
    found = await fetched(world, LEADER, offset, last_epoch=last_epoch)
    assert found.error_code == ErrorCode.NONE
    assert found.diverging == diverging
    assert bool(found.length) == (diverging is None)


@in_world(run_world, brokers=1)
async def test_a_consumer_of_an_epoch_that_nobody_knows_must_begin_anew(
    world: ReplicaWorld,
) -> None:
    await written(world, batch(count=2))
    found = await fetched(world, LEADER, 1, last_epoch=9)
    assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("broker_id", [LEADER, FOLLOWER])
@pytest.mark.parametrize(
    ("ahead", "expected"),
    [
        (-1, ErrorCode.FENCED_LEADER_EPOCH),
        (0, ErrorCode.NONE),
        (1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
@in_world(run_world, brokers=2)
async def test_any_replica_minds_the_leader_epoch_that_a_consumer_knows(
    world: ReplicaWorld, *, broker_id: int, ahead: int, expected: ErrorCode
) -> None:
    await world.elect(LEADER)
    await written(world, batch())
    epoch = world.metadata[world.keys[0]].leader_epoch + ahead
    found = await fetched(world, broker_id, 0, epoch=epoch)
    assert found.error_code == expected


@in_world(run_world, brokers=2)
async def test_nothing_is_read_of_a_follower_whose_log_is_being_shortened(
    world: ReplicaWorld,
) -> None:
    await written(world, batch())
    replica = world.replica(FOLLOWER)
    assert (await fetched(world, FOLLOWER, 0)).length
    replica.work.reserve(lambda: None)
    found = await fetched(world, FOLLOWER, 0)
    assert (found.error_code, found.length) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
    replica.work.release()
    assert (await fetched(world, FOLLOWER, 0)).length


@in_world(run_world, brokers=1)
async def test_there_is_no_tiered_storage(world: ReplicaWorld) -> None:
    await written(world, batch())
    asked = await world.ask(LEADER, OFFSET_FOR, -1, LATEST_TIERED_TIMESTAMP, 0)
    assert tuple(asked) == (-1, -1, -1)


@pytest.mark.parametrize(
    ("offset", "start"), [(0, 2), (1, 2), (2, 2), (3, 3), (4, 4), (-1, 4), (5, None), (-2, None)]
)
@in_world(run_world, brokers=2)
async def test_records_are_deleted_up_to_the_high_watermark(
    world: ReplicaWorld, *, offset: int, start: int | None
) -> None:
    """What is deleted already stays so; what is not committed cannot be deleted."""

    await written(world, batch(count=4))
    await world.kill(FOLLOWER)
    await written(world, batch(), acks=1)
    assert world.ends() == [(5, 4)]
    world.replica(LEADER).delete_records(2)
    if start is None:
        with pytest.raises(OffsetOutOfRange):
            world.replica(LEADER).delete_records(offset)
        assert world.replica(LEADER).log.log_start_offset == 2
    else:
        assert world.replica(LEADER).delete_records(offset) == start
        assert world.replica(LEADER).log.log_start_offset == start


@pytest.mark.parametrize("timestamp", [EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NOW_MS])
@pytest.mark.parametrize(
    ("broker_id", "epoch", "refusal"),
    [
        (LEADER, 0, FencedLeaderEpoch),
        (LEADER, 2, UnknownLeaderEpoch),
        (FOLLOWER, -1, NotLeaderOrFollower),
        (FOLLOWER, 1, NotLeaderOrFollower),
    ],
)
@in_world(run_world, brokers=2)
async def test_offsets_are_reported_by_the_leader_of_the_epoch_that_is_asked_for(
    world: ReplicaWorld, *, broker_id: int, epoch: int, refusal: type[KafkaError], timestamp: int
) -> None:
    await world.elect(FOLLOWER)
    await world.elect(LEADER)
    assert world.metadata[world.keys[0]].leader_epoch == 2
    with pytest.raises(refusal):
        await world.ask(broker_id, OFFSET_FOR, epoch + (epoch > 0), timestamp, 0)


@in_world(run_world, brokers=1, config={"cleanup.policy": "compact"})
async def test_records_of_a_compacted_topic_are_not_deleted(world: ReplicaWorld) -> None:
    await written(world, batch())
    with pytest.raises(PolicyViolation):
        await world.ask(LEADER, DELETE_RECORDS, 1)
    assert world.replica(LEADER).log.log_start_offset == 0


@in_world(run_world, brokers=2)
async def test_a_time_is_not_looked_up_for_a_leader_that_was_deposed_meanwhile(
    world: ReplicaWorld,
) -> None:
    await written(world, batch())
    replica = world.replica(LEADER)
    job = replica.begin_lookup(NOW_MS)
    job.run()
    await world.elect(FOLLOWER)
    with pytest.raises(Exception, match="does not lead"):
        replica.found_by(job, -1, 0)


@in_world(run_world, brokers=1)
async def test_a_log_that_is_damaged_is_given_up_and_nothing_of_it_is_read(
    world: ReplicaWorld,
) -> None:
    await written(world, batch())
    await world.nodes[LEADER].actor.stop()
    await world.kill(LEADER)
    world.disks[LEADER].corrupt(f"{world.directory(LEADER, 0)}/{0:020}.log", 100, b"\xff")
    await world.start(LEADER)
    await world.elect(LEADER)
    assert (await fetched(world, LEADER, 0)).length == 0
    await world.pass_ms(10)
    assert world.failed == [(LEADER, world.keys)]


@in_world(run_world, brokers=1)
async def test_nobody_reads_what_is_only_being_checked_for_somebody_else(
    world: ReplicaWorld,
) -> None:
    await written(world, batch())
    await world.nodes[LEADER].actor.stop()
    await world.kill(LEADER)
    world.disks[LEADER].corrupt(f"{world.directory(LEADER, 0)}/{0:020}.log", 100, b"\xff")
    await world.start(LEADER)
    await world.elect(LEADER)
    threads = Threads(world.nodes[LEADER])
    asked = [asyncio.ensure_future(world.fetch(LEADER)) for _ in range(2)]
    await settle()
    assert not any(one.done() for one in asked)
    while threads.waiting:
        await threads.run_one()
    assert [(await one).length for one in asked] == [0, 0]


@in_world(run_world, brokers=2)
async def test_fetch_waiting_at_a_follower_fails_when_it_has_no_leader(
    world: ReplicaWorld,
) -> None:
    waiting = asyncio.ensure_future(world.fetch(FOLLOWER, any_replica=True, wait=True))
    await world.pass_ms(10)
    assert not waiting.done()
    world.change(leader=-1)
    await world.publish(FOLLOWER)
    await world.pass_ms(1)
    assert waiting.done()
    assert (await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("in_sync", [1, 2])
@in_world(run_world, brokers=2)
async def test_no_record_is_so_young_only_once_the_leader_knows_how_far_others_were(
    world: ReplicaWorld, *, in_sync: int
) -> None:
    """Consumers may have read more than a new leader knows to be committed (KIP-207)."""

    await written(world, batch())
    await world.kill(FOLLOWER)
    world.change(isr=world.brokers[:in_sync])
    written_alone = world.produce(LEADER, batch(), acks=1)
    await world.pass_ms(1)
    await written_alone
    await world.elect(LEADER)
    asking = asyncio.ensure_future(world.ask(LEADER, OFFSET_FOR, -1, NOW_MS + 1, 0))
    await world.pass_ms(1)
    if in_sync == 1:
        assert tuple(await asking) == (-1, -1, -1)
    else:
        with pytest.raises(OffsetNotAvailable):
            await asking


@in_world(run_world, brokers=2)
async def test_a_clean_stop_saves_the_high_watermark(world: ReplicaWorld) -> None:
    await written(world, batch(), batch())
    await world.kill(FOLLOWER)
    await written(world, batch(), acks=1)
    await world.nodes[LEADER].actor.stop()
    await world.kill(LEADER)
    await world.start(LEADER)
    log = world.replica(LEADER).log
    assert (log.log_end_offset, log.checkpoints.high_watermark_saved) == (3, 2)


@pytest.mark.parametrize("looks_max", [1, 2, 250])
def test_a_large_fetch_that_is_to_end_is_answered_with_all_of_it(
    monkeypatch: pytest.MonkeyPatch, looks_max: int
) -> None:
    monkeypatch.setattr(sessions, "LOOKS_MAX", looks_max)

    async def scenario(world: ReplicaWorld) -> None:
        written_ = world.produce(LEADER, batch(), partition=4)
        await world.pass_ms(1)
        await written_
        interests = [Interest(*key, 0, 1_000_000, -1, -1) for key in world.keys]
        link = world.connect(world.nodes[LEADER].address)
        ask = FetchAsk(1, False, True, 0, 1_000_000, 9_999, True, interests, [])
        asked = asyncio.ensure_future(link.ask(FETCH, ask))
        await asyncio.sleep(0)
        assert await link.ask(FETCH_END, [1, False]) is None
        await settle()
        found = [FetchedPartition(*one) for one in asked.result()]
        assert [(one.partition, bool(one.length)) for one in found] == [
            (index, index == 4) for index in range(5)
        ]

    run_world(scenario, brokers=1, partitions=5)


@in_world(run_world, brokers=1, partitions=2)
async def test_fetch_session_has_one_waiting_request_and_drops_forgotten_partitions(
    world: ReplicaWorld,
) -> None:
    ask = _asking(world)
    first = ask(0, 1)
    await settle()
    sessions = [world.replica(LEADER, index).sessions for index in (0, 1)]
    assert not first.done()
    assert [len(one) for one in sessions] == [1, 1]
    second = ask(forgotten=(0, 9))
    await settle()
    assert not any(FetchedPartition(*one).length for one in first.result())
    assert not second.done()
    assert [len(one) for one in sessions] == [0, 1]
    for index in (0, 1):
        assert await world.produce(LEADER, partition=index)
        await settle()
        assert second.done() == (index == 1)
    assert [FetchedPartition(*one).partition for one in second.result()] == [1]


@in_world(run_world, brokers=1, partitions=2)
async def test_fetch_that_forgets_a_failing_partition_waits_for_the_others(
    world: ReplicaWorld,
) -> None:
    ask = _asking(world)
    ask(0, 1)
    await settle()
    lost = world.replica(LEADER)
    lost.host.failed(lost)
    asked = ask(forgotten=(0,))
    await world.pass_ms(10)
    assert not asked.done()
    assert await world.produce(LEADER, partition=1)
    await world.pass_ms(10)
    assert [FetchedPartition(*one).partition for one in asked.result()] == [1]


def _asking(world: ReplicaWorld) -> Callable[..., asyncio.Future[Any]]:
    """One consumer's session, in which each request names partitions and waits for records."""
    link = world.connect(world.nodes[LEADER].address)

    def ask(*partitions: int, forgotten: tuple[int, ...] = ()) -> asyncio.Future[Any]:
        changes = [Interest(TOPIC_ID, one, 0, 1_000_000, -1, -1, False) for one in partitions]
        gone = [(TOPIC_ID, one) for one in forgotten]
        request = FetchAsk(1, False, False, 0, 1_000_000, 1, True, changes, gone)
        asked: asyncio.Future[Any] = asyncio.ensure_future(_answer(link.ask(FETCH, request)))
        return asked

    return ask


async def _answer(asked: Any) -> Any:
    return await asked
