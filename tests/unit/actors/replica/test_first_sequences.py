"""A producer that a partition has not seen begins at 0, unless it may have been forgotten.

Clients have several batches of a sequence on their way. When the first is refused because the
leader is only becoming one, and the next is taken, they believe that the first is there, too.
"""

from __future__ import annotations

import pytest

from raylog.wire.errors import ErrorCode
from tests.support.logs import batch
from tests.support.replica_world import ReplicaWorld, run_world


def test_a_sequence_without_its_beginning_is_out_of_order() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        second = world.produce(1, batch(2, producer_id=7, sequence=3))
        await world.pass_ms(0)
        assert await second == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
        both = world.produce(
            1,
            batch(3, producer_id=7, sequence=0),
            batch(2, producer_id=7, sequence=3),
        )
        await world.pass_ms(0)
        assert [one.base_offset for one in await both if not isinstance(one, ErrorCode)] == [0, 3]

    run_world(scenario)


@pytest.mark.parametrize("why", ["expired", "records deleted", "compacted"])
def test_a_producer_that_may_be_forgotten_goes_on(why: str) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        first = world.produce(1, batch(3, producer_id=7, sequence=0))
        await world.pass_ms(100)
        assert await first
        partition = world.replica(1)
        if why == "expired":
            partition.log.producers.expire(2**62, 1)
        elif why == "records deleted":
            partition.log.delete_records_to(3)
        unknown = world.produce(1, batch(2, producer_id=8, sequence=3))
        await world.pass_ms(0)
        (answer,) = await unknown
        assert not isinstance(answer, ErrorCode)
        assert answer.base_offset == 3

    run_world(scenario, config={"cleanup.policy": "compact"} if why == "compacted" else {})
