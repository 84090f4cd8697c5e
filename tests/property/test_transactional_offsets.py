"""Transactional and plain offset commits, markers, tombstones and crashes, in any order.

What the shard answers at any time, and what it reads back from the bytes, equals a replay of every
record with its offset, as in Apache Kafka. The log may refuse any append.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.coordination.rules import records
from raylog.actors.group.rules.offset_store import Topics
from raylog.actors.replica import messages as api
from raylog.wire.control import decode_end_txn_marker
from raylog.wire.errors import ErrorCode, NotEnoughReplicas, NotLeaderOrFollower
from raylog.wire.internal.blobs import OFFSETS_TOPIC
from raylog.wire.internal.offsets import OffsetCommitKey, OffsetCommitValue
from raylog.wire.messages.delete_groups import DeleteGroupsRequest
from raylog.wire.records import NO_PRODUCER_ID, decode_batch, iter_batches
from tests.unit.actors.group.test_offsets import committing, deleting
from tests.worlds.group.actor import Asking, CoordinatorWorld
from tests.worlds.group.actor import run as run_world
from tests.worlds.group.pending_offsets import committing_in, marker
from tests.worlds.runtime import settle

PRODUCERS = (1, 2)
GROUPS = "ab"
Place = tuple[str, int]
"""Group and partition."""


class Written(NamedTuple):
    """An offset, and the offset of its record in the log."""

    offset: int
    at: int


@dataclass
class Model:
    """The simplest possible replay of the log."""

    committed: dict[Place, Written] = field(default_factory=dict)
    pending: dict[int, dict[Place, Written]] = field(default_factory=dict)

    @classmethod
    def of(cls, log: bytes) -> Model:
        model = cls()
        for header, batch in iter_batches(log):
            found = decode_batch(batch)
            if header.is_control:
                ended = decode_end_txn_marker(found[0])
                assert ended is not None
                model.end(header.producer_id, committed=ended.is_commit)
                continue
            for record in found:
                decoded = records.decode(OFFSETS_TOPIC, record.key, record.value)
                assert decoded is not None
                if isinstance(decoded.key, OffsetCommitKey):
                    model.take(header.producer_id, record.offset, decoded.key, decoded.value)
        return model

    def take(self, producer_id: int, at: int, key: OffsetCommitKey, value: object) -> None:
        place = (key.group, key.partition)
        if not isinstance(value, OffsetCommitValue):
            for one in (self.committed, *self.pending.values()):
                one.pop(place, None)
        elif producer_id == NO_PRODUCER_ID:
            self.committed[place] = Written(value.offset, at)
        else:
            self.pending.setdefault(producer_id, {})[place] = Written(value.offset, at)

    def end(self, producer_id: int, *, committed: bool) -> None:
        for place, written in self.pending.pop(producer_id, {}).items():
            known = self.committed.get(place)
            if committed and (known is None or known.at < written.at):
                self.committed[place] = written

    def unstable(self) -> set[Place]:
        return {place for found in self.pending.values() for place in found}


class Playing:
    """One run: the requests, and the current epoch of each producer."""

    def __init__(self, world: CoordinatorWorld) -> None:
        self.world = world
        self.epochs = dict.fromkeys(PRODUCERS, 1)
        world.log.epochs.update(self.epochs)
        self.asked: list[Asking] = []
        self.offset = 0

    def next_offset(self) -> int:
        self.offset += 1
        return self.offset

    async def plain(self, group: str, partition: int) -> None:
        request = committing({partition: self.next_offset()}, group=group)
        self.asked.append(self.world.send(request, 9))

    async def inside(self, group: str, partition: int, producer_id: int, behind: int) -> None:
        """Commit as a producer, or as its predecessor `behind` epochs ago."""
        request = committing_in(
            {partition: self.next_offset()},
            group=group,
            producer_id=producer_id,
            epoch=self.epochs[producer_id] - behind,
        )
        self.asked.append(self.world.send(request, 5))

    async def end(self, producer_id: int, committed: bool, bumps: bool) -> None:
        """End a transaction: of version 2 if it bumps the epoch, else of version 1."""
        self.epochs[producer_id] += bumps
        self.world.mark(
            marker(
                committed=committed,
                producer_id=producer_id,
                epoch=self.epochs[producer_id],
                version=2 if bumps else 1,
            )
        )

    async def late_end(self, producer_id: int, committed: bool) -> None:
        """Send a marker again, or for the first time after its successor."""
        epoch = self.epochs[producer_id]
        self.world.mark(
            marker(committed=committed, producer_id=producer_id, epoch=epoch, version=2)
        )

    async def forget(self, group: str, partition: int) -> None:
        self.asked.append(self.world.send(deleting(partition, group=group), 0))

    async def delete_group(self, group: str) -> None:
        self.asked.append(self.world.send(DeleteGroupsRequest(groups_names=[group]), 2))

    async def turn(self) -> None:
        await self.world.runtime.advance(1)

    async def hold(self) -> None:
        self.world.link.holding = True

    async def release(self) -> None:
        self.world.link.release()
        await self.turn()

    async def refuse(self) -> None:
        """Let the log refuse the first append in flight, without being read again."""
        loads = self.world.link.kinds().count(api.CLAIM)
        self.world.log.refusals.append(NotEnoughReplicas("too few"))
        await self.release()
        self.world.log.refusals.clear()
        assert self.world.link.kinds().count(api.CLAIM) == loads

    async def lose(self, is_written: bool) -> None:
        """Let an append fail without telling whether its records are in the log."""
        log = self.world.log
        log.failure, log.writes_failing = NotLeaderOrFollower("it is closed"), is_written
        await self.release()
        log.failure = None
        await self.turn()
        await settle()

    async def crash(self, is_written: bool) -> None:
        """End the coordinator's process. What is in flight is written or not."""
        if is_written:
            await self.release()
        self.world.link.held.clear()
        self.world.link.holding = False
        await self.world.actor.stop()
        self.world.restart()
        await self.world.begin()

    async def rest(self) -> None:
        """Let everything in flight arrive."""
        self.world.link.release()
        await self.world.runtime.advance(10_000)
        await settle()
        assert all(host.is_active for host in self.world.actor._shards)


_groups, _partitions = st.sampled_from("aaaab"), st.sampled_from((0, 0, 0, 1))  # often the same
_producers = st.sampled_from(PRODUCERS)
Action = Callable[[Playing], Coroutine[Any, Any, None]]


def _call(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Action]:
    def build(given_ones: tuple[Any, ...]) -> Action:
        return lambda playing: getattr(playing, name)(*given_ones)

    return st.tuples(*arguments).map(build)


_actions = st.one_of(
    _call("plain", _groups, _partitions),
    _call("inside", _groups, _partitions, _producers, st.just(0)),
    _call("inside", _groups, _partitions, _producers, st.just(0)),
    _call("inside", _groups, _partitions, _producers, st.just(1)),
    _call("end", _producers, st.booleans(), st.booleans()),
    _call("end", _producers, st.just(True), st.just(True)),
    _call("late_end", _producers, st.booleans()),
    st.one_of(_call("forget", _groups, _partitions), _call("delete_group", _groups)),
    st.one_of(_call("turn"), _call("hold"), _call("release")),
    _call("refuse"),
    st.one_of(_call("lose", st.booleans()), _call("crash", st.booleans())),
)


def fetched(world: CoordinatorWorld) -> tuple[dict[Place, int], set[Place]]:
    """The committed offsets, and the partitions with pending ones."""
    host = world.actor._shards.get(0)
    assert host is not None
    store = host.shard.offsets
    committed = {}
    for group, topics in store.groups.items():
        found: Topics = topics
        for index, stored in found.get("t", {}).items():
            committed[group, index] = stored.offset
    return committed, {
        (group, index) for group in store.groups for _, index in store.pending.of(group)
    }


def committed(world: CoordinatorWorld) -> dict[Place, int]:
    """The offsets that are answered now, whatever is in flight."""
    host = world.actor._shards.get(0)
    assert host is not None
    store = host.shard.offsets
    return {
        (group, index): stored.offset
        for group in GROUPS
        for index, stored in store.committed(group).get("t", {}).items()
    }


async def check(playing: Playing) -> None:
    """Compare the shard at rest with the log, and again after reading it back."""
    await playing.rest()
    model = Model.of(playing.world.log.bytes())
    expected = ({place: one.offset for place, one in model.committed.items()}, model.unstable())
    assert fetched(playing.world) == expected
    await playing.crash(is_written=True)
    assert fetched(playing.world) == expected


@given(st.lists(_actions, min_size=5, max_size=40))
def test_shard_state_matches_the_log(actions: list[Action]) -> None:
    async def scenario(world: CoordinatorWorld) -> None:
        await world.begin()
        playing = Playing(world)
        for action in actions:
            await action(playing)
            if not all(host.is_active for host in world.actor._shards):
                continue  # it is being read
            model = Model.of(world.log.bytes())
            assert committed(world) == {place: one.offset for place, one in model.committed.items()}
        await check(playing)

    with tempfile.TemporaryDirectory() as directory:
        run_world(scenario, Path(directory))


@given(st.lists(st.tuples(_groups, _partitions, _producers), min_size=1, max_size=12))
def test_every_acknowledged_offset_counts_once_its_transaction_has_committed(
    commits: list[tuple[str, int, int]],
) -> None:
    """The last of each partition, across transactions of several producers."""

    async def scenario(world: CoordinatorWorld) -> None:
        await world.begin()
        last: dict[Place, int] = {}
        for offset, (group, partition, producer_id) in enumerate(commits):
            request = committing_in({partition: offset}, group=group, producer_id=producer_id)
            answer = await world.ask(request, 5)
            assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
            last[group, partition] = offset
        for producer_id in PRODUCERS:
            assert await world.end(marker(producer_id=producer_id)) == [["NONE"]]
        assert fetched(world) == (last, set())

    with tempfile.TemporaryDirectory() as directory:
        run_world(scenario, Path(directory))
