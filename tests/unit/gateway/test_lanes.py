"""Work in lanes: in order for each partition, some lanes at a time, whatever fails."""

from __future__ import annotations

from raylog.actors.gateway.lanes import WIDTH, Lanes
from tests.support.gateway_world import World, run, settle, topic_id


def test_work_that_fails_leaves_its_lane_to_others() -> None:
    async def scenario(world: World) -> None:
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

    run(scenario)
