"""Deadlines share one timer, which runs only while a caller waits."""

from raylog.actors.runtime.deadlines import TICK_MS, Deadlines
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import World, run


class Waiting:
    def __init__(self, world: World) -> None:
        self.world = world
        self.over_ms: float | None = None

    def timed_out(self) -> None:
        self.over_ms = self.world.runtime.monotonic_ms()


@in_world(run)
async def test_expired_deadline_is_reported_once_and_soon(world: World) -> None:
    deadlines = Deadlines(world.runtime)  # type: ignore[arg-type]  # a fake
    delays = (0, 1, 999, 1_500, 30_000)
    waiting = [Waiting(world) for _ in delays]
    begin = world.runtime.monotonic_ms()
    for one, delay in zip(waiting, delays, strict=True):
        deadlines.add(one, delay)
    await world.runtime.advance(60_000)
    for one, delay in zip(waiting, delays, strict=True):
        assert one.over_ms is not None
        assert delay <= one.over_ms - begin <= delay + 2 * TICK_MS
    assert world.runtime.pending_timers() == 0


@in_world(run)
async def test_discarded_deadline_does_not_fire_and_leaves_no_timer(world: World) -> None:
    deadlines = Deadlines(world.runtime)  # type: ignore[arg-type]  # a fake
    assert world.runtime.pending_timers() == 0
    answered, late = Waiting(world), Waiting(world)
    deadlines.add(answered, 5_000).discard(answered)
    deadlines.add(late, 5_000)
    assert world.runtime.pending_timers() == 1
    await world.runtime.advance(10_000)
    assert (answered.over_ms is None, late.over_ms is None) == (True, False)
    deadlines.add(answered, 5_000).discard(answered)
    await world.runtime.advance(TICK_MS)
    assert world.runtime.pending_timers() == 0
