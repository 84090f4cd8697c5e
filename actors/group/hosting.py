"""Shell of one shard: loads it from its partition's log, appends to it, answers.

An answer that waits for records leaves when the append that holds the newest of them is
acknowledged. An append that fails, or whose outcome is unknown, fails everyone who waits; then the
shard is read from the log again, which tells what has been appended.

Offsets of a transaction are an append of their own, after its coordinator has said that the
transaction holds this partition. The log may refuse it for itself: the producer was fenced. Markers
go into the log in the same order, and change the shard when they are below the high watermark.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from raylog.actors.coordination.appending import Appender
from raylog.actors.coordination.requests import coordinator_error
from raylog.actors.coordination.step import Asked, LogRecord, Step, TimerKey
from raylog.actors.coordination.timers import Timers
from raylog.actors.group.api import failed
from raylog.actors.group.assigning import Assigning
from raylog.actors.group.loading import load
from raylog.actors.group.settings import GroupSettings
from raylog.actors.group.shard import Shard
from raylog.actors.group.transactions import batch_of, names_existing, producer_of
from raylog.actors.group.verifying import TransactionsPort, Verifying
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.ports import Route
from raylog.actors.runtime.base import (
    BackgroundTask,
    Link,
    PeerLost,
    Runtime,
    Timer,
)
from raylog.actors.transaction.api import Marker
from raylog.wire.errors import (
    CoordinatorLoadInProgress,
    DecodeError,
    ErrorCode,
    KafkaError,
    NotCoordinator,
    UnknownServerError,
)
from raylog.wire.internal.offsets import OffsetCommitKey
from raylog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from raylog.wire.records import EndTxnMarker, encode_end_txn_marker

log = logging.getLogger(__name__)
RETRY_S = (0.1, 5.0)
"""First and longest wait before a load is tried again."""
SWEEP_GROUPS = 500
"""Groups looked at in one go for expired offsets."""
Reply = Callable[[Any], None]
Marked = Callable[[ErrorCode], None]
"""Told what became of a marker."""


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
        transactions: TransactionsPort,
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
        self._appends = self._appender()
        self._markers: dict[int, Marked] = {}
        """Who waits for a marker, by token."""
        self._verifying = Verifying(
            transactions, route.partition, needed=settings.transactions_verified
        )
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
        if isinstance(asked.request, TxnOffsetCommitRequest):
            self._verify(placed)
        else:
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

    # ---- transactions --------------------------------------------------------------------

    def _verify(self, asked: Asked[TxnOffsetCommitRequest]) -> None:
        """Take offsets of a transaction when it surely holds this partition."""
        request = asked.request
        is_open = self._shard.offsets.pending.is_open(producer_of(request))
        if is_open or not request.group_id or not names_existing(self._image, request):
            self._commit_in_transaction(asked)
            return

        def verified(failure: KafkaError | None) -> None:
            if asked.token not in self._waiting:
                return  # failed meanwhile, with all that waited
            if failure is None:
                self._commit_in_transaction(asked)
            else:
                self._refuse(asked.token, failure)

        self._verifying.ask(asked, verified)

    def _commit_in_transaction(self, asked: Asked[TxnOffsetCommitRequest]) -> None:
        shard = self._shard
        first = shard.offsets.pending.next_number
        step = self._take(lambda step: shard.handle(step, asked), shard.replay_in(asked.request))
        if step is None:
            return
        if not step.records:
            self._carry_out(step)
            return
        numbers = range(first, shard.offsets.pending.next_number)
        (answer,) = step.answers

        def appended(refusal: KafkaError | None) -> None:
            if refusal is None:
                shard.offsets.pending.confirm(numbers)
                self._reply(answer.token, answer.response)
            else:
                shard.offsets.revert_pending(numbers)
                self._refuse(answer.token, coordinator_error(refusal))

        batch = batch_of(step.records, producer_of(asked.request), step.now_ms)
        self._appends.add_batch(batch, appended)

    def end_transaction(self, marker: Marker, marked: Marked) -> None:
        """Append a marker; `marked` is called when it counts, or with why it does not."""
        if self._state != "active":
            marked(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        shard, producer_id = self._shard, marker.producer_id
        if not shard.may_end(marker):
            marked(ErrorCode.INVALID_PRODUCER_EPOCH)
            return
        self._verifying.ended(producer_id)
        before = shard.offsets.pending.close(producer_id)
        token = next(self._tokens)
        self._markers[token] = marked

        def appended(refusal: KafkaError | None) -> None:
            if refusal is None:
                shard.offsets.end_transaction(producer_id, before, committed=marker.committed)
            self._markers.pop(token)(ErrorCode.NONE if refusal is None else refusal.code)

        batch = encode_end_txn_marker(
            EndTxnMarker(marker.committed, marker.coordinator_epoch),
            producer_id=producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp_ms=self._runtime.now_ms(),
        )
        self._appends.add_batch(bytearray(batch), appended)

    # ---- steps ---------------------------------------------------------------------------

    def _run(self, event: Callable[[Step], None]) -> None:
        """Let the shard handle an event and carry out what comes of it."""
        step = self._take(event, self._shard.replay)
        if step is not None:
            self._carry_out(step)

    def _take(
        self, event: Callable[[Step], None], replay: Callable[[LogRecord], None]
    ) -> Step | None:
        """Let the shard handle an event.

        What nobody foresaw may leave it with half a step replayed: it is loaded again.
        """
        runtime = self._runtime
        step = Step(runtime.now_ms(), runtime.monotonic_ms(), self._image, runtime.random, replay)
        try:
            event(step)
        except AssertionError:
            raise
        except Exception as failure:
            log.exception("%s: a step failed", self)
            self._fail(UnknownServerError(str(failure)))
            return None
        return step

    def _carry_out(self, step: Step) -> None:
        if step.records:
            self._appends.add(step.records, _is_commit)
        for group_id, key, at_ms in step.timers:
            if at_ms is None:
                self._timers.cancel((group_id, key))
            else:
                self._timers.set((group_id, key), at_ms)
        for answer in step.answers:
            if answer.durable:
                self._appends.when_durable(partial(self._reply, answer.token, answer.response))
            else:
                self._reply(answer.token, answer.response)
        self._stepped()

    def _reply(self, token: int, response: Any) -> None:
        _, reply = self._waiting.pop(token)
        reply(response)

    def _refuse(self, token: int, failure: KafkaError) -> None:
        asked, reply = self._waiting.pop(token)
        reply(failed(asked.request, asked.version, failure))

    # ---- loading and ending --------------------------------------------------------------

    def _appender(self) -> Appender:
        return Appender(
            self._runtime,
            self.link,
            self.route,
            self._settings.offsets_commit_timeout_ms,
            lambda failure: self._fail(coordinator_error(failure)),
        )

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
        self._appends.close()
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        waiting, self._waiting = self._waiting, {}
        moved = NotCoordinator("the group is loaded again")
        for token, (asked, reply) in waiting.items():
            reason = moved if token in in_groups else failure
            reply(failed(asked.request, asked.version, reason))
        markers, self._markers = self._markers, {}
        for marked in markers.values():
            marked(ErrorCode.NOT_LEADER_OR_FOLLOWER)

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
        self._appends = self._appender()
        self._state = "active"
        self._expiry = self._runtime.call_later(
            self._settings.offsets_retention_check_interval_ms, self._expire
        )
        self._run(shard.loaded)


def _is_commit(record: LogRecord) -> bool:
    """A committed offset stands on its own; other records of one step stay together."""
    return isinstance(record.key, OffsetCommitKey)
