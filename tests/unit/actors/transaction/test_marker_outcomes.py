"""When markers are sent again, where to, and what is kept of them in the end."""

import gc
from dataclasses import replace

import pytest

from raylog.actors.common_messages import TopicId
from raylog.actors.metadata.records import (
    PartitionChanged,
    PartitionCreated,
    TopicCreated,
    TopicDeleted,
)
from raylog.actors.names import OFFSETS_TOPIC
from raylog.actors.transaction import markers
from raylog.actors.transaction.messages import ANY_LEADER_EPOCH, AddPartitions, MarkedPartition
from raylog.actors.transaction.rules.state import LAST_EPOCH
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.describe_transactions import DescribeTransactionsRequest
from tests.unit.actors.transaction.test_actor import EVERYWHERE, T0, T1, U0, opened, state
from tests.worlds.decorators import TMP_PATH, in_world
from tests.worlds.group.actor import BROKER
from tests.worlds.metadata import id_of
from tests.worlds.runtime import settle
from tests.worlds.transaction.actor import (
    GROUPS,
    LOCAL,
    OTHER_BROKER,
    REMOTE,
    TransactionActorWorld,
    run,
)
from tests.worlds.transaction.shard import INIT_VERSION, SECOND, end, init

NO_LEADER = -1


@in_world(run, TMP_PATH)
async def test_markers_in_flight_are_repeated_once_a_higher_epoch_is_durable(
    world: TransactionActorWorld,
) -> None:
    await world.begin()
    holder = await opened(world, with_offsets=False)
    remote = world.leaders[REMOTE]
    remote.link.answering = None
    await world.ask(end(*holder), SECOND)
    await world.world.advance(100)
    world.link.holding = True
    remote.link.lose()
    remote.link.is_open = True
    remote.link.answering = remote._answer
    await world.world.advance(5_000)
    assert remote.frames == 0, "a successor does not know of the epoch yet"
    world.link.release()
    await world.world.advance(2_000)
    assert await state(world) == "CompleteCommit"
    assert [one.coordinator_epoch for one in remote.markers[U0]] == [1]


@in_world(run, TMP_PATH)
async def test_a_partition_without_a_leader_is_waited_for(world: TransactionActorWorld) -> None:
    await world.begin()
    holder = await opened(world, with_offsets=False)
    await world.apply(PartitionChanged(id_of("u"), 0, leader=NO_LEADER))
    await world.ask(end(*holder), SECOND)
    await world.world.advance(5_000)
    assert await state(world) == "PrepareCommit"
    assert world.outcomes() == {T0: [True], T1: [True]}
    await world.apply(PartitionChanged(id_of("u"), 0, leader=BROKER))
    await world.world.advance(1_000)
    assert await state(world) == "CompleteCommit"
    assert world.leaders[LOCAL].markers[U0]


@pytest.mark.parametrize("is_sent", [True, False])
@in_world(run, TMP_PATH)
async def test_a_topic_that_was_made_anew_with_fewer_partitions_counts_as_done(
    world: TransactionActorWorld, *, is_sent: bool
) -> None:
    await world.begin()
    holder = await opened(world, with_offsets=False)
    if is_sent:
        world.leaders[LOCAL].link.answering = None
    else:
        world.brokers[BROKER].leads = False
    await world.ask(end(*holder), SECOND)
    await world.world.advance(100)
    again = TopicId(b"again".rjust(16))
    await world.apply(
        TopicDeleted(id_of("t")),
        TopicCreated(again, "t"),
        PartitionCreated(again, 0, (1,), (1,), OTHER_BROKER),
    )
    await world.world.advance(2_000)
    assert await state(world) == "CompleteCommit"
    assert [*world.leaders[REMOTE].markers] == [U0, (again, 0)]


@in_world(run, TMP_PATH)
async def test_a_leader_of_the_same_epoch_is_not_left_when_other_metadata_change(
    world: TransactionActorWorld,
) -> None:
    await world.begin()
    holder = await opened(world, with_offsets=False)
    link = world.leaders[REMOTE].link
    link.answering = None
    await world.ask(end(*holder), SECOND)
    await world.world.advance(100)
    await world.apply(PartitionChanged(id_of("t"), 0, leader=OTHER_BROKER))
    await world.world.advance(5_000)
    (request,) = link.requests
    request.reply([[0]])
    await settle()
    assert await state(world) == "CompleteCommit"
    assert world.actor._shards.get(0).coordinator_epoch == 0  # type: ignore[union-attr]


@in_world(run, TMP_PATH)
async def test_the_end_of_offsets_is_written_by_their_coordinator_and_told_no_other(
    world: TransactionActorWorld,
) -> None:
    await world.begin()
    holder = await opened(world)
    world.leaders[GROUPS].codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 3
    await world.ask(end(*holder), SECOND)
    await world.world.advance(1_000)
    assert await state(world) == "CompleteCommit"
    (marker,) = world.leaders[GROUPS].markers[id_of(OFFSETS_TOPIC), 0]
    assert marker.partitions == [MarkedPartition(id_of(OFFSETS_TOPIC), 0, 0)]
    assert marker.partitions[0].leader_epoch != ANY_LEADER_EPOCH
    assert [leader.frames for leader in world.leaders.values()] == [1, 1, 4]


@in_world(run, TMP_PATH)
async def test_a_link_that_was_lost_is_opened_again_and_another_one_is_kept(
    world: TransactionActorWorld,
) -> None:
    await world.begin()
    holder = await opened(world, with_offsets=False)
    await world.ask(end(*holder), SECOND)
    await world.world.advance(100)
    asked: list[str] = []
    connect = world.world.connect

    async def recording(address: str) -> object:
        asked.append(address)
        return await connect(address)

    world.world.connect = recording  # type: ignore[method-assign,assignment]  # to count
    remote = world.leaders[REMOTE].link
    remote.lose()
    remote.is_open = True
    assert await world.ask_add(AddPartitions("x", holder[0], 1, False, EVERYWHERE)) == [0] * 3
    await world.ask(end(holder[0], 1), SECOND)
    await world.world.advance(100)
    assert asked == [REMOTE]
    assert await state(world) == "CompleteCommit"


@in_world(run, TMP_PATH)
async def test_links_to_leaders_are_closed_at_the_end(world: TransactionActorWorld) -> None:
    await world.begin()
    holder = await opened(world)
    await world.ask(end(*holder), SECOND)
    await world.world.advance(100)
    assert all(leader.link.is_open for leader in world.leaders.values())
    await world.actor.stop()
    assert not any(leader.link.is_open for leader in world.leaders.values())
    assert not world.link.is_open


@in_world(run, TMP_PATH)
async def test_nothing_is_kept_of_transactions_that_have_ended(
    world: TransactionActorWorld,
) -> None:
    await world.begin()
    holder = await opened(world)
    for epoch in range(5):
        one = AddPartitions("x", holder[0], epoch, False, EVERYWHERE)
        assert await world.ask_add(one) == [0] * 3
        world.leaders[LOCAL].codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
        assert not (await world.ask(end(holder[0], epoch), SECOND)).error_code
        await world.world.advance(1_000)
        for leader in world.leaders.values():
            leader.link.requests.clear()
    assert await state(world) == "CompleteCommit"
    gc.collect()
    kept = (markers._Sending, markers._Piece, markers._Frame)
    assert not [one for one in gc.get_objects() if isinstance(one, kept)]


@in_world(run, TMP_PATH)
async def test_producer_ids_are_asked_for_before_the_last_are_gone(
    world: TransactionActorWorld,
) -> None:
    await world.begin()
    broker = world.brokers[BROKER]
    for number in range(901):
        assert not (await world.ask(init(f"id-{number}"), INIT_VERSION)).error_code
    assert broker.next_id == 2_000, "100 were left"
    assert not (await world.ask(init("next"), INIT_VERSION)).error_code
    assert broker.next_id == 3_000


@in_world(run, TMP_PATH)
async def test_end_with_the_last_epoch_requests_a_new_producer_id(
    world: TransactionActorWorld,
) -> None:
    """No InitProducerId brings it: the producer goes on without one."""

    await world.begin()
    holder = await opened(world, with_offsets=False)
    host = world.actor._shards.get(0)
    assert host is not None
    ids = host.shard.ids
    ids.transactions["x"] = replace(ids.transactions["x"], producer_epoch=LAST_EPOCH)
    while len(ids.producer_ids):
        ids.producer_ids.take()
    answer = await world.ask(end(holder[0], LAST_EPOCH), SECOND)
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    again = await world.ask(end(holder[0], LAST_EPOCH), SECOND)
    assert (again.error_code, again.producer_id, again.producer_epoch) == (0, 2_000, 0)


@in_world(run, TMP_PATH)
async def test_few_that_are_named_twice_are_described_twice(world: TransactionActorWorld) -> None:
    """As in Kafka."""

    await world.begin()
    await opened(world)
    request = DescribeTransactionsRequest(transactional_ids=["x", "y", "x"])
    found = (await world.ask(request, 0)).transaction_states
    assert [one.transactional_id for one in found] == ["x", "y", "x"]
