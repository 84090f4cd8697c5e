"""The shell of a membership machine: its clock, requests, metadata and assignors.

Two background tasks run: one passes time to the machine, one watches the topics. What the
application must do itself (give up partitions, take them, see failures) waits in `queue` for its
next poll.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from raylog.assignors.api import Assignor, MemberAssignment, Topic, raised
from raylog.assignors.checking import check
from raylog.assignors.cooperative import first_round
from raylog.client.consumer.group.events import (
    Answered,
    Divide,
    Divided,
    DivideFailed,
    Effect,
    Event,
    Fail,
    ForgetCoordinator,
    LeaveAsked,
    LookUpTopics,
    Polled,
    Release,
    Send,
    Subscribed,
    Take,
    Ticked,
    TopicsSeen,
)
from raylog.client.consumer.group.wanted import Wanted
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.coordinators import Coordinators
from raylog.client.core import Core
from raylog.client.errors import ClientError, NotSupported
from raylog.client.retries import is_retriable
from raylog.wire.api import ApiKey
from raylog.wire.errors import DecodeError, EncodeError, KafkaError
from raylog.wire.messages.leave_group import LeaveGroupRequest

_log = logging.getLogger(__name__)
_MISSING_MS = 1_000.0
"""How soon to look again for subscribed topics that do not exist."""
_WAIT_MS_MAX = 3_600_000.0
_MEMBERS_LEAVE_SINCE = 3
"""First LeaveGroup version with a list of members (KIP-345)."""


class Membership(Protocol):
    """The interface of both machines."""

    @property
    def metadata(self) -> GroupMetadata:
        """The member as the coordinator knows it."""

    @property
    def next_ms(self) -> float:
        """The latest time for the next `Ticked`."""

    @property
    def is_rebalancing(self) -> bool:
        """Whether the assignment is about to change."""

    @property
    def needs_poll(self) -> bool:
        """Whether the next `Polled` makes it join, or report its failure again."""

    def handle(self, event: Event, now_ms: float) -> list[Effect]:
        """Handle an event."""

    def topics_to_watch(self) -> frozenset[str]:
        """Return the topics whose metadata matters."""


class GroupShell:
    """Runs one member. All methods must be called in the event loop's thread."""

    def __init__(
        self,
        core: Core,
        metadata: Core,
        coordinators: Coordinators,
        member: Membership,
        assignors: Collection[Assignor] = (),
        *,
        create_topics: bool = False,
        internal_topics: bool = False,
    ) -> None:
        """Create the shell of a member.

        `core` is for the coordinator, because a join that waits delays later requests on its
        connections. `metadata` is another core with the same view of the cluster.
        """
        self.member = member
        self.queue: deque[Release | Take | Fail] = deque()
        self.polled_ms = float("-inf")
        """When the application last polled; any thread may set it."""
        self.needs_poll = False
        """Whether to pass the next poll to the machine at once. For any thread."""
        self.on_topics: Callable[[Collection[str]], None] | None = None
        """Called with topics whose metadata was looked up."""
        self._core = core
        self._metadata = metadata
        self._coordinators = coordinators
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._create_topics = create_topics
        self._internal_topics = internal_topics
        self.last_membership = member.metadata
        """The last membership that the coordinator accepted, kept after the member was removed.

        A transaction that commits under it is then refused. Offsets committed without a member
        would be accepted, although other members own the partitions.
        """
        self._group_id = member.metadata.group_id
        self._wanted = Wanted()
        self._reported_polled_ms = float("-inf")
        self._nudged = False
        self._look_nudged = False
        self._tasks: dict[asyncio.Task[None], None] = {}

    # -- the application's side ------------------------------------------------------------------

    def start(self) -> None:
        """Start the background tasks."""
        self._spawn(self._tick_on())
        self._spawn(self._watch())

    def subscribe(self, wanted: Wanted) -> None:
        """Change the subscription; the next metadata lookup resolves a client-side pattern."""
        self._wanted = wanted
        if wanted.on_server and wanted.pattern is not None:
            self.feed(Subscribed(frozenset(), wanted.text_for_server))
        elif wanted.pattern is None:
            self.feed(Subscribed(wanted.topics))
        self._look_nudged = True
        self._core.io.wake()

    def feed(self, event: Event) -> None:
        """Pass an event to the machine and carry out its effects."""
        now_ms = self._core.io.now_ms()
        effects = self.member.handle(event, now_ms)
        if (membership := self.member.metadata).is_member:
            self.last_membership = membership
        self.needs_poll = self.member.needs_poll
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("group %s: %s -> %s", self._group_id, event, effects)
        for effect in effects:
            self._carry_out(effect)
        self._nudged = True
        self._core.io.wake()

    def polled(self) -> None:
        """Register that the application polls now."""
        self.polled_ms = self._core.io.now_ms()
        self._tell_polled()

    def finished(self, item: Release | Take | Fail) -> None:
        """Remove the first item of `queue`, which the application has dealt with."""
        if self.queue and self.queue[0] is item:
            self.queue.popleft()

    async def leave(self, reason: str, leave_group: bool | None, timeout_ms: float) -> None:
        """End the membership; wait up to `timeout_ms` for the coordinator's answer."""
        if self.member.is_rebalancing:
            self._core.close()  # a join that waits would delay the LeaveGroup
        before = set(self._tasks)
        self.feed(LeaveAsked(reason, leave_group))
        self.queue.clear()
        leaving = [task for task in self._tasks if task not in before]
        if leaving:
            await asyncio.wait(leaving, timeout=timeout_ms / 1_000)

    async def stop(self) -> None:
        """End all tasks without notifying the coordinator."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- effects -----------------------------------------------------------------------------------

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send():
                self._spawn(self._ask(effect))
            case ForgetCoordinator():
                self._coordinators.forget(self._group_id)
            case Release(lost=True):
                kept = [one for one in self.queue if isinstance(one, Fail)]
                self.queue = deque([effect, *kept])
            case Release() | Take() | Fail():
                self.queue.append(effect)
            case Divide():
                self._spawn(self._divide(effect))
            case LookUpTopics():
                self._look_nudged = True

    async def _ask(self, send: Send) -> None:
        """Send a request to the current coordinator."""
        answer: object
        try:
            found = await self._coordinators.find([self._group_id])
            node_id = found[self._group_id]
            request = await self._fitting(node_id, send.request)
            answer = await self._core.ask(
                node_id, request, send.expected, timeout_ms=send.timeout_ms
            )
        except EncodeError as error:
            answer = NotSupported(f"the coordinator is too old: {error}")
        except (KafkaError, ClientError, DecodeError) as error:
            answer = error
        self.feed(Answered(send.request, answer))

    async def _fitting(self, node_id: int, request: object) -> object:
        """Return the request in the form that the coordinator's version supports."""
        if isinstance(request, LeaveGroupRequest):
            version = await self._core.version_on(node_id, ApiKey.LEAVE_GROUP)
            if version < _MEMBERS_LEAVE_SINCE:
                member_id = request.members[0].member_id
                return LeaveGroupRequest(group_id=request.group_id, member_id=member_id)
        return request

    async def _divide(self, divide: Divide) -> None:
        """Run the assignor for all members."""
        try:
            names = frozenset().union(*(member.topics for member in divide.members))
            await self._metadata.repeat(lambda: self._look_up(names))
            topics = {name: topic for name in names if (topic := self._topic(name)) is not None}
            assignor = self._assignors[divide.protocol]
            try:
                found = assignor.assign(divide.members, topics)
            except Exception as error:
                raise raised(assignor.name, error) from error
            members = {member.member_id for member in divide.members}
            check(
                assignor.name, found, members, topics, shares_partitions=assignor.shares_partitions
            )
            given = first_round(divide.members, found) if assignor.cooperative else found
        except Exception as error:  # noqa: BLE001 - the application's poll raises any error
            self.feed(DivideFailed(divide, error))
            return
        counts = {name: topics[name].partitions if name in topics else 0 for name in names}
        self.feed(Divided(divide, given, counts, is_complete=_count(given) == _count(found)))

    def _topic(self, name: str) -> Topic | None:
        """Return a topic in the form that assignors use."""
        view = self._metadata.cluster.topics.get(name)
        if view is None:
            return None
        nodes = self._metadata.cluster.nodes
        racks = tuple(
            frozenset(
                rack
                for replica in view.partitions[number].replicas
                if (node := nodes.get(replica)) is not None and (rack := node.rack) is not None
            )
            for number in sorted(view.partitions)
        )
        return Topic(name, len(view.partitions), racks if any(racks) else ())

    # -- time --------------------------------------------------------------------------------------

    async def _tick_on(self) -> None:
        """Tick the machine when its time has come."""
        io = self._core.io
        while True:
            now_ms = io.now_ms()
            if now_ms >= self.member.next_ms:
                self._tell_polled()
                self.feed(Ticked())
            self._nudged = False
            wait_ms = min(self.member.next_ms - now_ms, _WAIT_MS_MAX)
            await io.wait(lambda: self._nudged, max(0.0, wait_ms))

    def _tell_polled(self) -> None:
        """Pass the latest poll to the machine. Not called for each poll, only when it matters."""
        if self.polled_ms > self._reported_polled_ms:
            self._reported_polled_ms = self.polled_ms
            self.feed(Polled(self.polled_ms))

    # -- topics ------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Look at the topics periodically and on request."""
        io, settings = self._core.io, self._metadata.settings
        while True:
            self._look_nudged = False
            wait_ms: float = settings.metadata_max_age_ms
            if self._wanted.topics or self._wanted.pattern or self.member.topics_to_watch():
                try:
                    is_complete = await self._look()
                except (KafkaError, ClientError) as error:
                    if not is_retriable(error) and not any(
                        isinstance(one, Fail) for one in self.queue
                    ):
                        self.queue.append(Fail(error))
                    is_complete = False
                if not is_complete:
                    wait_ms = min(wait_ms, _MISSING_MS)
            await io.wait(lambda: self._look_nudged, wait_ms)

    async def _look(self) -> bool:
        """Refresh the topics that matter; return whether all of them exist."""
        wanted = self._wanted
        names = self.member.topics_to_watch() | wanted.topics
        if wanted.pattern is None:
            await self._look_up(names)
        else:
            await self._metadata.refresh(None)
            if wanted.on_server:  # the assignment names some of them, by id
                names = frozenset(self._metadata.cluster.topics)
            else:
                self._resolve(wanted)
                names |= self.member.topics_to_watch()
        self._see(names)
        self._refuse_hopeless(wanted.topics)
        return all(name in self._metadata.cluster.topics for name in names)

    def _refuse_hopeless(self, topics: Collection[str]) -> None:
        """Raise the error of a topic that will not become readable by waiting."""
        for name in topics:
            failure = self._metadata.cluster.failures.get(name)
            if failure is not None and not is_retriable(failure):
                raise failure

    async def _look_up(self, names: Collection[str]) -> None:
        """Refresh the metadata of topics."""
        if names:
            own = set(names) <= self._wanted.topics
            await self._metadata.refresh(names, create=self._create_topics and own)

    def _resolve(self, wanted: Wanted) -> None:
        """Resolve a pattern to the topics that match it now."""
        assert wanted.pattern is not None, "a pattern is to be resolved"
        cluster = self._metadata.cluster
        found = frozenset(
            name
            for name, topic in cluster.topics.items()
            if wanted.pattern.fullmatch(name) and (self._internal_topics or not topic.is_internal)
        )
        if wanted is self._wanted:
            self.feed(Subscribed(found))

    def _see(self, names: Collection[str]) -> None:
        """Pass the metadata of topics to the machine and to `on_topics`."""
        cluster = self._metadata.cluster
        counts: Mapping[str, int] = {
            name: len(cluster.topics[name].partitions) if name in cluster.topics else 0
            for name in names
        }
        ids = {cluster.topics[name].topic_id: name for name in names if name in cluster.topics}
        self.feed(TopicsSeen(counts, ids))
        if self.on_topics is not None:
            self.on_topics(names)

    def _spawn(self, coroutine: object) -> None:
        """Start a task; if it fails, the consumer's next poll raises its error."""
        assert asyncio.iscoroutine(coroutine), "tasks are coroutines"
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the group's task ended", exc_info=error)
            failure = error if isinstance(error, Exception) else ClientError(repr(error))
            self.queue.append(Fail(failure))
            self._core.io.wake()


def _count(assignments: Mapping[str, MemberAssignment]) -> int:
    """Return how many partitions are assigned."""
    return sum(len(some) for one in assignments.values() for some in one.partitions.values())
