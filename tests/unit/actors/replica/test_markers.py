"""WRITE_MARKERS ends transactions in the leader's log, so read_committed readers go on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from raylog.actors.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from raylog.actors.replica import lookups
from raylog.actors.replica.messages import (
    LATEST_TIMESTAMP,
    OFFSET_FOR,
    PRODUCERS,
    READ_COMMITTED,
    FetchedPartition,
    unpack_producers,
)
from raylog.actors.replica.producing import MARKERS_TIMEOUT_MS
from raylog.actors.runtime.deadlines import TICK_MS
from raylog.actors.transaction.messages import MarkedPartition
from raylog.wire.control import decode_end_txn_marker
from raylog.wire.errors import ErrorCode
from raylog.wire.records import decode_batch, iter_batches
from tests.worlds.decorators import in_world
from tests.worlds.replica.actor import SETTINGS, ReplicaWorld, run_world
from tests.worlds.replica.fake_host import TOPIC_ID
from tests.worlds.replica.scripted_transactions import ended
from tests.worlds.storage.logs import NOW_MS, batch

PRODUCER = 7


async def write(world: ReplicaWorld, count: int = 1, **producer: Any) -> None:
    """In a transaction, as the first batch of it."""
    data = batch(count, **{"producer_id": PRODUCER, "transactional": True} | producer)
    answer = world.produce_in_transaction(1, data)
    await world.pass_ms(1)
    assert not isinstance((await answer)[0], ErrorCode)


async def mark(world: ReplicaWorld, *markers: Any, broker: int = 1) -> list[list[int]]:
    codes = world.write_markers(broker, *markers)
    await world.pass_ms(1)
    return await codes


def stable(world: ReplicaWorld, broker: int = 1) -> int:
    return world.replica(broker).last_stable_offset


@pytest.mark.parametrize("committed", [True, False])
@in_world(run_world)
async def test_a_marker_is_a_control_batch_that_followers_get_too(
    world: ReplicaWorld, *, committed: bool
) -> None:
    await write(world, 3)
    assert await mark(world, ended(PRODUCER, 1, committed=committed, coordinator_epoch=5)) == [[0]]
    await world.pass_ms(100)
    for broker in world.brokers:
        header, data = list(iter_batches(world.raw(broker)))[-1]
        assert (header.base_offset, header.is_control, header.is_transactional) == (3, 1, 1)
        assert (header.producer_id, header.producer_epoch) == (PRODUCER, 1)
        (record,) = decode_batch(data)
        assert decode_end_txn_marker(record) == (committed, 5)
        assert stable(world, broker) == 4


@in_world(run_world, partitions=2)
async def test_markers_of_one_request_are_answered_each_for_its_partitions(
    world: ReplicaWorld,
) -> None:
    found = world.produce_in_transaction(
        1,
        batch(producer_id=PRODUCER, transactional=True),
        batch(producer_id=PRODUCER, transactional=True),
        partitions=(0, 1),
    )
    await world.pass_ms(1)
    await found
    codes = await mark(
        world,
        ended(PRODUCER, 1, 0, 1),
        ended(8, 1, 1, 99, committed=False),
        ended(PRODUCER, 0, 0),
    )
    assert codes == [
        [0, 0],
        [0, ErrorCode.NOT_LEADER_OR_FOLLOWER],
        [ErrorCode.INVALID_PRODUCER_EPOCH],
    ]
    assert [world.replica(1, at).log.log_end_offset for at in (0, 1)] == [2, 3]
    assert await mark(world) == []


@in_world(run_world)
async def test_a_marker_is_answered_when_it_is_replicated(world: ReplicaWorld) -> None:
    await write(world)
    await world.kill(2)
    codes = world.write_markers(1, ended(PRODUCER, 1))
    await world.pass_ms(100)
    assert not codes.done()
    assert stable(world) == 0
    await world.start(2)
    await world.pass_ms(1_000)
    assert await codes == [[0]]
    assert stable(world) == 2


@in_world(run_world, settings=replace(SETTINGS, lag_ms_max=10 * MARKERS_TIMEOUT_MS))
async def test_a_marker_that_is_not_replicated_in_time_is_said_to_be_late(
    world: ReplicaWorld,
) -> None:
    await world.kill(2)
    codes = world.write_markers(1, ended(PRODUCER, 1))
    await world.pass_ms(MARKERS_TIMEOUT_MS + 2 * TICK_MS)
    assert codes.done()
    assert await codes == [[ErrorCode.REQUEST_TIMED_OUT]]


@in_world(run_world, config={"min.insync.replicas": "2"})
async def test_too_few_in_sync_take_no_marker(world: ReplicaWorld) -> None:
    world.change(isr=(1,))
    await world.publish()
    assert await mark(world, ended(PRODUCER, 1)) == [[ErrorCode.NOT_ENOUGH_REPLICAS]]
    assert world.replica(1).log.log_end_offset == 0


@in_world(run_world)
async def test_markers_are_refused_by_followers_and_in_other_epochs(world: ReplicaWorld) -> None:
    await world.elect(1)
    epoch = world.metadata[world.keys[0]].leader_epoch
    other = [[ErrorCode.NOT_LEADER_OR_FOLLOWER]]
    assert await mark(world, ended(), broker=2) == other
    for wrong in (epoch - 1, epoch + 1):
        assert await mark(world, ended(leader_epoch=wrong)) == other
    unknown = ended()._replace(partitions=[MarkedPartition(TOPIC_ID, 5, -1)])
    assert await mark(world, unknown) == other
    assert await mark(world, ended(leader_epoch=epoch)) == [[0]]


@pytest.mark.parametrize("topic", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
@in_world(run_world)
async def test_coordinators_write_to_their_topics_themselves(
    world: ReplicaWorld, *, topic: str
) -> None:
    world.replica(1).topic = topic
    assert await mark(world, ended()) == [[ErrorCode.INVALID_TOPIC_EXCEPTION]]


# ---- fences ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "epoch", "coordinator_epoch", "code"),
    [
        (1, 4, 9, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, 5, 9, ErrorCode.NONE),
        (1, 6, 9, ErrorCode.NONE),
        (2, 4, 9, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 5, 9, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 6, 9, ErrorCode.NONE),
        (1, 5, 2, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (2, 6, 2, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    ],
)
@in_world(run_world)
async def test_markers_are_fenced_by_both_epochs(
    world: ReplicaWorld, *, version: int, epoch: int, coordinator_epoch: int, code: ErrorCode
) -> None:
    """The producer writes under epoch 5; coordinator 3 ended its last transaction."""

    assert await mark(world, ended(PRODUCER, 5, coordinator_epoch=3)) == [[0]]
    await write(world, producer_epoch=5)
    marked = ended(PRODUCER, epoch, version=version, coordinator_epoch=coordinator_epoch)
    assert await mark(world, marked) == [[code]]
    is_open = world.replica(1).log.producers.transaction_start(PRODUCER) >= 0
    assert is_open == (code is not ErrorCode.NONE)


@pytest.mark.parametrize("version", [1, 2])
@in_world(run_world)
async def test_a_repeated_marker_does_no_harm(world: ReplicaWorld, *, version: int) -> None:
    await write(world)
    marker = ended(PRODUCER, version - 1, committed=False, version=version)
    assert await mark(world, marker, marker) == [[0], [0]]
    assert await mark(world, marker) == [[0]]
    assert stable(world) == world.replica(1).log.log_end_offset
    assert len(world.replica(1).log.reader.aborted_transactions(0, 10)) == 1


@in_world(run_world)
async def test_a_repeated_marker_is_answered_no_earlier_than_the_first(world: ReplicaWorld) -> None:
    await write(world)
    await world.kill(2)
    first, second = (world.write_markers(1, ended(PRODUCER, 1)) for _ in range(2))
    await world.pass_ms(100)
    assert not first.done()
    assert not second.done()
    await world.start(2)
    await world.pass_ms(1_000)
    assert await first == await second == [[0]]
    assert world.replica(1).log.log_end_offset == 2


@in_world(run_world)
async def test_a_late_marker_does_not_end_the_next_transaction(world: ReplicaWorld) -> None:
    """Version 2: each transaction has its epoch."""

    await write(world)
    assert await mark(world, ended(PRODUCER, 1)) == [[0]]
    await write(world, producer_epoch=1)
    late = ended(PRODUCER, 1, committed=False, coordinator_epoch=9)
    assert await mark(world, late) == [[ErrorCode.INVALID_PRODUCER_EPOCH]]
    assert stable(world) == 2


# ---- readers ---------------------------------------------------------------------------------


def fetching(world: ReplicaWorld, offset: int, broker: int = 1) -> asyncio.Task[FetchedPartition]:
    return asyncio.ensure_future(
        world.fetch(broker, offset, any_replica=broker != 1, committed=True, wait=True)
    )


@pytest.mark.parametrize("broker", [1, 2])
@in_world(run_world)
async def test_read_committed_fetch_waits_for_the_marker(
    world: ReplicaWorld, *, broker: int
) -> None:
    await write(world, 3)
    waiting = fetching(world, 0, broker)
    await world.pass_ms(200)
    assert not waiting.done()
    at_once = FetchedPartition(*await world.fetch(1, 0, committed=True))
    assert (at_once.length, at_once.last_stable_offset) == (0, 0)
    assert at_once.high_watermark == 3
    assert await mark(world, ended(PRODUCER, 1, committed=False)) == [[0]]
    await world.pass_ms(200)
    found = FetchedPartition(*await waiting)
    assert (found.last_stable_offset, found.high_watermark) == (4, 4)
    assert found.length > 0
    assert found.aborted is not None
    assert [tuple(one[:2]) for one in found.aborted] == [(PRODUCER, 0)]


@in_world(run_world)
async def test_a_marker_that_is_not_replicated_is_not_reported(world: ReplicaWorld) -> None:
    await write(world)
    waiting = fetching(world, 0)
    await world.kill(2)
    codes = world.write_markers(1, ended(PRODUCER, 1))
    await world.pass_ms(100)
    assert not waiting.done()
    await world.start(2)
    await world.pass_ms(1_000)
    assert await codes == [[0]]
    assert FetchedPartition(*await waiting).last_stable_offset == 2


@in_world(run_world)
async def test_another_open_transaction_holds_them_back(world: ReplicaWorld) -> None:
    await write(world, 2)
    await write(world, 2, producer_id=8)
    await mark(world, ended(8, 1))
    assert stable(world) == 0
    await mark(world, ended(PRODUCER, 1))
    assert stable(world) == 6


@in_world(run_world)
async def test_the_latest_offset_of_committed_records_is_the_last_stable_one(
    world: ReplicaWorld,
) -> None:
    await write(world, 2)
    for isolation, latest in ((READ_COMMITTED, 0), (0, 2)):
        answer = await world.ask(1, OFFSET_FOR, -1, LATEST_TIMESTAMP, isolation)
        assert answer[0] == latest
    assert (await world.ask(1, OFFSET_FOR, -1, 0, READ_COMMITTED))[0] == -1
    await mark(world, ended(PRODUCER, 1))
    assert (await world.ask(1, OFFSET_FOR, -1, LATEST_TIMESTAMP, READ_COMMITTED))[0] == 3
    assert (await world.ask(1, OFFSET_FOR, -1, 0, READ_COMMITTED))[0] == 0


@in_world(run_world)
async def test_producers_are_described_with_their_transactions(world: ReplicaWorld) -> None:
    await write(world, 2)
    now_ms = world.clock.now_ms()
    (producer,) = unpack_producers(await world.ask(1, PRODUCERS))
    assert producer[:3] == (PRODUCER, 0, 1)
    assert now_ms - 10 <= producer[3] <= now_ms
    assert producer[4:] == (-1, 0)
    await mark(world, ended(PRODUCER, 1, coordinator_epoch=6))
    (producer,) = unpack_producers(await world.ask(1, PRODUCERS))
    assert producer[:3] == (PRODUCER, 1, -1)
    assert producer[4:] == (6, -1)


@in_world(run_world)
async def test_many_producers_are_described_by_a_thread(
    world: ReplicaWorld, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(world, 2)
    aside: list[str] = []
    node = world.nodes[1]
    run_blocking = node.runtime.run_blocking

    async def recording(function: Any, *args: Any) -> Any:
        aside.append(function.__name__)
        return await run_blocking(function, *args)

    monkeypatch.setattr(node.runtime, "run_blocking", recording)
    monkeypatch.setattr(lookups, "DESCRIBED_AT_ONCE", 0)
    (producer,) = unpack_producers(await world.ask(1, PRODUCERS))
    assert producer.producer_id == PRODUCER
    assert aside == ["pack_producers"]


@in_world(run_world)
async def test_a_new_leader_knows_what_is_open_and_what_was_aborted(world: ReplicaWorld) -> None:
    await write(world, 2)
    await mark(world, ended(PRODUCER, 1, committed=False))
    await write(world, producer_epoch=1)
    await world.kill(1)
    await world.elect(2, isr=(2, 3))
    await world.pass_ms(2_000)
    found = FetchedPartition(*await world.fetch(2, 0, committed=True))
    assert (found.last_stable_offset, found.high_watermark) == (3, 4)
    assert found.aborted == [[PRODUCER, 0]]
    assert await mark(world, ended(PRODUCER, 2), broker=2) == [[0]]
    assert stable(world, 2) == 5


@in_world(run_world)
async def test_a_transaction_whose_records_expired_holds_nobody_back_below_the_log_start(
    world: ReplicaWorld,
) -> None:
    """It stays open, however long nobody hears of its producer (KIP-664)."""

    await write(world, 2)
    answer = world.produce(1, batch(3))
    await world.pass_ms(1)
    await answer
    replica = world.replica(1)
    later_ms = NOW_MS + 10**12
    replica.log.roll_if_due(later_ms)
    replica.log.retention(later_ms, replica.high_watermark)
    assert replica.log.log_start_offset == 5
    assert replica.last_stable_offset == 5
    (producer,) = unpack_producers(await world.ask(1, PRODUCERS))
    assert producer[5] == 0
    assert await mark(world, ended(PRODUCER, 1, committed=False)) == [[0]]
    found = FetchedPartition(*await world.fetch(1, 5, committed=True))
    assert (found.last_stable_offset, found.high_watermark) == (6, 6)


@in_world(run_world, brokers=1)
async def test_a_repeated_marker_of_an_older_coordinator_is_fenced_too(world: ReplicaWorld) -> None:
    """It is here already; whoever sent it is to learn that another coordinates by now."""

    await write(world)
    marker = ended(PRODUCER, 1, coordinator_epoch=5)
    assert await mark(world, marker) == [[ErrorCode.NONE]]
    older = ended(PRODUCER, 1, coordinator_epoch=4)
    assert await mark(world, older) == [[ErrorCode.TRANSACTION_COORDINATOR_FENCED]]
    assert await mark(world, marker) == [[ErrorCode.NONE]]
    assert world.replica(1).log.log_end_offset == 2, "nothing is written twice"
