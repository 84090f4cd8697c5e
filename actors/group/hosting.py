"""Shell of one shard: loads it from its partition's log, appends to it, answers.

All records of the steps that come while an append is under way are the next append. An answer
that waits for records leaves when the append that holds the newest of them is acknowledged: by
all in-sync replicas, so that they are below the high watermark. An append that fails, or whose
outcome is unknown, fails everyone who waits; then the shard is read from the log again, which
tells what has been appended.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from raylog.actors.group import records
from raylog.actors.group.api import coordinator_error, failed
from raylog.actors.group.assigning import Assigning
from raylog.actors.group.base import Answer, Asked, GroupRecord, Step, TimerKey
from raylog.actors.group.loading import load
from raylog.actors.group.settings import GroupSettings
from raylog.actors.group.shard import Shard
from raylog.actors.group.timers import Timers
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.ports import Route
from raylog.actors.replica.api import PRODUCE, ProducePart, produced
from raylog.actors.runtime.base import (
    BackgroundTask,
    Link,
    PeerLost,
    PeerTimeout,
    Runtime,
    Timer,
)
from raylog.wire.errors import (
    CoordinatorLoadInProgress,
    DecodeError,
    KafkaError,
    NotCoordinator,
    UnknownServerError,
)
from raylog.wire.internal.offsets import OffsetCommitKey

log = logging.getLogger(__name__)
ACKS_ALL = -1
DEADLINE_GRACE_MS = 1_000
"""How much longer than the append may take its answer is waited for."""
APPEND_RECORDS_MAX = 1_000
"""An append that has so many takes no more: the event loop is not to wait for its bytes.

Records of one step stay together, but for committed offsets, each of which stands on its own.
"""
RETRY_S = (0.1, 5.0)
"""First and longest wait before a load is tried again."""
SWEEP_GROUPS = 500
"""Groups looked at in one go for expired offsets."""
Reply = Callable[[Any], None]


@dataclass(slots=True)
class _Append:
    """Records that go into one batch, and the answers that wait for them."""

    records: list[GroupRecord] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)


class ShardHost:
    """One led partition: loading, then active, in the end closed.

    `stepped` is called after each step: the shard may have given assignors work.
    """

    def __init__(
        self,
        runtime: Runtime,
        link: Link,
        route: Route,
        image: MetadataImage,
        settings: GroupSettings,
        assigning: Assigning,
        stepped: Callable[[], None],
    ) -> None:
        self.route = route
        self.link = link
        self._runtime = runtime
        self._image = image
        self._settings = settings
        self._assigning = assigning
        self._stepped = stepped
        self._shard = Shard(settings, assigning)
        self._state = "loading"
        self._tokens = itertools.count(1)
        self._waiting: dict[int, tuple[Asked[Any], Reply]] = {}
        self._in_flight: _Append | None = None
        self._queue: deque[_Append] = deque()
        """What comes behind it."""
        self._flush_is_due = False
        self._deadline: Timer | None = None
        self._expiry: Timer | None = None
        self._timers = Timers(runtime, self._timer_fired)
        self._loading: BackgroundTask = runtime.start(self._load(), f"load {self}")

    def __str__(self) -> str:
        return f"group shard {self.route.partition}"

    @property
    def is_active(self) -> bool:
        """Whether it answers."""
        return self._state == "active"

    @property
    def shard(self) -> Shard:
        """The machine, for looking at."""
        return self._shard

    # ---- requests ------------------------------------------------------------------------

    def ask(self, asked: Asked[Any], reply: Reply) -> None:
        """Hand a request to the shard; `reply` gets the response. The token is given here."""
        if self._state != "active":
            loading = self._state == "loading"
            reason = CoordinatorLoadInProgress if loading else NotCoordinator
            reply(failed(asked.request, asked.version, reason(f"{self} is {self._state}")))
            return
        token = next(self._tokens)
        placed = Asked(token, asked.request, asked.version, asked.client_id, asked.client_host)
        self._waiting[token] = (placed, reply)
        self._run(lambda step: self._shard.handle(step, placed))

    def topics_changed(self, deleted: set[str], changed: set[str]) -> None:
        """Topics were deleted, created, or have more partitions."""
        if self._state == "active":
            self._run(lambda step: self._shard.topics_changed(step, deleted, changed))

    def assignment_is_ready(self, group_id: str) -> None:
        """What an assignor worked out elsewhere is there."""
        if self._state == "active":
            self._run(lambda step: self._shard.assignment_is_ready(step, group_id))

    def _timer_fired(self, group_id: str, key: TimerKey) -> None:
        if self._state == "active":
            self._run(lambda step: self._shard.timer(step, group_id, key))

    def _expire(self) -> None:
        self._expiry = self._runtime.call_later(
            self._settings.offsets_retention_check_interval_ms, self._expire
        )
        self._sweep(self._shard, self._shard.group_ids())

    def _sweep(self, shard: Shard, group_ids: list[str]) -> None:
        """Look for expired offsets, some groups at a time."""
        if self._state != "active" or shard is not self._shard:
            return
        now, later = group_ids[:SWEEP_GROUPS], group_ids[SWEEP_GROUPS:]
        self._run(lambda step: shard.expire(step, now))
        if later:
            self._runtime.call_later(0, lambda: self._sweep(shard, later))

    # ---- steps ---------------------------------------------------------------------------

    def _run(self, event: Callable[[Step], None]) -> None:
        """Let the shard handle an event and carry out what comes of it.

        What nobody foresaw may leave the shard with half a step replayed: it is loaded again.
        """
        runtime = self._runtime
        shard = self._shard
        step = Step(
            runtime.now_ms(), runtime.monotonic_ms(), self._image, runtime.random, shard.replay
        )
        try:
            event(step)
        except AssertionError:
            raise
        except Exception as failure:
            log.exception("%s: a step failed", self)
            self._fail(UnknownServerError(str(failure)))
            return
        self._carry_out(step)

    def _carry_out(self, step: Step) -> None:
        if step.records:
            self._enqueue(step.records)
            self._schedule_flush()
        for group_id, key, at_ms in step.timers:
            if at_ms is None:
                self._timers.cancel((group_id, key))
            else:
                self._timers.set((group_id, key), at_ms)
        for answer in step.answers:
            holder = self._queue[-1] if self._queue else self._in_flight
            if answer.durable and holder is not None:
                holder.answers.append(answer)
            else:
                self._reply(answer.token, answer.response)
        self._stepped()

    def _enqueue(self, found: list[GroupRecord]) -> None:
        """Put a step's records into the last append, or into new ones where it is full."""
        queue = self._queue
        start = 0
        while start < len(found):
            if not queue or len(queue[-1].records) >= APPEND_RECORDS_MAX:
                queue.append(_Append())
            last = queue[-1].records
            end = min(len(found), start + APPEND_RECORDS_MAX - len(last))
            while end < len(found) and not isinstance(found[end].key, OffsetCommitKey):
                end += 1
            last.extend(found[start:end])
            start = end

    def _reply(self, token: int, response: Any) -> None:
        _, reply = self._waiting.pop(token)
        reply(response)

    # ---- appends -------------------------------------------------------------------------

    def _schedule_flush(self) -> None:
        """Append when this turn of the event loop is over, with all that it brings."""
        if not self._flush_is_due and self._in_flight is None:
            self._flush_is_due = True
            self._runtime.call_later(0, self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        if self._state != "active" or self._in_flight is not None or not self._queue:
            return
        append = self._in_flight = self._queue.popleft()
        batch = bytearray(records.encode_all(append.records, self._runtime.now_ms()))
        route = self.route
        timeout_ms = self._settings.offsets_commit_timeout_ms
        self._deadline = self._runtime.call_later(
            timeout_ms + DEADLINE_GRACE_MS,
            lambda: self._append_failed(append, PeerTimeout("the append took too long")),
        )
        part = ProducePart(route.topic_id, route.partition, route.leader_epoch, len(batch))
        self.link.request(
            PRODUCE,
            (ACKS_ALL, timeout_ms, [part]),
            (batch,),
            lambda outcomes, _payload: self._append_settled(append, outcomes),
            lambda failure: self._append_failed(append, failure),
        )

    def _append_settled(self, append: _Append, outcomes: list[Any]) -> None:
        if self._in_flight is not append:
            return  # given up meanwhile
        try:
            produced(outcomes[0])
        except KafkaError as failure:
            self._append_failed(append, failure)
            return
        self._in_flight = None
        self._settle_deadline()
        for answer in append.answers:
            self._reply(answer.token, answer.response)
        if self._queue:
            self._schedule_flush()

    def _append_failed(self, append: _Append, failure: Exception) -> None:
        if self._in_flight is append:
            log.warning("%s: an append failed: %s", self, failure)
            self._fail(coordinator_error(failure))

    def _settle_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # ---- loading and ending --------------------------------------------------------------

    def _fail(self, failure: KafkaError) -> None:
        """Fail everyone who waits, then begin again from the log."""
        self._state = "loading"
        self._end_waits(failure)
        self._loading = self._runtime.start(self._load(), f"load {self}")

    def close(self, why: str) -> None:
        """This broker leads the partition no longer, or another process has its log."""
        self._state = "closed"
        self._loading.cancel()
        self._end_waits(NotCoordinator(why))

    def _end_waits(self, failure: KafkaError) -> None:
        """Who waits in a group has to look for its coordinator; the others get the failure."""
        in_groups = {asked.token for asked in self._shard.unload()}
        self._timers.clear()
        self._settle_deadline()
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        self._in_flight = None
        self._queue.clear()
        waiting, self._waiting = self._waiting, {}
        moved = NotCoordinator("the group is loaded again")
        for token, (asked, reply) in waiting.items():
            reason = moved if token in in_groups else failure
            reply(failed(asked.request, asked.version, reason))

    async def _load(self) -> None:
        started_ms = self._runtime.monotonic_ms()
        wait_s, longest_s = RETRY_S
        while True:
            shard = Shard(self._settings, self._assigning)
            try:
                end = await load(self._runtime, self.link, self.route, shard)
            except (KafkaError, DecodeError, PeerLost, OSError) as failure:
                log.warning("%s is not loaded: %s", self, failure)
                if not self.link.is_open:
                    return  # the Broker brings a route to the successor
                await self._runtime.sleep(wait_s)
                wait_s = min(wait_s * 2, longest_s)
            else:
                break
        took_ms = self._runtime.monotonic_ms() - started_ms
        log.info("%s is loaded to offset %d in %.0f ms", self, end, took_ms)
        self._shard = shard
        self._state = "active"
        self._expiry = self._runtime.call_later(
            self._settings.offsets_retention_check_interval_ms, self._expire
        )
        self._run(shard.loaded)
