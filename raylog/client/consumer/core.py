"""The whole consumer for one event loop: fetcher, membership and commits.

Each broker gets up to three connections, opened on demand: one for fetches and one for joins,
because brokers hold these requests back, and one for everything else. Background tasks fetch ahead,
find positions, send heartbeats and watch topics. What the application itself must do in a rebalance
comes as steps: `begin` returns the listener method to call, and `finish` continues after it. So the
listener runs where `poll` was called, in the blocking consumer too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from raylog.assignors.api import Assignor
from raylog.client.cluster import (
    CommittedOffset,
    TopicPartition,
    require_partitions,
    require_topics,
)
from raylog.client.consumer.arguments import as_committed, require_starts
from raylog.client.consumer.commits import Commits, Done, Offsets, future_end
from raylog.client.consumer.fetched import FetchedBatches
from raylog.client.consumer.fetcher import Fetcher
from raylog.client.consumer.group.events import (
    Fail,
    RejoinAsked,
    Release,
    Released,
    Take,
    Taken,
)
from raylog.client.consumer.group.members import load_assignors, new_member
from raylog.client.consumer.group.shell import GroupShell
from raylog.client.consumer.group.wanted import Wanted
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.consumer.positions import Positions
from raylog.client.consumer.progress import COMMITTED, Progress
from raylog.client.consumer.settings import ConsumerSettings
from raylog.client.coordinators import Coordinators
from raylog.client.core import Core
from raylog.client.errors import ClientError, InvalidSetting
from raylog.client.interception import Chain
from raylog.client.io import Io
from raylog.client.offsets import list_offsets
from raylog.client.settings import ClientSettings
from raylog.wire.uuids import ZERO_UUID

_log = logging.getLogger(__name__)
_WAIT_MS_MAX = 3_600_000.0


class WokenUp(ClientError):
    """`wakeup` ended a poll."""


class WrongState(ClientError):
    """A call does not fit the consumer's state: assigned or subscribed, open or closed."""


@dataclass(frozen=True, slots=True)
class ListenerCall:
    """A call to make on the rebalance listener."""

    method: str
    partitions: list[TopicPartition]


class ConsumerCore:
    """One consumer. Call its methods in the event loop's thread, unless they say otherwise."""

    def __init__(
        self,
        io: Io,
        client: ClientSettings,
        settings: ConsumerSettings,
        *,
        interceptors: Chain | None = None,
        assignors: Collection[Assignor] = (),
    ) -> None:
        """`assignors` replace the names in `partition_assignment_strategy`."""
        self.io = io
        self.settings = settings
        self.interceptors = interceptors or Chain()
        self.control = Core(io, client)
        self._fetches = Core(io, client)
        self._joins = Core(io, client)
        self._fetches.cluster = self._joins.cluster = self.control.cluster
        self._coordinators = Coordinators(self.control)
        positions = Positions(self.control, settings, self._committed_of)
        self.fetcher = Fetcher(self._fetches, settings, positions)
        self.commits: Commits | None = None
        if settings.group_id is not None:
            self.commits = Commits(
                self.control,
                self._coordinators,
                settings.group_id,
                self._who,
                hold=self._hold,
                has_epochs=settings.group_protocol == "consumer",
            )
        self.group: GroupShell | None = None
        self.wanted = Wanted()
        self.is_closed = False
        self.commits_made = self.commits_failed = self.rebalances = 0
        self._assignors = tuple(assignors)
        self._next_commit_ms = float("inf")
        self._settling: Release | None = None
        self._settle_until_ms = 0.0
        """The deadline for pending commits before the step `_settling` begins anyway."""
        self._woken = False
        self._nudged = False
        self._broken: Exception | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._look_ups: set[asyncio.Task[None]] = set()

    # -- subscription and assignment -------------------------------------------------------------

    def start(self) -> None:
        """Begin to fetch; the event loop must be running."""
        if not self._tasks:
            loop = asyncio.get_running_loop()
            for coroutine in (self._fetch_on(), self._look_up_on()):
                task = loop.create_task(coroutine)
                task.add_done_callback(self._ended)
                self._tasks.append(task)

    def subscribe(self, wanted: Wanted) -> None:
        """Be a member of the group, and read what it assigns."""
        self.check_open()
        if self.settings.group_id is None:
            raise InvalidSetting("subscribe needs a group_id, found none: set one, or use assign")
        if self.group is None:
            if self.fetcher.assignment():
                raise WrongState("partitions are assigned: unsubscribe before you subscribe")
            self.group = self._new_group()
            self.group.start()
            self._next_commit_ms = self.io.now_ms() + self.settings.auto_commit_interval_ms
        self.wanted = wanted
        self.start()
        self.group.subscribe(wanted)

    def assign(self, starts: Mapping[TopicPartition, int] | Iterable[TopicPartition]) -> None:
        """Read these partitions without being a member of the group.

        A mapping gives each an offset, EARLIEST or LATEST. Without one, a partition starts at its
        committed offset, or else where `reset` says.
        """
        self.check_open()
        if self.group is not None:
            raise WrongState("topics are subscribed to: unsubscribe before you assign")
        self.start()
        keys = list(starts)
        require_partitions(keys)
        require_topics({key.topic for key in keys})
        if isinstance(starts, Mapping):
            require_starts(starts)
            self.fetcher.assign(starts)
        else:
            self._assign_committed(keys)
        self.nudge()

    def _assign_committed(self, keys: list[TopicPartition]) -> None:
        """Start new partitions at their committed offsets; the others continue where they are."""
        known = set(self.fetcher.assignment())
        self.fetcher.remove(known - set(keys))
        for key in keys:
            if key not in known:
                self.fetcher.start_from(key, COMMITTED)

    def nudge(self) -> None:
        """Wake the fetching task because something has changed."""
        self._nudged = True
        self.io.wake()

    def check_open(self) -> None:
        """Raise unless the consumer is open and has not failed."""
        if self._broken is not None:
            raise ClientError(f"the consumer has failed: {self._broken!r}") from self._broken
        if self.is_closed:
            raise WrongState("the consumer is closed")

    def check_reads(self) -> None:
        """Raise WrongState if there is nothing to read, so that waiting would never end."""
        if self.group is None and not self.fetcher.assignment():
            raise WrongState("there is nothing to read: subscribe to topics or assign partitions")

    @property
    def has_auto_commit(self) -> bool:
        """Whether positions are committed automatically."""
        return self.group is not None and self.settings.enable_auto_commit

    # -- polling ---------------------------------------------------------------------------------

    @property
    def needs_attention(self) -> bool:
        """Whether `begin_poll` or a rebalance step has something to do. For any thread."""
        return (
            self.is_closed
            or self._woken
            or self._broken is not None
            or (self.group is not None and (bool(self.group.queue) or self.group.needs_poll))
            or self.io.now_ms() >= self._next_commit_ms
        )

    def begin_poll(self) -> None:
        """Register a poll, and auto-commit the positions of earlier polls if it is time."""
        self.check_open()
        if self._woken:
            self._woken = False
            raise WokenUp("wakeup was called")
        if self.group is None:
            return
        self.group.polled()
        now_ms = self.io.now_ms()
        if now_ms >= self._next_commit_ms:
            self._next_commit_ms = now_ms + self.settings.auto_commit_interval_ms
            if self.has_auto_commit:
                self.commit_moved()

    async def wait(self, timeout_ms: float) -> None:
        """Wait until there is something to take, to do or to raise; it may return early."""
        most_ms = self.settings.max_poll_interval_ms / 2  # the caller polls again: waiting counts
        await self.io.wait(
            lambda: self.fetcher.has_records or self.needs_attention,
            max(0.0, min(timeout_ms, most_ms, self._next_commit_ms - self.io.now_ms())),
        )

    async def poll_blocks(self, timeout_ms: float, max_bytes: int) -> list[FetchedBatches]:
        """Return fetched blocks undecoded, for bulk readers, and move the positions past them.

        The first block may exceed `max_bytes`. If a rebalance step is due, return nothing: serve
        it, as `AsyncConsumer` does, and call again.
        """
        deadline_ms = self.io.now_ms() + timeout_ms
        while True:
            self.begin_poll()
            if self.group is not None and self.group.queue:
                return []
            blocks = self.fetcher.take_blocks(max_bytes)
            if blocks or self.io.now_ms() >= deadline_ms:
                self.nudge()
                return blocks
            await self.wait(deadline_ms - self.io.now_ms())

    def wakeup(self) -> None:
        """Make the current or the next poll raise WokenUp."""
        self._woken = True
        self.io.wake()

    # -- a rebalance, step by step ---------------------------------------------------------------

    @property
    def step(self) -> Release | Take | Fail | None:
        """The next rebalance step for the application."""
        return self.group.queue[0] if self.group is not None and self.group.queue else None

    async def is_settled(
        self, step: Release | Take | Fail, timeout_ms: float, *, leaving: bool = False
    ) -> bool:
        """Return whether a step may begin: partitions are committed before they are revoked.

        Commits get the operation timeout, over several calls, but only this call's `timeout_ms` if
        the consumer is `leaving`.
        """
        if not isinstance(step, Release) or step.lost:
            return True
        assert self.commits is not None, "a member has a group"
        now_ms = self.io.now_ms()
        if self._settling is not step:
            self._settling = step
            self._settle_until_ms = now_ms + self.control.settings.operation_timeout_ms
            self.fetcher.pause(key for key in step.partitions if self.fetcher.progress_of(key))
            if self.has_auto_commit:
                self.commit_moved(step.partitions)
        if leaving:
            self._settle_until_ms = min(self._settle_until_ms, now_ms + timeout_ms)
        await self.commits.drain(max(0.0, min(timeout_ms, self._settle_until_ms - now_ms)))
        return not self.commits.is_busy or self.io.now_ms() >= self._settle_until_ms

    async def begin(self, step: Release | Take | Fail) -> ListenerCall | None:
        """Start a settled step; return the listener call to make, if any.

        Raises the error of a `Fail`.
        """
        assert self.group is not None, "steps are the group's"
        match step:
            case Fail(error):
                self.group.finished(step)
                raise error
            case Take(partitions):
                self.rebalances += 1
                for key in sorted(partitions):
                    self.fetcher.start_from(key, COMMITTED)
                self.nudge()
                return ListenerCall("on_partitions_assigned", sorted(partitions))
            case Release(partitions, lost):
                keys = sorted(key for key in partitions if self.fetcher.progress_of(key))
                method = "on_partitions_lost" if lost else "on_partitions_revoked"
                return ListenerCall(method, keys) if keys else None

    async def finish(self, step: Release | Take | Fail) -> None:
        """Complete a step whose listener was called."""
        if self.group is None:  # the listener unsubscribed or closed the consumer
            return
        if isinstance(step, Release):
            if not step.lost and self.commits is not None:  # wait for the listener's commits
                await self.commits.drain(max(0.0, self._settle_until_ms - self.io.now_ms()))
            self.fetcher.remove(step.partitions)
            self.group.finished(step)
            self.group.feed(Released(step))
        elif isinstance(step, Take):
            self.group.finished(step)
            self.group.feed(Taken(step))
        self.nudge()

    def enforce_rebalance(self, reason: str) -> None:
        """Rejoin the group as soon as possible."""
        if self.group is None:
            raise WrongState("only a subscribed consumer can join again")
        self.group.feed(RejoinAsked(reason or "the application asked for it"))

    # -- commits ---------------------------------------------------------------------------------

    def positions(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the application's positions, ready to commit.

        A position in a deleted topic is skipped: it means nothing in a new topic of the same name.
        """
        found = {}
        for key in keys:
            progress = self.fetcher.progress_of(key)
            if progress is None or progress.position is None:
                continue
            topic = self.control.cluster.topics.get(key.topic)
            if topic is None or progress.topic_id in (ZERO_UUID, topic.topic_id):
                found[key] = CommittedOffset(progress.position, progress.epoch)
        return found

    def commit_moved(self, keys: Collection[TopicPartition] | None = None) -> None:
        """Commit the positions that have moved since they were last committed."""
        with self.fetcher.lock:
            moved = self.fetcher.moved
            self._commit_positions([key for key in moved if keys is None or key in keys])

    def commit_positions(self, done: Done) -> None:
        """Commit all positions, even unmoved ones, because a committed offset may expire."""
        self._commit_positions(self.fetcher.assignment(), done)

    def _commit_positions(self, keys: list[TopicPartition], done: Done | None = None) -> None:
        with self.fetcher.lock:
            for key in keys:
                self.fetcher.moved.pop(key, None)
            offsets = self.positions(keys)
        if not offsets:
            if done is not None:
                self._commits().submit({}, done)  # `done` must wait for the commits in flight
            return

        def ended(committed: Offsets, failure: Exception | None) -> None:
            if failure is not None:
                for key in committed:
                    if self.fetcher.progress_of(key) is not None:
                        self.fetcher.moved[key] = None
            if done is None and failure is not None:
                _log.warning("automatic commit failed: %s", failure)
            self._committed(committed, failure)
            if done is not None:
                done(committed, failure)

        self._commits().submit(offsets, ended)

    def commit_offsets(self, offsets: Offsets, done: Done) -> None:
        """Commit the given offsets after all earlier commits."""

        def ended(committed: Offsets, failure: Exception | None) -> None:
            self._committed(committed, failure)
            done(committed, failure)

        self._commits().submit(offsets, ended)

    async def commit(
        self, offsets: Mapping[TopicPartition, CommittedOffset | int] | None = None
    ) -> None:
        """Commit offsets, or all positions, and wait; raise CommitFailed or KafkaError."""
        future, done = future_end()
        self.commit_async(offsets, done)
        await future

    def commit_async(
        self, offsets: Mapping[TopicPartition, CommittedOffset | int] | None, done: Done
    ) -> None:
        """Commit offsets, or all positions; `done` is called in the order of the calls."""
        self.check_open()
        if offsets is None:
            self.commit_positions(done)
        else:
            self.commit_offsets(as_committed(offsets), done)

    def _committed(self, offsets: Offsets, failure: Exception | None) -> None:
        if failure is not None:
            self.commits_failed += 1
            return
        self.commits_made += 1
        if self.interceptors:
            self.interceptors.on_commit(offsets)

    def _commits(self) -> Commits:
        if self.commits is None:
            raise InvalidSetting("commits need a group_id, found none")
        return self.commits

    async def committed(
        self, keys: Collection[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the group's committed offsets; partitions without one are left out."""
        self.check_open()
        await self.control.know(key.topic for key in keys)
        return await self._commits().committed(keys)

    async def _committed_of(
        self, keys: list[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]] | None:
        """Return committed offsets for new positions; None if they cannot be fetched yet."""
        if self.commits is None:
            return {}
        if self._who() is None:
            return None
        await self.control.know({key.topic for key in keys})
        found = await self.commits.committed_now(keys)
        if found is None:
            return None
        return {key: (one.offset, one.leader_epoch) for key, one in found.items()}

    def _hold(self, key: TopicPartition) -> Progress | None:
        """Return the `hold` of `Commits`: the progress is replaced when an assignment ends."""
        return self.fetcher.progress_of(key) if self.group is not None else None

    def _who(self) -> GroupMetadata | None:
        """Return the member that commits offsets; None while this consumer has no membership."""
        if self.group is None:
            return self.fetcher.group_metadata()
        metadata = self.group.member.metadata
        return metadata if metadata.is_member else None

    def group_metadata(self) -> GroupMetadata:
        """Return the group that a transactional producer commits for; raise InvalidSetting."""
        if self.group is not None:
            return self.group.last_membership
        return self.fetcher.group_metadata()

    # -- lookups ---------------------------------------------------------------------------------

    async def offsets(
        self, keys: Iterable[TopicPartition], time_ms: int
    ) -> dict[TopicPartition, int]:
        """Return the first (EARLIEST) or last (LATEST) offsets."""
        self.check_open()
        found = await list_offsets(
            self.control,
            dict.fromkeys(keys, time_ms),
            read_committed=self.settings.read_committed,
        )
        return {key: answer.offset for key, answer in found.items()}

    async def position(self, key: TopicPartition) -> int:
        """Return the next record's offset; raise WrongState if the partition is not assigned."""
        self.check_open()
        progress = self.fetcher.progress_of(key)
        if progress is None:
            raise WrongState(f"{key} is not assigned to this consumer")
        if progress.position is None:
            await self.control.repeat(lambda: self.fetcher.look_up_now(progress))
        if progress.position is None:
            raise WrongState(f"{key} has no position yet")
        return progress.position

    async def topics(self) -> dict[str, int]:
        """Return all topics with their partition counts."""
        self.check_open()
        await self.control.repeat(lambda: self.control.refresh(None))
        return {name: len(topic.partitions) for name, topic in self.control.cluster.topics.items()}

    # -- closing -----------------------------------------------------------------------------------

    def last_step(self) -> Release | None:
        """Return the step that releases all partitions before a member leaves, if it has any."""
        if self.group is None:
            return None
        self.group.queue.clear()
        keys = frozenset(self.fetcher.assignment())
        lost = not self.group.member.metadata.is_member
        step = Release(keys, lost=lost)
        self.group.queue.append(step)
        return step if keys else None

    async def unsubscribe(
        self, reason: str, leave_group: bool | None = None, timeout_ms: float | None = None
    ) -> None:
        """Leave the group and read nothing; `last_step` must have released the partitions."""
        self.fetcher.remove(self.fetcher.assignment())
        self.wanted = Wanted()
        group, self.group = self.group, None
        self._next_commit_ms = float("inf")
        if group is not None:
            wait_ms = self.control.settings.request_timeout_ms if timeout_ms is None else timeout_ms
            await group.leave(reason, leave_group, wait_ms)
            await group.stop()
        self.nudge()

    async def close(self, timeout_ms: float, leave_group: bool | None) -> None:
        """Leave the group and close all connections; does nothing if already closed."""
        if self.is_closed:
            return
        deadline_ms = self.io.now_ms() + timeout_ms
        if self.commits is not None:
            await self.commits.drain(timeout_ms)
        left_ms = max(0.0, deadline_ms - self.io.now_ms())
        await self.unsubscribe("the consumer is closed", leave_group, left_ms)
        await self.abandon()
        self.interceptors.close()

    async def abandon(self) -> None:
        """Stop without notifying any broker, as a crashed process would."""
        self.is_closed = True
        group, self.group = self.group, None
        if group is not None:
            await group.stop()
        tasks, self._tasks = [*self._tasks, *self._look_ups], []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.commits is not None:
            await self.commits.stop()
        self.disconnect()

    def disconnect(self) -> None:
        """Close all connections."""
        self.fetcher.close()
        for core in (self._joins, self.control):
            core.close()
        self.io.wake()

    # -- tasks -------------------------------------------------------------------------------------

    async def _fetch_on(self) -> None:
        """Fetch ahead of the application."""
        while True:
            self._nudged = False
            await self.fetcher.step(look_up=False)
            self.io.wake()
            await self._fetches.wait_for(
                lambda: self._nudged or self.fetcher.has_work, self.fetcher.next_try_ms()
            )

    async def _look_up_on(self) -> None:
        """Find positions. A leader that does not answer delays only its own partitions."""
        while True:
            await self.io.wait(lambda: self.fetcher.positions.is_wanted, _WAIT_MS_MAX)
            for keys in self.fetcher.positions.by_leader():
                task = asyncio.create_task(self._look_up(keys))
                self._look_ups.add(task)
                task.add_done_callback(self._look_ups.discard)
                task.add_done_callback(self._ended)
            await asyncio.sleep(0)

    async def _look_up(self, keys: Collection[TopicPartition]) -> None:
        await self.fetcher.look_up(keys)
        self.nudge()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a task of the consumer ended", exc_info=error)
            self._broken = error if isinstance(error, Exception) else ClientError(repr(error))
            self.io.wake()

    def _new_group(self) -> GroupShell:
        """Create the group membership, not joined yet."""
        assignors = self._assignors or load_assignors(self.settings)
        backoff_ms = self.control.settings.retry_backoff_ms
        shell = GroupShell(
            self._joins,
            self.control,
            self._coordinators,
            new_member(self.settings, assignors, backoff_ms, self.io.chance),
            assignors,
            create_topics=self.settings.allow_auto_create_topics,
            internal_topics=not self.settings.exclude_internal_topics,
        )
        shell.on_topics = self._topics_seen
        return shell

    def _topics_seen(self, topics: Collection[str]) -> None:
        self.fetcher.metadata_seen(topics)
        self.nudge()
