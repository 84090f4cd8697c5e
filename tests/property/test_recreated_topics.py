"""A topic that is deleted and recreated at any time, with commits, refusals, loads and crashes.

Offsets committed before are never returned again, and those acknowledged afterwards are never lost.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.metadata.records import Record, TopicDeleted
from raylog.actors.names import OFFSETS_TOPIC
from raylog.actors.replica import messages as api
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.property.test_transactional_offsets import GROUPS, Place, Playing
from tests.unit.actors.group.test_offsets import committing
from tests.worlds.group.actor import Asking, CoordinatorWorld
from tests.worlds.group.actor import run as run_world
from tests.worlds.metadata import id_of, topic_records
from tests.worlds.runtime import settle

WITH_RETENTION, BY_NAME, BY_ID = 4, 9, 10
HOUR_MS = 3_600_000


class Commit(NamedTuple):
    """An offset commit with its answer, once it is there."""

    place: Place
    offset: int
    asking: Asking


class Recreating(Playing):
    """One run in which the topic is recreated several times. Offsets rise with time."""

    def __init__(self, world: CoordinatorWorld) -> None:
        super().__init__(world)
        self.number = 1
        self.first = 1
        """The first offset of the current topic."""
        self.commits: list[Commit] = []

    @property
    def is_legacy(self) -> bool:
        """Whether any offset may lack the topic's id."""
        return any(one.asking.version == WITH_RETENTION for one in self.commits)

    async def commit(self, group: str, partition: int, version: int) -> None:
        """Commit. With a retention time in the request it does not have the topic's id."""
        offset = self.next_offset()
        request = committing({partition: offset}, group=group, retention_ms=HOUR_MS)
        request.topics[0].topic_id = id_of("t", self.number)
        asking = self.world.send(request, version)
        self.commits.append(Commit((group, partition), offset, asking))

    async def recreate(self) -> None:
        """Delete the topic and create it again."""
        await self.world.runtime.advance(1)  # commits without id go by the time
        before, self.number = id_of("t", self.number), self.number + 1
        self.first = self.offset + 1
        await self.world.apply(TopicDeleted(before), *self.topic())
        await self.world.runtime.advance(1)

    async def recreate_in_a_load(self) -> None:
        """Recreate the topic while a new process reads the log."""
        if self.is_legacy:
            await self.rest()  # the old one needs answers for that
        answering, self.world.link.answering = self.world.link.answering, None
        await self.crash(is_written=False)
        await self.recreate()
        self.world.link.answering = answering
        self.world.link.take(api.CLAIM).reply(self.world.log.end)
        await settle()

    async def recreate_unseen(self) -> None:
        """Recreate the topic without a coordinator.

        Offsets without id are not known to be old then.
        """
        if self.is_legacy:
            return
        self.number += 1
        self.first = self.offset + 1
        await self.crash(is_written=False)

    async def crash(self, is_written: bool) -> None:
        """Crash. Offsets without id are not known to be old unless the log has their tombstone."""
        if self.is_legacy:
            await self.rest()
        elif is_written:
            await self.release()
        self.world.link.held.clear()
        self.world.link.holding = False
        await self.world.actor.stop()
        self.world.restart()
        found = [*topic_records(OFFSETS_TOPIC), *self.topic()]
        await self.world.actor.apply_metadata(-1, len(found), found)
        await self.world.route()

    def topic(self) -> list[Record]:
        """The metadata records of the current topic."""
        return topic_records("t", 3, number=self.number)

    async def fetched(self, version: int) -> dict[Place, int]:
        """The offsets that clients get; empty while they have to wait."""
        asked = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=None) for group in GROUPS]
        )
        asking = self.world.send(asked, version)
        await settle()
        return {
            (group.group_id, one.partition_index): one.committed_offset
            for group in asking.answer.groups
            for topic in group.topics
            for one in topic.partitions
        }

    async def check(self) -> None:
        """Check that no offset of an earlier topic is returned."""
        for version in (BY_NAME, BY_ID):
            assert all(offset >= self.first for offset in (await self.fetched(version)).values())

    async def check_at_rest(self) -> None:
        """Check that no offset acknowledged for the current topic is lost."""
        await self.rest()
        await self.check()
        fetched = await self.fetched(BY_ID)
        for place, offset, asking in self.commits:
            if offset >= self.first and asking.is_answered and _is_good(asking):
                assert fetched[place] >= offset


def _is_good(asking: Asking) -> bool:
    code: int = asking.answer.topics[0].partitions[0].error_code
    return code == ErrorCode.NONE


_groups, _partitions, _producers = st.just("a"), st.sampled_from((0, 0, 1)), st.sampled_from((1, 2))
_versions = st.sampled_from((WITH_RETENTION, BY_NAME, BY_ID))
_actions = st.one_of(
    st.tuples(st.just("commit"), _groups, _partitions, _versions),
    st.tuples(st.just("commit"), _groups, _partitions, _versions),
    st.tuples(st.just("inside"), _groups, _partitions, _producers, st.just(0)),
    st.tuples(st.just("end"), _producers, st.booleans(), st.booleans()),
    st.tuples(st.sampled_from(("recreate", "recreate", "recreate_in_a_load", "recreate_unseen"))),
    st.tuples(st.sampled_from(("turn", "hold", "release", "refuse"))),
    st.tuples(st.sampled_from(("lose", "crash")), st.booleans()),
)


@given(st.lists(_actions, min_size=5, max_size=30))
def test_offsets_are_of_the_topic_that_is_there(actions: list[tuple[object, ...]]) -> None:
    async def scenario(world: CoordinatorWorld) -> None:
        await world.begin()
        playing = Recreating(world)
        for name, *arguments in actions:
            await getattr(playing, str(name))(*arguments)
            await playing.check()
        await playing.check_at_rest()
        await playing.crash(is_written=True)
        await playing.check_at_rest()

    with tempfile.TemporaryDirectory() as directory:
        run_world(scenario, Path(directory))
