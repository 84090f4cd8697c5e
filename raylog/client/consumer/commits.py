"""Committing offsets: OffsetCommit v2-10 and OffsetFetch v1-10 for one consumer.

Commits stand in a queue and leave one after another, so an older one never overwrites a newer one,
and their ends are told in the order in which they were asked for. What waits together leaves
together: of a partition that several of them name, the newest offset counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from raylog.client.admin.group_offsets import NO_OFFSET
from raylog.client.admin.groups import CommittedOffset
from raylog.client.cluster import TopicPartition, by_topic
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.coordinators import Coordinators, ask_coordinator, coordinator_version
from raylog.client.core import Core
from raylog.client.errors import ClientError, NotKafka
from raylog.client.matching import answers_to
from raylog.wire.api import ApiKey
from raylog.wire.errors import (
    ErrorCode,
    KafkaError,
    error_of,
)
from raylog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from raylog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from raylog.wire.uuids import ZERO_UUID

_log = logging.getLogger(__name__)
Offsets = Mapping[TopicPartition, CommittedOffset]
Done = Callable[[Offsets, Exception | None], None]
"""Told of a commit's end: the offsets, and what went wrong."""
_Committed = OffsetFetchResponsePartition | OffsetFetchResponsePartitions
_BY_NAME_LAST = 9
"""Newest version of both requests that names topics."""
_GROUPS_SINCE = 8
"""OffsetFetch version that asks for several groups (KIP-709)."""
_PUT_OUT = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""The coordinator knows another generation, or epoch, than we do; a heartbeat tells more."""


class CommitFailed(ClientError):
    """The group has gone on without this member: others may have its partitions by now.

    Records since the last commit may be handed out again, here or there.
    """


@dataclass(frozen=True, slots=True)
class _Commit:
    offsets: Offsets
    done: Done
    holds: Mapping[TopicPartition, object]
    """How each partition was held when it was asked for."""


def future_end() -> tuple[asyncio.Future[None], Done]:
    """What waits for the end of a commit, and what is to be told of it."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(offsets: Offsets, failure: Exception | None) -> None:
        del offsets
        if future.done():
            return
        if failure is None:
            future.set_result(None)
        else:
            future.set_exception(failure)

    return future, done


class Commits:
    """The offsets of one consumer's group. For one event loop."""

    def __init__(
        self,
        core: Core,
        coordinators: Coordinators,
        group_id: str,
        who: Callable[[], GroupMetadata | None],
        *,
        hold: Callable[[TopicPartition], object],
        has_epochs: bool = False,
    ) -> None:
        """`who` commits now; None: the consumer subscribes, and is in no generation.

        `hold` is the same object for as long as the group leaves a partition to us without a break,
        and None where it does not.
        `has_epochs`: the group is of the new protocol, so that fetches of offsets are checked.
        """
        self._core = core
        self._coordinators = coordinators
        self._group_id = group_id
        self._who = who
        self._hold = hold
        self._has_epochs = has_epochs
        self._queue: deque[_Commit] = deque()
        self._worker: asyncio.Task[None] | None = None

    def submit(self, offsets: Offsets, done: Done) -> None:
        """Commit as soon as what was submitted before is done."""
        self._queue.append(_Commit(offsets, done, {key: self._hold(key) for key in offsets}))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.get_running_loop().create_task(self._work())

    async def commit(self, offsets: Offsets) -> None:
        """Commit, behind what was submitted before; raises CommitFailed, KafkaError."""
        future, done = future_end()
        self.submit(offsets, done)
        await future

    async def drain(self, timeout_ms: float) -> None:
        """Wait until all that was submitted is done."""
        if self._worker is not None and self.is_busy:
            await asyncio.wait([self._worker], timeout=timeout_ms / 1_000)

    @property
    def is_busy(self) -> bool:
        """Whether something that was submitted is not done."""
        return self._worker is not None and not self._worker.done()

    async def stop(self) -> None:
        """Give up what is not done; all are told."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        while self._queue:
            commit = self._queue.popleft()
            commit.done(commit.offsets, CommitFailed("the consumer was closed"))

    async def _work(self) -> None:
        """Empty the queue."""
        while self._queue:
            together = list(self._queue)
            failures = [self._given_up(commit.holds) for commit in together]
            merged: dict[TopicPartition, CommittedOffset] = {}
            holds: dict[TopicPartition, object] = {}
            for commit, lost in zip(together, failures, strict=True):
                if lost is None:
                    merged.update(commit.offsets)
                    holds.update(commit.holds)
            failure: Exception | None = None
            try:
                if merged:
                    await self._commit(merged, holds)
            except Exception as error:  # noqa: BLE001 - whoever asked is told; others go on
                failure = error
            for lost in failures:
                commit = self._queue.popleft()
                try:
                    commit.done(commit.offsets, lost or failure)
                except Exception:  # noqa: BLE001 - the application's; other commits go on
                    _log.exception("the callback of a commit raised")

    def _given_up(self, holds: Mapping[TopicPartition, object]) -> CommitFailed | None:
        """Why offsets are not committed any more: a partition was lost since, if only for a while.

        Another member may have committed more, and our present generation would be believed.
        """
        for key, hold in holds.items():
            if hold is not None and self._hold(key) is not hold:
                return CommitFailed(f"group {self._group_id!r} took {key} away meanwhile")
        return None

    async def _commit(self, offsets: Offsets, holds: Mapping[TopicPartition, object]) -> None:
        """Send one commit until it is refused for good.

        A generation that has ended meanwhile does not matter for what we have had all the time: a
        cooperative rebalance, or a new epoch, left it to us.
        """
        deadline_ms = self._core.io.now_ms() + self._core.settings.operation_timeout_ms
        while True:
            lost = self._given_up(holds)
            if lost is not None:
                raise lost
            who = self._who()
            if who is None:
                raise CommitFailed(f"this consumer is not in group {self._group_id!r} now")
            try:
                await self._send(offsets, who)
            except KafkaError as error:
                if error.code not in _PUT_OUT:
                    raise
                if error.code is ErrorCode.STALE_MEMBER_EPOCH and self._who() == who:
                    # the next heartbeat brings the new epoch
                    await self._core.io.pause(self._core.settings.retry_backoff_ms)
                elif self._who() in (None, who) or None in holds.values():
                    raise CommitFailed(f"group {self._group_id!r}: {error}") from error
                if self._core.io.now_ms() >= deadline_ms:
                    raise CommitFailed(f"group {self._group_id!r}: {error}") from error
            else:
                return

    async def _send(self, offsets: Offsets, who: GroupMetadata) -> None:
        ids = self._ids(offsets)
        request = OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=who.generation_id,
            member_id=who.member_id,
            group_instance_id=who.group_instance_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=ids.get(topic, ZERO_UUID),
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=key.partition,
                            committed_offset=offsets[key].offset,
                            committed_leader_epoch=offsets[key].leader_epoch,
                            committed_metadata=offsets[key].metadata,
                        )
                        for key in keys
                    ],
                )
                for topic, keys in by_topic(offsets).items()
            ],
        )

        names = {topic_id: name for name, topic_id in ids.items()}

        def refusal(response: OffsetCommitResponse) -> KafkaError | None:
            told = (
                (_key(topic, names, answer.partition_index), answer.error_code)
                for topic in response.topics
                for answer in topic.partitions
            )
            failures = [
                error_of(code, f"commit of {key}")
                for key, code in answers_to(offsets, told).items()
                if code != ErrorCode.NONE
            ]
            failures.sort(key=lambda error: error.code.retriable)  # what no repeat cures is first
            return failures[0] if failures else None

        await ask_coordinator(
            self._core,
            self._coordinators,
            self._group_id,
            request,
            OffsetCommitResponse,
            refusal,
            at_most=None if ids else _BY_NAME_LAST,
        )

    async def committed(
        self, keys: Collection[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset]:
        """Committed offsets, with open transactions decided; those without one are left out.

        A member whose epoch has ended asks again in its next one, or as nobody in particular.
        """
        if not keys:
            return {}
        settings = self._core.settings
        deadline_ms = self._core.io.now_ms() + settings.operation_timeout_ms
        while True:
            try:
                return await self._fetch(keys, None)
            except KafkaError as error:
                if error.code not in _PUT_OUT or self._core.io.now_ms() >= deadline_ms:
                    raise
            await self._core.io.pause(settings.retry_backoff_ms)

    async def committed_now(
        self, keys: Collection[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset] | None:
        """The same without patience; None where a heartbeat must bring our present epoch first."""
        try:
            return await self._fetch(keys, 0.0)
        except KafkaError as error:
            if error.code in _PUT_OUT:
                return None
            raise

    async def _fetch(
        self, keys: Collection[TopicPartition], timeout_ms: float | None
    ) -> dict[TopicPartition, CommittedOffset]:
        ids = self._ids(keys)
        at_most = None if ids else _BY_NAME_LAST
        version = await coordinator_version(
            self._core,
            self._coordinators,
            self._group_id,
            ApiKey.OFFSET_FETCH,
            at_most=at_most,
            timeout_ms=timeout_ms,
        )
        who = self._who()
        names = {topic_id: topic for topic, topic_id in ids.items()}
        response = await ask_coordinator(
            self._core,
            self._coordinators,
            self._group_id,
            self._question(keys, ids, version, who),
            OffsetFetchResponse,
            self._refusal,
            at_most=version,
            timeout_ms=timeout_ms,
        )
        told: list[tuple[TopicPartition, _Committed]] = [
            (_key(topic, names, one.partition_index), one)
            for group in response.groups
            for topic in group.topics
            for one in topic.partitions
        ]
        told += (
            (TopicPartition(topic.name, one.partition_index), one)
            for topic in response.topics
            for one in topic.partitions
        )
        return {
            key: CommittedOffset(
                one.committed_offset, one.committed_leader_epoch, one.metadata or ""
            )
            for key, one in answers_to(keys, told).items()
            if one.committed_offset != NO_OFFSET
        }

    def _question(
        self,
        keys: Collection[TopicPartition],
        ids: Mapping[str, bytes],
        version: int,
        who: GroupMetadata | None,
    ) -> OffsetFetchRequest:
        """OffsetFetch for our group."""
        grouped = by_topic(keys)
        if version < _GROUPS_SINCE:
            topics = [
                OffsetFetchRequestTopic(name=topic, partition_indexes=[key.partition for key in of])
                for topic, of in grouped.items()
            ]
            return OffsetFetchRequest(group_id=self._group_id, topics=topics, require_stable=True)
        checked = self._has_epochs and who is not None and who.is_member
        group = OffsetFetchRequestGroup(
            group_id=self._group_id,
            member_id=who.member_id if who is not None and checked else None,
            member_epoch=who.generation_id if who is not None and checked else -1,
            topics=[
                OffsetFetchRequestTopics(
                    name=topic,
                    topic_id=ids.get(topic, ZERO_UUID),
                    partition_indexes=[key.partition for key in of],
                )
                for topic, of in grouped.items()
            ],
        )
        return OffsetFetchRequest(groups=[group], require_stable=True)

    def _refusal(self, response: OffsetFetchResponse) -> KafkaError | None:
        """The first error in an answer."""
        codes = [response.error_code]
        for group in response.groups:
            if group.group_id != self._group_id:
                raise NotKafka(f"expected group {self._group_id!r}, found {group.group_id!r}")
            codes.append(group.error_code)
            codes += (one.error_code for topic in group.topics for one in topic.partitions)
        codes += (one.error_code for topic in response.topics for one in topic.partitions)
        failed = [code for code in codes if code != ErrorCode.NONE]
        return error_of(failed[0], f"offsets of group {self._group_id!r}") if failed else None

    def _ids(self, keys: Collection[TopicPartition] | Offsets) -> dict[str, bytes]:
        """Ids of all topics; none unless all are known."""
        ids: dict[str, bytes] = {}
        for topic in {key.topic for key in keys}:
            view = self._core.cluster.topics.get(topic)
            if view is None or view.topic_id == ZERO_UUID:
                return {}
            ids[topic] = view.topic_id
        return ids


def _key(
    topic: OffsetCommitResponseTopic | OffsetFetchResponseTopics,
    names: Mapping[bytes, str],
    partition: int,
) -> TopicPartition:
    """A partition in an answer that may have the topic's id instead of its name."""
    name = topic.name or names.get(topic.topic_id) or topic.topic_id.hex()
    return TopicPartition(name, partition)
