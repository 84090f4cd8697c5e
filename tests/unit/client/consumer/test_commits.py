"""Commits, and fetches of committed offsets, in flight when their generation ends."""

from __future__ import annotations

import asyncio

import pytest

from raylog.client import CommitFailed, CommittedOffset, TopicPartition
from raylog.client.consumer.commits import Commits, Offsets
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.coordinators import Coordinators
from raylog.client.errors import NotKafka
from raylog.client.io import run_blocking
from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode, IllegalGeneration, StaleMemberEpoch
from raylog.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from raylog.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from raylog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.worlds.client.cluster import FakeCluster, core_of, topic_id

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
        self.asked_for: Offsets = {}
        """Another commit, asked for while the first is on its way."""
        self.ends: list[Exception | None] = []

    def _who(self) -> GroupMetadata:
        return GroupMetadata("g", self.generation, "m")

    async def _send(self, offsets: Offsets, who: GroupMetadata) -> None:
        self.sent.append((who.generation_id, offsets))
        if who.generation_id == 1:
            self.commits.submit(self.asked_for, lambda _, failure: self.ends.append(failure))
            self.generation = 2
            self.held.update(self.after)
            raise IllegalGeneration("generation 1 has ended")

    def commit(self, offsets: Offsets) -> None:
        async def commit() -> None:
            try:
                await self.commits.commit(offsets)
            finally:
                await self.commits.drain(1_000)

        asyncio.run(commit())


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
    with pytest.raises(CommitFailed, match="took t-0 away meanwhile"):
        member.commit({KEY: CommittedOffset(7), OTHER: CommittedOffset(9)})
    assert [generation for generation, _ in member.sent] == [1]


def test_waiting_commit_fails_if_its_partition_was_lost() -> None:
    """The present generation would be believed: it is another one than they were asked for in."""
    member = _Member()
    member.after = {KEY: object()}
    member.asked_for = {KEY: CommittedOffset(8)}
    with pytest.raises(CommitFailed, match="took t-0 away meanwhile"):
        member.commit({KEY: CommittedOffset(7)})
    assert [generation for generation, _ in member.sent] == [1]
    assert isinstance(member.ends[0], CommitFailed)


def test_a_commit_that_waited_beside_one_of_a_lost_partition_is_made() -> None:
    member = _Member()
    member.after = {KEY: object()}
    member.asked_for = {OTHER: CommittedOffset(9)}
    with pytest.raises(CommitFailed, match="took t-0 away meanwhile"):
        member.commit({KEY: CommittedOffset(7)})
    assert member.sent[1:] == [(2, member.asked_for)]
    assert member.ends == [None]


def test_a_commit_of_what_was_not_held_fails() -> None:
    member = _Member()
    member.held[KEY] = None
    with pytest.raises(CommitFailed, match="generation 1 has ended"):
        member.commit({KEY: CommittedOffset(7)})


# -- committed offsets ---------------------------------------------------------------------------


class _Epochs:
    """A coordinator that knows one epoch of a member, and the member's idea of it."""

    def __init__(self, *, known: int, heartbeats: int) -> None:
        """So many questions are asked before a heartbeat brings the epoch that is known."""
        self.asked: list[int] = []
        self._known = known
        self._heartbeats = heartbeats
        cluster = FakeCluster(2, {"t": {0: 1, 1: 1}}, down={2})
        self.coordinators = [1]
        """As brokers know them, one question after the other."""
        cluster.handlers[ApiKey.FIND_COORDINATOR] = self._coordinator
        cluster.handlers[ApiKey.OFFSET_FETCH] = self._answer
        core = core_of(cluster)
        self.commits = Commits(
            core, Coordinators(core), "g", self._who, hold=lambda _: None, has_epochs=True
        )

    def _who(self) -> GroupMetadata:
        return GroupMetadata("g", 1 if len(self.asked) < self._heartbeats else self._known, "m")

    def _coordinator(self, *_: object) -> FindCoordinatorResponse:
        node_id = self.coordinators.pop(0) if len(self.coordinators) > 1 else self.coordinators[0]
        found = Coordinator(key="g", node_id=node_id, host="fake", port=9000 + node_id)
        return FindCoordinatorResponse(coordinators=[found])

    def _answer(self, _: int, request: object) -> OffsetFetchResponse:
        assert isinstance(request, OffsetFetchRequest)
        (group,) = request.groups
        self.asked.append(group.member_epoch)
        if group.member_epoch != self._known:
            refused = OffsetFetchResponseGroup(
                group_id="g", error_code=ErrorCode.STALE_MEMBER_EPOCH
            )
            return OffsetFetchResponse(groups=[refused])
        found = OffsetFetchResponsePartitions(partition_index=0, committed_offset=7)
        topic = OffsetFetchResponseTopics(name="t", topic_id=topic_id("t"), partitions=[found])
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[topic])])


def test_committed_offsets_are_asked_for_again_in_the_epoch_that_a_heartbeat_brings() -> None:
    epochs = _Epochs(known=2, heartbeats=3)
    assert run_blocking(epochs.commits.committed([KEY]))[KEY].offset == 7
    assert epochs.asked == [1, 1, 1, 2]


def test_committed_offsets_of_an_epoch_that_no_heartbeat_brings_are_refused_in_the_end() -> None:
    epochs = _Epochs(known=2, heartbeats=1 << 30)
    with pytest.raises(StaleMemberEpoch):
        run_blocking(epochs.commits.committed([KEY]))


def test_without_patience_an_epoch_that_has_ended_is_no_error() -> None:
    epochs = _Epochs(known=2, heartbeats=1)
    assert run_blocking(epochs.commits.committed_now([KEY])) is None
    found = run_blocking(epochs.commits.committed_now([KEY]))
    assert found is not None
    assert found[KEY].offset == 7


def test_committed_offsets_of_a_group_whose_coordinator_has_just_died() -> None:
    """It cannot be connected to, and brokers name it for a while."""
    epochs = _Epochs(known=1, heartbeats=0)
    epochs.coordinators = [2, 2, 1]
    assert run_blocking(epochs.commits.committed([KEY]))[KEY].offset == 7


# -- answers that leave a partition out ------------------------------------------------------------


def test_committed_offsets_that_are_not_reported_do_not_count_as_none() -> None:
    """A consumer would begin where `auto.offset.reset` says, and skip or repeat records."""
    epochs = _Epochs(known=1, heartbeats=0)
    with pytest.raises(NotKafka, match="expected an answer about t-1, found none"):
        run_blocking(epochs.commits.committed([KEY, OTHER]))


@pytest.mark.parametrize("by_id", [True, False])
def test_a_commit_that_is_not_answered_fails(by_id: bool) -> None:
    answer = OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name="t",
                topic_id=topic_id("t"),
                partitions=[OffsetCommitResponsePartition(partition_index=0)],
            )
        ]
    )
    found = Coordinator(key="g", node_id=1, host="fake", port=9001)
    cluster = FakeCluster(topics={"t": {0: 1, 1: 1}})
    cluster.handlers[ApiKey.OFFSET_COMMIT] = lambda *_: answer
    cluster.handlers[ApiKey.FIND_COORDINATOR] = lambda *_: FindCoordinatorResponse(
        coordinators=[found]
    )
    core = core_of(cluster)
    if by_id:
        run_blocking(core.refresh(["t"]))
    held = {KEY: object(), OTHER: object()}
    commits = Commits(
        core, Coordinators(core), "g", lambda: GroupMetadata("g", 1, "m"), hold=held.get
    )
    asyncio.run(commits.commit({KEY: CommittedOffset(7)}))
    with pytest.raises(NotKafka, match="expected an answer about t-1, found none"):
        asyncio.run(commits.commit({KEY: CommittedOffset(8), OTHER: CommittedOffset(9)}))
