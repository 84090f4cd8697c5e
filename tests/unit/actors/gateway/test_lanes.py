"""Work in lanes: ordered per partition, a limited number of lanes at a time, despite failures."""

from __future__ import annotations

from raylog.actors.gateway.lanes import WIDTH, Lanes
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import World, run, topic_id
from tests.worlds.runtime import settle


@in_world(run)
async def test_work_that_fails_leaves_its_lane_to_others(world: World) -> None:
    lanes = Lanes(world.gateway.runtime)
    done: list[int] = []
    failures: list[Exception] = []

    async def works(number: int) -> int:
        if number <= WIDTH:
            raise ValueError(number)
        return number

    for number in range(WIDTH + 3):
        lanes.enter(
            (topic_id("t"), number % (WIDTH + 2)),
            lambda number=number: works(number),  # type: ignore[misc]  # bound at once
            done.append,
            failures.append,
        )
    await settle()
    assert len(failures) == WIDTH + 1
    assert sorted(done) == [WIDTH + 1, WIDTH + 2]
    assert not any((topic_id("t"), number) in lanes for number in range(WIDTH + 2))
