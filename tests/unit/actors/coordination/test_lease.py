"""A coordinator answers from memory only while no other broker can lead its partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

from raylog.actors.coordination.lease import PAUSE_MS, WAIT_MS, LeaseHolder
from raylog.actors.runtime.base import PeerLost
from raylog.wire.errors import BrokerNotAvailable, UnsupportedVersion
from tests.worlds.decorators import in_world
from tests.worlds.runtime import FakeRuntime, settle

LASTS_MS = 4_000


@dataclass
class World:
    """A coordinator's lease, and its Broker."""

    runtime: FakeRuntime = field(default_factory=FakeRuntime)
    image: SimpleNamespace = field(
        default_factory=lambda: SimpleNamespace(brokers={1: None, 2: None}, offset=7)
    )
    heartbeat_ms: float = 1_000_000.0
    """When the Broker sent its latest answered heartbeat."""
    end: int = 7
    """The end of the metadata log in its answer."""
    failure: Exception | None = None
    takes_ms: float = 0.0
    calls: int = 0
    outcomes: list[tuple[str, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.runtime.peers["broker"] = self
        self.lease = LeaseHolder(
            self.runtime,  # type: ignore[arg-type]  # a fake
            "broker",
            self.image,  # type: ignore[arg-type]  # a fake
        )

    async def last_heartbeat(self) -> tuple[float, int, int]:
        """What the Broker answers."""
        self.calls += 1
        answer = (self.runtime.monotonic_ms() - self.heartbeat_ms, self.end, LASTS_MS)
        await self.runtime.sleep(self.takes_ms / 1000)
        if self.failure is not None:
            raise self.failure
        return answer

    def request(self, name: str) -> None:
        """Request something; the outcome is whether it may be answered."""
        self.lease.check(lambda is_valid: self.outcomes.append((name, is_valid)))

    async def is_answered(self) -> bool:
        """Request something and wait; return whether it was answered."""
        self.request("")
        await settle()
        if not self.outcomes:
            await self.runtime.advance(WAIT_MS)
        return self.outcomes.pop()[1]

    async def pass_ms(self, ms: float, *, beats: bool = False) -> None:
        """Let time pass; with `beats` the controller answers a heartbeat then."""
        await self.runtime.advance(ms)
        if beats:
            self.heartbeat_ms = self.runtime.monotonic_ms()


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World()
        await scenario(world)
        assert not world.runtime.failures

    asyncio.run(main())


@in_world(run)
async def test_first_requests_wait_for_the_broker_in_order(world: World) -> None:
    world.request("first")
    world.request("second")
    assert world.outcomes == []
    await settle()
    world.request("third")
    assert world.outcomes == [("first", True), ("second", True), ("third", True)]
    assert world.calls == 1


@in_world(run)
async def test_the_only_broker_of_a_cluster_needs_no_lease(world: World) -> None:
    world.image.brokers = {1: None}
    world.failure = PeerLost("it hangs")
    assert await world.is_answered()
    assert world.calls == 0
    world.image.brokers = {1: None, 2: None}
    assert not await world.is_answered()


@in_world(run)
async def test_without_its_broker_a_coordinator_answers_until_the_lease_ends(world: World) -> None:
    await world.pass_ms(300)
    assert await world.is_answered()
    world.failure = PeerLost("it hangs")
    await world.pass_ms(LASTS_MS - 301)
    assert await world.is_answered()
    await world.pass_ms(1)
    assert not await world.is_answered()
    world.failure = None
    await world.pass_ms(0, beats=True)
    assert await world.is_answered()


@in_world(run)
async def test_an_old_heartbeat_does_not_extend_the_lease(world: World) -> None:
    assert await world.is_answered()
    for _ in range(LASTS_MS // 500 - 1):
        await world.pass_ms(500)
        assert await world.is_answered()
    await world.pass_ms(500)
    assert not await world.is_answered()
    world.failure = BrokerNotAvailable("a new process that has heard nothing")
    assert not await world.is_answered()


@in_world(run)
async def test_half_a_lease_is_used_before_the_broker_is_asked_again(world: World) -> None:
    assert await world.is_answered()
    await world.pass_ms(LASTS_MS / 2, beats=True)
    assert await world.is_answered()
    assert world.calls == 1
    await world.pass_ms(1)
    assert await world.is_answered()
    assert world.calls == 2
    await world.pass_ms(100 * LASTS_MS)
    assert world.calls == 2, "nobody asked"


@in_world(run)
async def test_a_broker_without_news_is_asked_now_and_then(world: World) -> None:
    assert await world.is_answered()
    await world.pass_ms(LASTS_MS / 2 + 1)
    for _ in range(1_000):
        assert await world.is_answered()
        await world.pass_ms(1)
    assert world.calls - 1 == 1_000 / PAUSE_MS
    await world.pass_ms(LASTS_MS)
    calls = world.calls
    for _ in range(100):
        world.request("")
        await world.pass_ms(WAIT_MS / 20)
    assert world.calls - calls == 5, "those without a lease wait together"
    assert {is_valid for _, is_valid in world.outcomes} == {False}


@in_world(run)
async def test_an_answer_that_was_long_under_way_extends_nothing(world: World) -> None:
    """For example because this process was suspended."""
    world.takes_ms = LASTS_MS
    world.request("")
    await world.pass_ms(LASTS_MS)
    assert world.outcomes == [("", False)]


@in_world(run)
async def test_a_renewal_does_not_shorten_the_lease(world: World) -> None:
    """The Broker took a while to answer, and has sent no heartbeat since."""
    assert await world.is_answered()
    await world.pass_ms(LASTS_MS * 0.75)
    world.takes_ms = WAIT_MS - 1
    assert await world.is_answered()
    await world.pass_ms(WAIT_MS - 1)
    assert await world.is_answered()


@in_world(run)
async def test_metadata_that_the_controller_had_decided_on_comes_first(world: World) -> None:
    """It may say that another broker leads."""
    world.end = 9
    world.request("")
    for offset in (8, 9):
        await settle()
        assert world.outcomes == []
        world.image.offset = offset
        world.lease.metadata_applied()
    assert world.outcomes == [("", True)]


@in_world(run)
async def test_metadata_that_does_not_come_is_waited_for_a_while(world: World) -> None:
    world.end = 9
    assert not await world.is_answered()
    world.image.offset = 9
    world.lease.metadata_applied()
    assert await world.is_answered()
    assert world.calls == 1, "the first answer still counts"


@in_world(run)
async def test_metadata_that_is_always_late_ends_no_lease(world: World) -> None:
    """It is applied 1,300 ms after the controller has decided on it."""
    decided: list[int] = []
    for tick in range(100):
        decided.append(world.end)
        world.image.offset = decided[max(0, tick - 13)]
        world.lease.metadata_applied()
        world.end += 1
        world.request("")
        await world.pass_ms(100, beats=True)
    assert all(is_valid for _, is_valid in world.outcomes[20:])


@in_world(run)
async def test_a_broker_of_an_older_build_is_believed(world: World) -> None:
    world.failure = UnsupportedVersion("it has no method last_heartbeat")
    for _ in range(30):
        assert await world.is_answered()
        await world.pass_ms(1_000)
    world.failure = None  # its successor is of this build
    await world.pass_ms(10 * WAIT_MS)
    assert not await world.is_answered()
