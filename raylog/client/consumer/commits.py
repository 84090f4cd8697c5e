"""Committing offsets and looking them up, for one consumer.

Commits are queued and sent one after another, so an older commit never overwrites a newer one, and
callbacks run in commit order. Queued commits are merged into one request with the newest offset of
each partition.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from raylog.client.admin.group_offsets import (
    OFFSETS_BY_NAME,
    commit_refusal,
    committed_in,
    offset_commit,
    offset_fetch,
)
from raylog.client.admin.groups import CommittedOffset
from raylog.client.cluster import TopicPartition, by_topic
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.coordinators import Coordinators, ask_coordinator, coordinator_version
from raylog.client.core import Core
from raylog.client.errors import ClientError
from raylog.client.retries import is_member_outdated
from raylog.wire.api import ApiKey
from raylog.wire.errors import (
    ErrorCode,
    KafkaError,
)
from raylog.wire.messages.offset_commit import (
    OffsetCommitResponse,
)
from raylog.wire.messages.offset_fetch import (
    OffsetFetchResponse,
)
from raylog.wire.uuids import ZERO_UUID

_log = logging.getLogger(__name__)
Offsets = Mapping[TopicPartition, CommittedOffset]
Done = Callable[[Offsets, Exception | None], None]
"""Called when a commit ends, with its offsets and its failure, if any."""


class CommitFailed(ClientError):
    """The group has rebalanced without this member: others may own its partitions by now.

    Records since the last commit may be delivered again, to this consumer or another.
    """


@dataclass(frozen=True, slots=True)
class _Commit:
    offsets: Offsets
    done: Done
    holds: Mapping[TopicPartition, object]
    """The hold on each partition when the commit was requested (see `Commits`)."""


def future_end() -> tuple[asyncio.Future[None], Done]:
    """Return a future for a commit's outcome, and the callback that completes it."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(offsets: Offsets, failure: Exception | None) -> None:
        if future.done():
            return
        if failure is None:
            future.set_result(None)
        else:
            future.set_exception(failure)

    return future, done


class Commits:
    """The committed offsets of one consumer's group. For one event loop."""

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
        """`who` returns the current member, or None while a subscriber has no generation.

        `hold` returns the same object for as long as a partition stays assigned without
        interruption, and None if it is not assigned. `has_epochs`: the group uses the KIP-848
        protocol, which checks the member's epoch when offsets are fetched.
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
        """Commit once all earlier commits are done."""
        self._queue.append(_Commit(offsets, done, {key: self._hold(key) for key in offsets}))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.get_running_loop().create_task(self._work())

    async def commit(self, offsets: Offsets) -> None:
        """Commit after all earlier commits; raise CommitFailed or KafkaError."""
        future, done = future_end()
        self.submit(offsets, done)
        await future

    async def drain(self, timeout_ms: float) -> None:
        """Wait until all submitted commits are done."""
        if self._worker is not None and self.is_busy:
            await asyncio.wait([self._worker], timeout=timeout_ms / 1_000)

    @property
    def is_busy(self) -> bool:
        """Whether any submitted commit is not done."""
        return self._worker is not None and not self._worker.done()

    async def stop(self) -> None:
        """Fail all pending commits and call their callbacks."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        while self._queue:
            commit = self._queue.popleft()
            commit.done(commit.offsets, CommitFailed("the consumer was closed"))

    async def _work(self) -> None:
        """Send commits until the queue is empty."""
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
            except Exception as error:  # noqa: BLE001 - callbacks get it; later commits continue
                failure = error
            for lost in failures:
                commit = self._queue.popleft()
                try:
                    commit.done(commit.offsets, lost or failure)
                except Exception:  # noqa: BLE001 - the application's error; other commits continue
                    _log.exception("the callback of a commit raised")

    def _given_up(self, holds: Mapping[TopicPartition, object]) -> CommitFailed | None:
        """Return an error if a partition was taken away since the commit, even if it is back.

        Another member may have committed newer offsets meanwhile, and the coordinator would accept
        ours, because our generation is current again.
        """
        for key, hold in holds.items():
            if hold is not None and self._hold(key) is not hold:
                return CommitFailed(f"group {self._group_id!r} took {key} away meanwhile")
        return None

    async def _commit(self, offsets: Offsets, holds: Mapping[TopicPartition, object]) -> None:
        """Send one commit until it succeeds or fails for good.

        If the generation ended meanwhile, partitions that stayed assigned throughout are committed
        in the new generation: a cooperative rebalance, or a new epoch, did not take them away.
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
                if not is_member_outdated(error):
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
        await ask_coordinator(
            self._core,
            self._coordinators,
            self._group_id,
            offset_commit(who, offsets, ids),
            OffsetCommitResponse,
            lambda response: commit_refusal(response, self._group_id, offsets, ids),
            at_most=None if ids else OFFSETS_BY_NAME,
        )

    async def committed(
        self, keys: Collection[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return committed offsets once open transactions end, without partitions that have none.

        A member with an outdated epoch retries in its next epoch, or without a member id.
        """
        if not keys:
            return {}
        return await self._core.repeat(
            lambda: self._fetch(keys, None), retriable=is_member_outdated
        )

    async def committed_now(
        self, keys: Collection[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset] | None:
        """Like `committed`, but try once; return None if a heartbeat must first bring the epoch."""
        try:
            return await self._fetch(keys, 0.0)
        except KafkaError as error:
            if is_member_outdated(error):
                return None
            raise

    async def _fetch(
        self, keys: Collection[TopicPartition], timeout_ms: float | None
    ) -> dict[TopicPartition, CommittedOffset]:
        ids = self._ids(keys)
        version = await coordinator_version(
            self._core,
            self._coordinators,
            self._group_id,
            ApiKey.OFFSET_FETCH,
            at_most=None if ids else OFFSETS_BY_NAME,
            timeout_ms=timeout_ms,
        )
        who, asked = self._who(), by_topic(keys)
        is_checked = self._has_epochs and who is not None and who.is_member
        request = offset_fetch(
            [self._group_id],
            asked,
            version,
            require_stable=True,
            ids=ids,
            member=who if is_checked else None,
        )

        found: dict[TopicPartition, CommittedOffset] = {}

        def refused(response: OffsetFetchResponse) -> KafkaError | None:
            answer = committed_in(response, self._group_id, asked, ids)
            if isinstance(answer, KafkaError):
                return answer
            found.update(answer)
            return None

        await ask_coordinator(
            self._core,
            self._coordinators,
            self._group_id,
            request,
            OffsetFetchResponse,
            refused,
            at_most=version,
            timeout_ms=timeout_ms,
        )
        return found

    def _ids(self, keys: Collection[TopicPartition] | Offsets) -> dict[str, bytes]:
        """Return the topics' ids; empty unless all are known."""
        ids: dict[str, bytes] = {}
        for topic in {key.topic for key in keys}:
            view = self._core.cluster.topics.get(topic)
            if view is None or view.topic_id == ZERO_UUID:
                return {}
            ids[topic] = view.topic_id
        return ids
