"""A producer that a partition does not know may begin anywhere, except after a refused batch.

Clients have several batches of a sequence in flight. If the first is refused because the leader has
only just been elected, and the next one is accepted, they assume that the first was written too. A
topic that was recreated under its old name does not know its producers either: there clients just
continue.
"""

from __future__ import annotations

from raylog.actors.replica.partition import REFUSED_MAX
from raylog.wire.errors import ErrorCode
from tests.worlds.decorators import in_world
from tests.worlds.replica.actor import ReplicaWorld, run_world
from tests.worlds.storage.logs import batch

OUT_OF_ORDER = [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]


@in_world(run_world)
async def test_an_unknown_producer_goes_on_where_it_is(world: ReplicaWorld) -> None:
    unknown = world.produce(1, batch(2, producer_id=7, sequence=3))
    await world.pass_ms(0)
    (answer,) = await unknown
    assert not isinstance(answer, ErrorCode)
    assert answer.base_offset == 0


@in_world(run_world)
async def test_sequence_refused_at_the_sender_must_be_written_first(world: ReplicaWorld) -> None:
    second = world.produce(1, batch(2, producer_id=7, sequence=3), refused_sequence=0)
    await world.pass_ms(0)
    assert await second == OUT_OF_ORDER
    both = world.produce(
        1,
        batch(3, producer_id=7, sequence=0),
        batch(2, producer_id=7, sequence=3),
        refused_sequence=0,
    )
    await world.pass_ms(0)
    assert [one.base_offset for one in await both if not isinstance(one, ErrorCode)] == [0, 3]


@in_world(run_world)
async def test_sequence_refused_by_the_partition_must_be_written_first(world: ReplicaWorld) -> None:
    first = world.produce(1, batch(3, producer_id=7, sequence=0), leader_epoch=9)
    second = world.produce(1, batch(2, producer_id=7, sequence=3))
    await world.pass_ms(0)
    assert await first == [ErrorCode.UNKNOWN_LEADER_EPOCH]
    assert await second == OUT_OF_ORDER
    again = world.produce(1, batch(3, producer_id=7, sequence=0))
    await world.pass_ms(0)
    assert not isinstance((await again)[0], ErrorCode)
    assert not world.replica(1).refused


@in_world(run_world)
async def test_a_new_epoch_of_a_refused_producer_begins_anew(world: ReplicaWorld) -> None:
    first = world.produce(1, batch(3, producer_id=7, sequence=0), leader_epoch=9)
    later = world.produce(1, batch(2, producer_id=7, producer_epoch=1, sequence=0))
    await world.pass_ms(0)
    assert await first == [ErrorCode.UNKNOWN_LEADER_EPOCH]
    assert not isinstance((await later)[0], ErrorCode)


@in_world(run_world)
async def test_only_so_many_refused_producers_are_remembered(world: ReplicaWorld) -> None:
    refused = [
        world.produce(1, batch(1, producer_id=one), leader_epoch=9)
        for one in range(REFUSED_MAX + 2)
    ]
    await world.pass_ms(0)
    assert {code for one in refused for code in await one} == {ErrorCode.UNKNOWN_LEADER_EPOCH}
    assert len(world.replica(1).refused) == REFUSED_MAX
    assert (0, 0) not in world.replica(1).refused


@in_world(run_world)
async def test_only_unknown_producers_are_held_to_what_was_refused(world: ReplicaWorld) -> None:
    """A known one has to go on where it was, and one without sequences anywhere."""

    known = world.produce(1, batch(3, producer_id=7, sequence=0))
    await world.pass_ms(0)
    assert not isinstance((await known)[0], ErrorCode)
    for one in (batch(2, producer_id=7, sequence=3), batch(2)):
        refused = world.produce(1, one, leader_epoch=9)
        await world.pass_ms(0)
        assert await refused == [ErrorCode.UNKNOWN_LEADER_EPOCH]
        assert not world.replica(1).refused
