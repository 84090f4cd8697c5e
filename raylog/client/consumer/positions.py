"""Finding positions: committed offsets, offsets by time, and leader epochs (KIP-320)."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from raylog.client.cluster import TopicPartition, by_topic
from raylog.client.consumer.missing import MissingTopics
from raylog.client.consumer.progress import COMMITTED, Progress
from raylog.client.consumer.settings import ConsumerSettings
from raylog.client.core import Core
from raylog.client.errors import ClientError, NotKafka, NotSupported
from raylog.client.offsets import (
    EARLIEST,
    LATEST,
    Answers,
    Outcome,
    ask_each_leader,
    find_offsets,
)
from raylog.client.refusals import refusal
from raylog.wire.errors import ErrorCode, KafkaError, NotLeaderOrFollower, error_of
from raylog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

_CONSUMER = -1
_CONSUMERS_SINCE = 3
"""First OffsetForLeaderEpoch version that consumers may use."""
_ANYWHERE = 2**63 - 1
"""Stands for the end of an epoch if the leader is too old to answer consumers."""
CommittedOf = Callable[
    [list[TopicPartition]], Awaitable[Mapping[TopicPartition, tuple[int, int]] | None]
]
"""Returns committed (offset, leader epoch) by partition, omitting those without; None: not yet."""


class NoOffset(ClientError):
    """A partition has no committed offset and auto.offset.reset is none: seek first."""


class LogTruncated(ClientError):
    """Records that were read are no longer in the log, and auto.offset.reset is none."""


@dataclass(frozen=True, slots=True)
class _EpochEnd:
    end_offset: int
    """Exclusive; -1: the leader has no such epoch."""
    epoch: int
    """The leader's largest epoch that is not above the requested one."""
    leader_epoch: int
    """The current epoch of the leader that was asked."""


def reset_to(settings: ConsumerSettings) -> int | None:
    """Return where to restart without a position: EARLIEST, LATEST, a timestamp, or None: raise."""
    if settings.reset == "none":
        return None
    if settings.reset == "latest":
        return LATEST
    if settings.reset == "earliest":
        return EARLIEST
    return max(0, int(time.time() * 1000) - settings.reset_duration_ms)


def _state_of(progress: Progress) -> tuple[int, bool, int]:
    """Return a state that changes when a lookup's answer becomes outdated."""
    return progress.generation, progress.fetch_offset is None, progress.fetch_epoch


class _Question:
    """Partitions that are looked up together, with their states when the request was sent."""

    def __init__(
        self, assigned: Mapping[TopicPartition, Progress], wanted: Iterable[Progress]
    ) -> None:
        self._assigned = assigned
        self._states = {progress.key: _state_of(progress) for progress in wanted}

    def current(self, keys: Iterable[TopicPartition] | None = None) -> Iterator[Progress]:
        """Yield those of `keys` (None: all) whose state has not changed."""
        for key in list(self._states if keys is None else keys):
            progress = self._assigned.get(key)
            if progress is not None and _state_of(progress) == self._states[key]:
                yield progress


class Positions:
    """Finds or checks the positions of partitions before they can be fetched.

    Another thread may seek during a lookup, so every change holds `lock`.
    """

    def __init__(
        self, core: Core, settings: ConsumerSettings, committed: CommittedOf | None = None
    ) -> None:
        self.core = core
        self.lock = threading.RLock()
        self._settings = settings
        self._committed = committed
        self._wanted: dict[TopicPartition, None] = {}
        self._asking: dict[TopicPartition, int] = {}
        """Generations of the positions that are being looked up."""
        self._found: dict[TopicPartition, bool] = {}
        self.missing = MissingTopics(core.cluster, core.io.now_ms)
        self.drop_blocks: Callable[[Progress], None] = _nothing
        """Drops the fetched blocks of a partition."""

    @property
    def is_wanted(self) -> bool:
        """Whether there is something to look up."""
        return bool(self._wanted)

    def by_leader(self) -> list[list[TopicPartition]]:
        """Return the wanted partitions grouped by leader; those without a known leader together."""
        grouped: dict[int | None, list[TopicPartition]] = {}
        with self.lock:
            for key in self._wanted:
                grouped.setdefault(self.core.cluster.known_leader_of(key), []).append(key)
        return list(grouped.values())

    def is_asking(self, key: TopicPartition) -> bool:
        """Return whether a partition is being looked up."""
        return key in self._asking

    def want(self, progress: Progress) -> None:
        """Request a lookup of a partition, unless one is in progress."""
        if self._asking.get(progress.key) != progress.generation:
            self._wanted[progress.key] = None

    def forget(self, key: TopicPartition) -> None:
        """Cancel a partition's lookup."""
        self._wanted.pop(key, None)
        self._asking.pop(key, None)

    def found(self) -> dict[TopicPartition, bool]:
        """Return the partitions looked up since the last call, and whether each position is new."""
        found, self._found = self._found, {}
        return found

    def needs_check(self, progress: Progress, leader_epoch: int) -> bool:
        """Return whether a new leader must confirm that it has the records read before."""
        return progress.fetch_epoch >= 0 and leader_epoch != progress.checked_epoch

    async def look_up(
        self,
        assigned: Mapping[TopicPartition, Progress],
        keys: Collection[TopicPartition] | None = None,
    ) -> dict[TopicPartition, Exception]:
        """Look up wanted positions of `keys` (None: all); return failures by partition.

        The partitions are no longer wanted afterwards, even if the lookup fails. Answers about
        partitions that have since been sought, or found in another way, are dropped.
        """
        with self.lock:
            chosen = [key for key in self._wanted if keys is None or key in keys]
            for key in chosen:
                del self._wanted[key]
            wanted = [assigned[key] for key in chosen if key in assigned]
            asking = {progress.key: progress.generation for progress in wanted}
            self._asking.update(asking)
        failed: dict[TopicPartition, Exception] = {}
        try:
            failed = await self._ask(_Question(assigned, wanted), wanted)
        finally:
            with self.lock:
                for key, generation in asking.items():
                    if self._asking.get(key) == generation:
                        del self._asking[key]
                        if key not in failed:
                            self._found.setdefault(key, False)
        return failed

    async def _ask(
        self, question: _Question, wanted: list[Progress]
    ) -> dict[TopicPartition, Exception]:
        without = [one.key for one in wanted if one.fetch_offset is None]
        checks = {one.key: one.fetch_epoch for one in wanted if one.fetch_offset is not None}
        failed = await self._find_committed(question, without)
        failed |= await self._find_offsets(question, without)
        ends, refused = await self._ask_epochs(checks)
        with self.lock:
            failed = {one.key: failed[one.key] for one in question.current(failed)}
            for progress in question.current(checks):
                end = ends.get(progress.key)
                error = refused[progress.key] if end is None else self._take_end(progress, end)
                if error is not None:
                    failed[progress.key] = error
        return failed

    def _done(self, key: TopicPartition, *, is_new: bool = False) -> None:
        self._found[key] = is_new

    async def _find_committed(
        self, question: _Question, keys: list[TopicPartition]
    ) -> dict[TopicPartition, Exception]:
        """Start at committed offsets; leave partitions without one to `reset`."""
        asked = [one.key for one in question.current(keys) if one.start == COMMITTED]
        if not asked:
            return {}
        try:
            found = await self._ask_committed(asked)
        except (ClientError, KafkaError) as error:
            return dict.fromkeys(asked, error)
        start = reset_to(self._settings)
        failed: dict[TopicPartition, Exception] = {}
        with self.lock:
            for progress in question.current(asked):
                key = progress.key
                if key in found:
                    progress.go_to(*found[key])
                    self._done(key)
                elif start is not None:
                    progress.start = start
                else:
                    failed[key] = NoOffset(
                        f"{key} has no committed offset and auto.offset.reset is none: seek"
                    )
        return failed

    async def _ask_committed(
        self, keys: list[TopicPartition]
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        if self._committed is None:
            return {}  # without a group, nothing is committed
        found = await self._committed(keys)
        if found is None:
            raise error_of(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group is not joined yet")
        return found

    async def _find_offsets(
        self, question: _Question, keys: list[TopicPartition]
    ) -> dict[TopicPartition, Exception]:
        """Find offsets by time; use the end if no record is that new."""
        failed: dict[TopicPartition, Exception] = {}
        times = {one.key: one.start for one in question.current(keys) if one.start != COMMITTED}
        while times:
            found, refused = await find_offsets(
                self.core, times, read_committed=self._settings.read_committed
            )
            failed |= refused
            with self.lock:
                for progress in question.current(key for key in found if found[key].offset >= 0):
                    progress.fetch_offset = progress.position = found[progress.key].offset
                    self._done(progress.key, is_new=True)
            missing = [key for key, answer in found.items() if answer.offset < 0]
            for key in missing:
                if times[key] == LATEST:
                    failed[key] = NotKafka(
                        f"expected the end of {key}, found offset {found[key].offset}"
                    )
            times = {key: LATEST for key in missing if times[key] != LATEST}
        return failed

    async def _ask_epochs(self, read: Mapping[TopicPartition, int]) -> Outcome[_EpochEnd]:
        """Ask the leaders where the epochs of the last read records end."""
        asked: dict[TopicPartition, int] = {}

        def request(of_node: list[TopicPartition]) -> OffsetForLeaderEpochRequest:
            asked.update((key, self.core.cluster.partition(key).leader_epoch) for key in of_node)
            return OffsetForLeaderEpochRequest(
                replica_id=_CONSUMER,
                topics=[
                    OffsetForLeaderTopic(
                        topic=topic,
                        partitions=[
                            OffsetForLeaderPartition(
                                partition=key.partition,
                                current_leader_epoch=asked[key],
                                leader_epoch=read[key],
                            )
                            for key in of_topic
                        ],
                    )
                    for topic, of_topic in by_topic(of_node).items()
                ],
            )

        def answers(response: OffsetForLeaderEpochResponse) -> Answers[_EpochEnd]:
            for topic in response.topics:
                for answer in topic.partitions:
                    key = TopicPartition(topic.topic, answer.partition)
                    if key in asked:
                        end = _EpochEnd(answer.end_offset, answer.leader_epoch, asked[key])
                        yield key, refusal(answer.error_code, f"epochs of {key}") or end

        ends, failed = await ask_each_leader(
            self.core,
            read,
            request,
            OffsetForLeaderEpochResponse,
            answers,
            at_least=_CONSUMERS_SINCE,
        )
        for key in [key for key, error in failed.items() if isinstance(error, NotSupported)]:
            if key in asked:
                ends[key] = _EpochEnd(_ANYWHERE, read[key], asked[key])
                del failed[key]
        return ends, failed

    def _take_end(
        self, progress: Progress, end: _EpochEnd
    ) -> LogTruncated | NotLeaderOrFollower | None:
        """Compare the fetch offset with the end of its epoch on the new leader.

        A leader that is older than the last record read has been deposed: the metadata is old. If
        `reset` is none, a truncated partition stays unchecked, and so is not fetched, until a
        seek.
        """
        assert progress.fetch_offset is not None, "only what has a position is checked"
        if 0 <= end.leader_epoch < progress.fetch_epoch:
            return NotLeaderOrFollower(
                f"{progress.key}: expected leader epoch {progress.fetch_epoch} or later, found "
                f"{end.leader_epoch}"
            )
        if end.end_offset >= progress.fetch_offset:
            progress.checked_epoch = end.leader_epoch
            self._done(progress.key)
            return None
        assert progress.position is not None, "it was found with the offset to fetch from"
        self.drop_blocks(progress)
        start = reset_to(self._settings)
        if progress.epoch < 0 or progress.position <= end.end_offset:
            progress.refetch()  # the truncated records were not handed out yet
        elif start is None:
            error = LogTruncated(
                f"{progress.key}: expected records up to {progress.position}, the log of epoch "
                f"{progress.fetch_epoch} ends at {end.end_offset}: seek"
            )
            progress.refetch()
            return error
        elif end.end_offset >= 0:
            progress.go_to(end.end_offset, end.epoch)
        else:
            progress.look_for(start)
        progress.checked_epoch = end.leader_epoch
        self._done(progress.key)
        return None


def _nothing(progress: Progress) -> None:
    """Do nothing: without a fetcher there are no blocks."""
