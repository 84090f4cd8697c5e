"""Shell of one shard of groups: adds timers and transactions to what all shards do.

The offsets of a transaction are appended separately, after the transaction coordinator has
confirmed that the transaction includes this partition. The log may still refuse them if the
producer is fenced. Markers are appended in the same order, and take effect on the shard once they
are below the high watermark.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from raylog.actors.common_messages import Route
from raylog.actors.coordination.hosting import Host
from raylog.actors.coordination.lease import LeaseHolder
from raylog.actors.coordination.rules.step import Change, ClientCall, LogRecord, Step, TimerKey
from raylog.actors.coordination.timers import Timers
from raylog.actors.group.assigning import Assigning
from raylog.actors.group.loading import load
from raylog.actors.group.rules.classic.subscriptions import LIGHT_BYTES_MAX, topics_of
from raylog.actors.group.rules.failures import failed
from raylog.actors.group.rules.gradual import InTurns
from raylog.actors.group.rules.settings import GroupSettings
from raylog.actors.group.rules.shard import Shard
from raylog.actors.group.rules.sweeping import Part, turn_of
from raylog.actors.group.rules.transactions import batch_of, names_existing, producer_of
from raylog.actors.group.rules.verifying import Verifying
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.runtime.base import Link, Runtime, Timer
from raylog.actors.transaction.messages import Marker, TransactionCoordinators
from raylog.wire.control import EndTxnMarker, encode_end_txn_marker
from raylog.wire.errors import (
    EncodeError,
    ErrorCode,
    InvalidRecord,
    KafkaError,
    NotCoordinator,
    UnknownServerError,
)
from raylog.wire.messages.offset_delete import OffsetDeleteRequest
from raylog.wire.messages.offset_fetch import OffsetFetchRequest
from raylog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

log = logging.getLogger(__name__)
SWEPT_AT_ONCE = 1_000
"""Offsets, groups and members handled in one turn, in which all of the offsets may expire."""
Marked = Callable[[ErrorCode], None]
"""Called with the outcome of a marker."""


@dataclass(slots=True)
class _Count:
    """A countdown of appends."""

    left: int


class ShardHost(Host[Shard, Step]):
    """One led partition: first loading, then active, finally closed.

    `stepped` is called after each step, because the shard may have tasks for assignors. `verified`
    says whether transactions of older clients must include the partition of their offsets
    (KIP-890).
    """

    def __init__(
        self,
        runtime: Runtime,
        link: Link,
        route: Route,
        image: MetadataImage,
        lease: LeaseHolder,
        settings: GroupSettings,
        assigning: Assigning,
        stepped: Callable[[], None],
        transactions: TransactionCoordinators,
        verified: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._assigning = assigning
        self._notify_stepped = stepped
        self._markers: dict[int, Marked] = {}
        """Callbacks of markers, by token."""
        self._in_groups: set[int] = set()
        """Tokens of requests that waited in a group when the shard was closed."""
        self._verifying = Verifying(transactions, route.partition, verified)
        self._deleted: dict[str, int] = {}
        """Deleted topics whose offsets must be forgotten: name to the time at which the deletion
        was seen. An entry stays until the log has the tombstones, including while the shard is
        loading."""
        self._expiry: Timer | None = None
        self._timers = Timers(runtime, self._timer_fired)
        super().__init__(runtime, link, route, image, lease, settings.offsets_commit_timeout_ms)

    def __str__(self) -> str:
        return f"group shard {self.route.partition}"

    # ---- what kinds of shards differ in --------------------------------------------------

    def _new_shard(self) -> Shard:
        return Shard(self._settings, self._assigning, self._deleted)

    def _new_step(self, shard: Shard) -> Step:
        return self._step(shard.replay)

    def _step(self, replay: Callable[[LogRecord], Change]) -> Step:
        runtime = self._runtime
        return Step(runtime.now_ms(), runtime.monotonic_ms(), self._image, runtime.random, replay)

    async def _read(self, shard: Shard) -> int:
        return await load(self._runtime, self.link, self.route, shard)

    def _failed(self, call: ClientCall[Any], failure: KafkaError) -> Any:
        """Answer NOT_COORDINATOR if the request waits in a group, otherwise the failure."""
        if call.token in self._in_groups:
            failure = NotCoordinator("the group is loaded again")
        return failed(call.request, call.version, failure)

    def _needs_log(self, call: ClientCall[Any]) -> bool:
        request = call.request
        return not isinstance(request, OffsetFetchRequest) or request.require_stable

    def _needs_lease(self, request: Any) -> bool:
        read = request.request if isinstance(request, InTurns) else request
        return isinstance(read, OffsetFetchRequest)

    def _carry_out(self, step: Step) -> bool:
        """Set timers before sending the responses, which may lead to new timer changes."""
        self._timers.apply(step.timers)
        return super()._carry_out(step)

    def _stepped(self, step: Step) -> None:
        self._notify_stepped()

    def _activated(self) -> None:
        self._expiry = self._runtime.call_later(
            self._settings.offsets_retention_check_interval_ms, self._expire
        )

    def _begin(self, shard: Shard) -> None:
        self._each_group(shard, iter(tuple(shard.groups)), shard.loaded)
        forgotten = partial(self._have_forgotten, self._deleted.copy())
        self._forget(shard, shard.walk(), forgotten, _Count(1))

    def _deactivated(self) -> None:
        self._in_groups = {asked.token for asked in self._shard.unload()}
        self._timers.clear()
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _end_waits(self, failure: KafkaError) -> None:
        super()._end_waits(failure)
        markers, self._markers = self._markers, {}
        for marked in markers.values():
            marked(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # ---- requests ------------------------------------------------------------------------

    def _take(self, call: ClientCall[Any]) -> None:
        if isinstance(call.request, TxnOffsetCommitRequest):
            self._verify(call)
        elif isinstance(call.request, OffsetDeleteRequest):
            self._when_read((call.request.group_id,), partial(self._delete_offsets, call))
        else:
            super()._take(call)

    def _delete_offsets(self, call: ClientCall[OffsetDeleteRequest]) -> None:
        if call.token in self._waiting:  # otherwise it has failed in the meantime
            super()._take(call)

    def topics_changed(self, deleted: set[str], changed: set[str]) -> None:
        """Handle topics that were deleted, created, or got more partitions."""
        seen = dict.fromkeys(deleted, self._runtime.now_ms())
        self._deleted |= seen
        if self._state != "active":
            return
        shard = self._shard
        names = frozenset(deleted | changed)
        self._each_group(
            shard,
            iter(tuple(shard.groups)),
            lambda step, group_ids: shard.topics_changed(step, names, group_ids),
        )
        if deleted:
            forgotten = partial(self._have_forgotten, seen)
            self._forget(shard, shard.walk(deleted), forgotten, _Count(1))

    def _each_group(
        self, shard: Shard, left: Iterator[str], event: Callable[[Step, Iterable[str]], None]
    ) -> None:
        """Run an event for all groups, a few in each turn of the event loop."""
        if self._state != "active" or shard is not self._shard:
            return
        now: list[str] = []
        room = SWEPT_AT_ONCE
        for group_id in left:
            now.append(group_id)
            group = shard.groups.get(group_id)
            room -= 1 + (0 if group is None else group.weight())
            if room <= 0:
                self._runtime.call_later(0, lambda: self._each_group(shard, left, event))
                break
        self._insist(lambda step: event(step, now))

    def _forget(
        self,
        shard: Shard,
        walk: Iterator[Part],
        forgotten: Callable[[], None],
        waiting: _Count,
    ) -> None:
        """Forget offsets of deleted topics, a few in each turn of the event loop.

        A shard that is loaded in the meantime does this itself.
        """
        if self._state != "active" or shard is not self._shard:
            return
        now, is_last = turn_of(walk, SWEPT_AT_ONCE)
        waiting.left += not is_last

        def done() -> None:
            waiting.left -= 1
            if not waiting.left:
                forgotten()

        self._insist(lambda step: shard.forget_gone(step, now), done)
        if not is_last:
            self._runtime.call_later(0, lambda: self._forget(shard, walk, forgotten, waiting))

    def _have_forgotten(self, deleted: dict[str, int]) -> None:
        """Record that the log has all tombstones for these deletions."""
        for name, at_ms in deleted.items():
            if self._deleted.get(name) == at_ms:
                del self._deleted[name]

    def assignment_is_ready(self, group_id: str) -> None:
        """Continue with the result of an assignor that ran in another process."""
        if self._state == "active":
            self._insist(lambda step: self._shard.assignment_is_ready(step, group_id))

    def _timer_fired(self, group_id: str, key: TimerKey) -> None:
        """Run a group's timer event.

        If the log refuses the records, repeat the event unless the timer has been set again.
        """
        if self._state != "active":
            return

        def refused(_: KafkaError | None = None) -> None:
            at_ms = self._runtime.monotonic_ms() + self._repeat_delay_ms()
            self._timers.ensure((group_id, key), at_ms)

        step = self._run(lambda step: self._shard.timer(step, group_id, key))
        if step is not None and step.records:
            self._appends.when_durable(None, refused)
        elif step is None and self.is_active:
            refused()

    def _expire(self) -> None:
        self._expiry = self._runtime.call_later(
            self._settings.offsets_retention_check_interval_ms, self._expire
        )
        self._sweep(self._shard, self._shard.walk())

    def _sweep(self, shard: Shard, walk: Iterator[Part]) -> None:
        """Check all groups for expired offsets, a few in each turn."""
        if self._state != "active" or shard is not self._shard:
            return
        now, is_last = turn_of(walk, SWEPT_AT_ONCE)

        def look() -> None:
            self._run(lambda step: shard.expire(step, now))
            if not is_last:
                self._runtime.call_later(0, lambda: self._sweep(shard, walk))

        self._when_read({part.group_id for part in now}, look)

    # ---- subscriptions of classic groups -------------------------------------------------

    def _when_read(self, group_ids: Collection[str], look: Callable[[], None]) -> None:
        """Read the groups' subscriptions, in a thread if they are large; then call `look`."""
        if _weighs_little(self._shard.unread_subscriptions(group_ids)):
            look()
        else:
            self._runtime.start(self._read_subscriptions(group_ids, look), "read subscriptions")

    async def _read_subscriptions(
        self, group_ids: Collection[str], look: Callable[[], None]
    ) -> None:
        """Read until all subscriptions are known, since a new generation may bring new ones."""
        shard = self._shard
        while self._state == "active" and shard is self._shard:
            unread = shard.unread_subscriptions(group_ids)
            if _weighs_little(unread):
                look()
                return
            for group_id, subscriptions in unread.items():
                topics = await self._runtime.run_blocking(topics_of, subscriptions)
                shard.subscriptions_were_read(group_id, subscriptions, topics)

    # ---- transactions --------------------------------------------------------------------

    def _verify(self, call: ClientCall[TxnOffsetCommitRequest]) -> None:
        """Accept offsets of a transaction once it is known to include this partition."""
        request = call.request
        is_open = self._shard.offsets.pending.is_open(producer_of(request))
        if is_open or not request.group_id or not names_existing(self._image, request):
            self._commit_in_transaction(call)
            return

        def verified(failure: KafkaError | None) -> None:
            if call.token not in self._waiting:
                return  # it has failed in the meantime
            if failure is None:
                self._commit_in_transaction(call)
            else:
                self._fail_one(call.token, failure)

        self._verifying.ask(call, verified)

    def _commit_in_transaction(self, call: ClientCall[TxnOffsetCommitRequest]) -> None:
        shard = self._shard
        first = shard.offsets.pending.next_number
        step = self._step(shard.replay_in(call.request))
        if not self._handled(step, lambda step: shard.handle(step, call)):
            return
        if not step.records:
            self._carry_out(step)
            return
        numbers = range(first, shard.offsets.pending.next_number)
        (answer,) = step.answers
        try:
            batch = batch_of(step.records, producer_of(call.request), step.now_ms)
        except (EncodeError, InvalidRecord) as failure:
            log.exception("%s: offsets of a transaction cannot be written", self)
            shard.offsets.revert_pending(numbers)
            self._fail_one(call.token, UnknownServerError(str(failure)))
            return

        def appended(refusal: KafkaError | None) -> None:
            if refusal is None:
                shard.offsets.pending.confirm(numbers)
            else:
                shard.offsets.revert_pending(numbers)
            if answer.token not in self._waiting:
                return  # it has waited too long
            if refusal is None:
                self.answer((answer,))
            else:
                self.refuse(answer, refusal)

        self._appends.add_batch(batch, appended, partial(self.refuse, answer))

    def end_transaction(self, marker: Marker, marked: Marked) -> None:
        """Append a marker; `marked` is called when it is committed, or with the error."""
        if self._state != "active":
            marked(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        shard, producer_id = self._shard, marker.producer_id
        if not shard.may_end(marker):
            marked(ErrorCode.INVALID_PRODUCER_EPOCH)
            return
        batch = encode_end_txn_marker(
            EndTxnMarker(marker.committed, marker.coordinator_epoch),
            producer_id=producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp_ms=self._runtime.now_ms(),
        )
        self._verifying.ended(marker)
        before = shard.offsets.pending.close(producer_id)
        token = next(self._tokens)
        self._markers[token] = marked

        def appended(refusal: KafkaError | None) -> None:
            if refusal is None:
                shard.offsets.end_transaction(producer_id, before, committed=marker.committed)
            self._markers.pop(token)(ErrorCode.NONE if refusal is None else refusal.code)

        self._appends.add_batch(bytearray(batch), appended)


def _weighs_little(unread: Mapping[str, Sequence[bytes]]) -> bool:
    """Whether subscriptions are small enough to be read on the event loop."""
    return sum(map(len, chain.from_iterable(unread.values()))) <= LIGHT_BYTES_MAX
