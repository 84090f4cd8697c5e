"""A controller whose term ends while work is in progress: none of it continues."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from raylog.actors.controller.actor import ControllerActor
from raylog.actors.controller.messages import AddVoter, Follow, RegisterBroker
from raylog.actors.controller.rules.decision import Decision
from raylog.actors.controller.rules.quorum import QuorumLost
from raylog.actors.controller.term import Term
from raylog.actors.metadata.records import LeaderChanged
from raylog.actors.peers.metadata_copies import EncodedSnapshot
from raylog.wire.errors import NotController, RequestTimedOut
from tests.worlds.broker.voters import CLUSTER, VoterWorld
from tests.worlds.decorators import in_world
from tests.worlds.runtime import settle

BETWEEN_SNAPSHOTS = 1_000
SETTINGS = {"metadata.log.max.record.bytes.between.snapshots": str(BETWEEN_SNAPSHOTS)}
RECORD = LeaderChanged(1)


class Led:
    """The only voter, and a controller that has won an epoch and writes on request."""

    def __init__(self) -> None:
        self.voters = VoterWorld(2)
        self.voters.voters = self.voters.voters[:1]
        self.controller = ControllerActor(
            self.voters.runtime, cluster_id=CLUSTER, broker_ids=[0], settings=SETTINGS
        )

    async def start(self) -> None:
        await self.voters.up(0, 1)
        self.term: Term = await self.controller._take_over()

    def end(self, *, another: bool) -> None:
        """End the term; perhaps another one of this controller has begun at once."""
        following = replace(self.term) if another else None
        self.controller._resign("over")
        self.controller._term = following

    def begin(self, coroutine: Awaitable[Any]) -> asyncio.Future[Any]:
        return asyncio.ensure_future(coroutine)

    @property
    def written(self) -> int:
        """The voter's log end offset."""
        return self.voters.hosts[0].voter.rules.copy.next_offset

    @property
    def snapshot_at(self) -> int:
        """Offset of the voter's snapshot."""
        return self.voters.hosts[0].voter.state().start_offset


def play(story: Callable[[Led], Awaitable[None]]) -> None:
    async def main() -> None:
        led = Led()
        await led.start()
        await story(led)

    asyncio.run(main())


followed_by = pytest.mark.parametrize("another", [False, True], ids=["none", "another"])


@followed_by
def test_a_snapshot_that_was_begun_for_a_broker_is_not_reported(another: bool) -> None:
    async def story(led: Led) -> None:
        led.term.recent.clear()
        following = led.begin(led.controller.follow(Follow(1, 0, 0)))
        await asyncio.sleep(0)
        led.end(another=another)
        with pytest.raises(NotController, match="term is over"):
            await following

    play(story)


@followed_by
def test_waiting_follower_gets_not_controller(another: bool) -> None:
    async def story(led: Led) -> None:
        following = led.begin(led.controller.follow(Follow(1, led.term.committed, 60_000)))
        await settle()
        assert not following.done()
        led.end(another=another)
        with pytest.raises(NotController, match="term is over"):
            await following

    play(story)


@followed_by
def test_a_decision_of_many_steps_stops_between_two_of_them(another: bool) -> None:
    async def story(led: Led) -> None:
        steps = 0

        def decide(_: object) -> Decision[None]:
            nonlocal steps
            steps += 1
            return Decision([], None, more=steps < 10)

        deciding = led.begin(led.controller._decide(decide))
        await asyncio.sleep(0)
        led.end(another=another)
        with pytest.raises(NotController):
            await deciding
        assert steps == 1

    play(story)


def test_a_decision_of_many_steps_is_asked_until_there_are_no_more() -> None:
    async def story(led: Led) -> None:
        steps = 0

        def decide(_: object) -> Decision[int]:
            nonlocal steps
            steps += 1
            return Decision([], steps, more=steps < 3)

        assert await led.controller._decide(decide) == 3

    play(story)


@followed_by
def test_a_snapshot_for_the_voters_is_not_put_in_place(another: bool) -> None:
    async def story(led: Led) -> None:
        encoded: asyncio.Future[EncodedSnapshot] = asyncio.get_running_loop().create_future()
        led.term.snapshotting = True
        led.term.more.clear()
        made = led.begin(led.controller._snapshot(led.term, encoded))
        await settle()
        led.end(another=another)
        led.term.more.clear()
        encoded.set_result(EncodedSnapshot(led.term.committed, []))
        await made
        assert led.snapshot_at == 0
        assert led.term.quorum.adopted[0].offset == 0
        assert not led.term.snapshotting
        assert led.term.more.is_set()

    play(story)


@followed_by
def test_unwritten_decision_reaches_no_voter_after_the_term(another: bool) -> None:
    async def story(led: Led) -> None:
        before = led.written
        led.controller._append(led.term, [RECORD])
        waiting = led.begin(led.term.until_committed(before + 1))
        await settle()
        led.end(another=another)
        with pytest.raises(QuorumLost, match="the term is over"):
            await led.controller._write_forever(led.term)
        with pytest.raises(NotController, match="over"):
            await waiting
        assert led.written == before

    play(story)


async def joining(led: Led, monkeypatch: pytest.MonkeyPatch, level: Any) -> asyncio.Future[Any]:
    """A copy that is to vote, of which `level` says what becomes of bringing it level."""
    registering = led.begin(
        led.controller.register_broker(RegisterBroker(1, CLUSTER, "d1", "i1", "h", 1))
    )
    await settle()
    await led.controller._write(led.term)
    await registering

    async def bring_level(self: object, *voter: object) -> bool:
        assert voter == (1, "d1")
        outcome: bool = level()
        return outcome

    monkeypatch.setattr(type(led.term.quorum), "bring_level", bring_level)
    return led.begin(led.controller.add_voter(AddVoter(1, "d1", 60_000)))


@followed_by
def test_a_voter_that_is_level_by_then_is_not_added(
    monkeypatch: pytest.MonkeyPatch, another: bool
) -> None:
    async def story(led: Led) -> None:
        def level() -> bool:
            led.end(another=another)
            return True

        adding = await joining(led, monkeypatch, level)
        with pytest.raises(NotController, match="term is over"):
            await adding
        assert led.term.unwritten == []
        assert led.term.quorum.voters == ((0, "d0"),)

    play(story)


@in_world(play)
async def test_a_copy_that_knows_a_later_epoch_ends_the_term_and_joins_the_next(
    led: Led, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    adding = await joining(led, monkeypatch, lambda: False)
    with pytest.raises(NotController, match="one that the new voter can follow"):
        await adding
    assert led.controller._term is None
    led.term.machine.voters.begin_joining(AddVoter(1, "d1", 1), led.term.committed)


@in_world(play)
async def test_a_copy_that_is_not_brought_level_leaves_the_term_as_it_is(
    led: Led, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    def level() -> bool:
        raise QuorumLost("broker 1 does not take the metadata log")

    adding = await joining(led, monkeypatch, level)
    with pytest.raises(RequestTimedOut, match="lagging behind: broker 1 does not take"):
        await adding
    assert led.controller._term is led.term
    led.term.machine.voters.begin_joining(AddVoter(1, "d1", 1), led.term.committed)


@pytest.mark.parametrize(
    ("more_bytes", "making", "taken"),
    [(0, False, False), (1, False, True), (1, True, False)],
    ids=["not yet", "enough", "one is being made"],
)
@in_world(play)
async def test_voters_get_a_snapshot_when_enough_was_written_and_none_is_being_made(
    led: Led, *, monkeypatch: pytest.MonkeyPatch, more_bytes: int, making: bool, taken: bool
) -> None:
    led.term.bytes_since_snapshot = BETWEEN_SNAPSHOTS + more_bytes
    led.term.snapshotting = making
    writing = led.begin(led.controller._write_forever(led.term))
    led.term.more.set()
    for _ in range(20):
        await settle()
    assert led.snapshot_at == (led.term.committed if taken else 0)
    assert led.term.snapshotting == making
    expected = 0 if taken else BETWEEN_SNAPSHOTS + more_bytes
    assert led.term.bytes_since_snapshot == expected
    writing.cancel()
