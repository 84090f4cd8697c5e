"""Commits whose generation ends while they are on their way."""

from __future__ import annotations

import asyncio

import pytest

from raylog.client import CommitFailed, CommittedOffset, TopicPartition
from raylog.client.consumer.commits import Commits, Offsets
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.coordinators import Coordinators
from raylog.wire.errors import IllegalGeneration
from tests.support.fake_cluster import FakeCluster, core_of

KEY, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


class _Member:
    """A member whose first commit meets the end of its generation."""

    def __init__(self) -> None:
        core = core_of(FakeCluster())
        self.generation = 1
        self.held: dict[TopicPartition, object] = {KEY: object(), OTHER: object()}
        self.sent: list[tuple[int, Offsets]] = []
        self.commits = Commits(core, Coordinators(core), "g", self._who, hold=self.held.get)
        self.commits._send = self._send  # type: ignore[method-assign]  # instead of a coordinator
        self.after: dict[TopicPartition, object] = {}
        """How partitions are held in the next generation, if not as before."""

    def _who(self) -> GroupMetadata:
        return GroupMetadata("g", self.generation, "m")

    async def _send(self, offsets: Offsets, who: GroupMetadata) -> None:
        self.sent.append((who.generation_id, offsets))
        if who.generation_id == 1:
            self.generation = 2
            self.held.update(self.after)
            raise IllegalGeneration("generation 1 has ended")

    def commit(self, offsets: Offsets) -> None:
        asyncio.run(self.commits.commit(offsets))


def test_a_commit_of_what_was_held_all_the_time_is_made_in_the_next_generation() -> None:
    member = _Member()
    member.after = {OTHER: object()}
    offsets = {KEY: CommittedOffset(7)}
    member.commit(offsets)
    assert member.sent == [(1, offsets), (2, offsets)]


@pytest.mark.parametrize("after", [object(), None])
def test_a_commit_of_what_was_lost_meanwhile_fails_even_if_it_was_given_back(after: object) -> None:
    """Another member may have committed more: its offset would go back."""
    member = _Member()
    member.after = {KEY: after}
    with pytest.raises(CommitFailed, match="generation 1 has ended"):
        member.commit({KEY: CommittedOffset(7), OTHER: CommittedOffset(9)})
    assert [generation for generation, _ in member.sent] == [1]


def test_a_commit_of_what_was_not_held_fails() -> None:
    member = _Member()
    member.held[KEY] = None
    with pytest.raises(CommitFailed):
        member.commit({KEY: CommittedOffset(7)})
