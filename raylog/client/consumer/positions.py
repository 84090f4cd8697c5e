"""Finding positions: what the group has committed, offsets by time, and epochs (KIP-320)."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from raylog.client.cluster import TopicPartition, by_topic
from raylog.client.consumer.progress import COMMITTED, Progress
from raylog.client.core import Core
from raylog.client.errors import ClientError, NotSupported
from raylog.client.offsets import EARLIEST, LATEST, Answers, ask_leaders, list_offsets
from raylog.client.settings import ConsumerSettings
from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode, error_of
from raylog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

_CONSUMER = -1
_CONSUMERS_SINCE = 3
"""OffsetForLeaderEpoch version in which consumers may ask."""
CommittedOf = Callable[
    [list[TopicPartition]], Awaitable[Mapping[TopicPartition, tuple[int, int]] | None]
]
"""Committed (offset, leader epoch) by partition; those without one are left out. None: not now."""


class NoOffset(ClientError):
    """A partition has no committed offset, and auto.offset.reset is none: seek first."""


class LogTruncated(ClientError):
    """Records that were read are not in the log any more, and auto.offset.reset is none."""


@dataclass(frozen=True, slots=True)
class _EpochEnd:
    end_offset: int
    """Exclusive; -1: the leader knows no such epoch."""


def reset_to(settings: ConsumerSettings) -> int | None:
    """Where to go on without a position: EARLIEST, LATEST, a timestamp, or None: it is an error."""
    if settings.reset == "none":
        return None
    if settings.reset == "latest":
        return LATEST
    if settings.reset == "earliest":
        return EARLIEST
    return max(0, int(time.time() * 1000) - settings.reset_duration_ms)


class Positions:
    """Partitions whose positions must be found or checked before they can be fetched."""

    def __init__(
        self, core: Core, settings: ConsumerSettings, committed: CommittedOf | None = None
    ) -> None:
        self.core = core
        self._settings = settings
        self._committed = committed
        self._wanted: dict[TopicPartition, None] = {}
        self._found: dict[TopicPartition, bool] = {}
        self.drop_blocks: Callable[[Progress], None] = _nothing
        """What was fetched of a partition is of no use any more."""

    @property
    def is_wanted(self) -> bool:
        """Whether there is something to look up."""
        return bool(self._wanted)

    def want(self, progress: Progress) -> None:
        """Look up a partition."""
        self._wanted[progress.key] = None

    def forget(self, key: TopicPartition) -> None:
        """Do not look a partition up."""
        self._wanted.pop(key, None)

    def found(self) -> dict[TopicPartition, bool]:
        """Partitions that were found since the last call: whether the position is a new one."""
        found, self._found = self._found, {}
        return found

    def put_off(self) -> list[TopicPartition]:
        """Give up what is wanted; those partitions."""
        keys = list(self._wanted)
        self._wanted.clear()
        return keys

    def needs_check(self, progress: Progress, leader_epoch: int) -> bool:
        """Whether a new leader must be asked if it has what was read before."""
        return progress.fetch_epoch >= 0 and leader_epoch > progress.checked_epoch

    async def look_up(
        self, assigned: Mapping[TopicPartition, Progress], *, repeat: bool = False
    ) -> None:
        """Find all that is wanted; raises what fails, those found before stay found.

        `repeat`: for as long as an operation may take.
        """
        wanted = [assigned[key] for key in self._wanted if key in assigned]
        generations = {progress.key: progress.generation for progress in wanted}

        def current(keys: Iterable[TopicPartition]) -> Iterable[Progress]:
            """Those that are as they were when the question left."""
            for key in keys:
                progress = assigned.get(key)
                if progress is not None and progress.generation == generations[key]:
                    yield progress

        without = [progress for progress in wanted if progress.fetch_offset is None]
        committed = [one.key for one in without if one.start == COMMITTED]
        if committed:
            self._take_committed(current, committed, await self._ask_committed(committed))
        timeout_ms = None if repeat else 0.0
        times = {
            one.key: one.start
            for one in current(one.key for one in without)
            if one.fetch_offset is None and one.start != COMMITTED
        }
        while times:
            found = await list_offsets(
                self.core,
                times,
                read_committed=self._settings.read_committed,
                timeout_ms=timeout_ms,
            )
            for progress in current(key for key in found if found[key].offset >= 0):
                progress.fetch_offset = progress.position = found[progress.key].offset
                self._done(progress.key, is_new=True)
            times = {  # no record is as young: from the end
                key: LATEST
                for key, answer in found.items()
                if answer.offset < 0 and times[key] != LATEST
            }
        checks = list(current(one.key for one in wanted if one not in without))
        if checks:
            await self._check_epochs(checks, current, timeout_ms)

    def _done(self, key: TopicPartition, *, is_new: bool = False) -> None:
        self._wanted.pop(key, None)
        self._found[key] = is_new

    async def _ask_committed(
        self, keys: list[TopicPartition]
    ) -> Mapping[TopicPartition, tuple[int, int]] | None:
        assert self._committed is not None, "only members of groups start where they committed"
        return await self._committed(keys)

    def _take_committed(
        self,
        current: Callable[[Iterable[TopicPartition]], Iterable[Progress]],
        keys: list[TopicPartition],
        found: Mapping[TopicPartition, tuple[int, int]] | None,
    ) -> None:
        """Go on from committed offsets; where there are none, as `reset` says."""
        if found is None:
            raise error_of(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group is not joined yet")
        start = reset_to(self._settings)
        for progress in current(keys):
            if progress.key in found:
                progress.go_to(*found[progress.key])
                self._done(progress.key)
            elif start is not None:
                progress.start = start
        if start is None:
            missing = [progress.key for progress in current(keys) if progress.key not in found]
            if missing:
                raise NoOffset(
                    f"{min(missing)} has no committed offset and auto.offset.reset is none: seek"
                )

    async def _check_epochs(
        self,
        checks: list[Progress],
        current: Callable[[Iterable[TopicPartition]], Iterable[Progress]],
        timeout_ms: float | None,
    ) -> None:
        """Compare what was read with the logs of new leaders."""
        read = {progress.key: progress.fetch_epoch for progress in checks}
        await self.core.know(key.topic for key in read)
        epochs = {key: self.core.cluster.partition(key).leader_epoch for key in read}
        ends = await self._ask_epochs(read, timeout_ms)
        for progress in current(read):
            if progress.fetch_epoch != read[progress.key]:
                continue  # a fetch that was on its way brought more: it is asked again
            progress.checked_epoch = epochs[progress.key]
            if progress.key in ends:
                self._take_end(progress, ends[progress.key].end_offset)
            else:
                self._done(progress.key)

    async def _ask_epochs(
        self, read: Mapping[TopicPartition, int], timeout_ms: float | None
    ) -> dict[TopicPartition, _EpochEnd]:
        """Where the epochs of what was read last end, as far as the leaders tell consumers."""

        def request(of_node: list[TopicPartition]) -> OffsetForLeaderEpochRequest:
            return OffsetForLeaderEpochRequest(
                replica_id=_CONSUMER,
                topics=[
                    OffsetForLeaderTopic(
                        topic=topic,
                        partitions=[
                            OffsetForLeaderPartition(
                                partition=key.partition,
                                current_leader_epoch=self.core.cluster.partition(key).leader_epoch,
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
                    if answer.error_code != ErrorCode.NONE:
                        yield key, error_of(answer.error_code, f"epochs of {key}")
                    else:
                        yield key, _EpochEnd(answer.end_offset)

        keys = list(read)
        if not await self._may_ask_epochs(keys):
            return {}
        return await ask_leaders(
            self.core,
            keys,
            request,
            OffsetForLeaderEpochResponse,
            answers,
            timeout_ms=timeout_ms,
        )

    async def _may_ask_epochs(self, keys: list[TopicPartition]) -> bool:
        """Whether the leaders answer consumers about epochs."""
        try:
            for node_id in await self.core.by_leader(keys):
                version = await self.core.version_on(node_id, ApiKey.OFFSET_FOR_LEADER_EPOCH)
                if version < _CONSUMERS_SINCE:
                    return False
        except NotSupported:
            return False
        return True

    def _take_end(self, progress: Progress, end_offset: int) -> None:
        """Compare what was fetched with where its epoch ends on the new leader."""
        assert progress.fetch_offset is not None, "only what has a position is checked"
        self._done(progress.key)
        if end_offset >= progress.fetch_offset:
            return
        checked = progress.checked_epoch
        self.drop_blocks(progress)
        if progress.position is not None and 0 <= progress.position <= end_offset:
            progress.refetch()  # what is gone was not handed out yet
        else:
            start = reset_to(self._settings)
            if start is None:
                raise LogTruncated(
                    f"{progress.key}: expected records up to {progress.position}, the log of epoch "
                    f"{progress.fetch_epoch} ends at {end_offset}: seek"
                )
            if end_offset >= 0:
                progress.go_to(end_offset)
            else:
                progress.look_for(start)
        progress.checked_epoch = checked


def _nothing(progress: Progress) -> None:
    """There are no blocks where nobody fetches."""
