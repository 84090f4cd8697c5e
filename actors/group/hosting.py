"""Shell of one shard of groups: beside what all shards do, its timers and its transactions.

Offsets of a transaction are an append of their own, after its coordinator has said that the
transaction holds this partition. The log may refuse it for itself: the producer was fenced. Markers
go into the log in the same order, and change the shard when they are below the high watermark.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from raylog.actors.coordination.hosting import Host
from raylog.actors.coordination.step import Asked, Change, LogRecord, Step, TimerKey
from raylog.actors.coordination.timers import Timers
from raylog.actors.group.api import failed
from raylog.actors.group.assigning import Assigning
from raylog.actors.group.classic.subscriptions import LIGHT_BYTES_MAX, topics_of
from raylog.actors.group.loading import load
from raylog.actors.group.settings import GroupSettings
from raylog.actors.group.shard import Shard
from raylog.actors.group.sweeping import Part, turn_of
from raylog.actors.group.transactions import batch_of, names_existing, producer_of
from raylog.actors.group.verifying import TransactionsPort, Verifying
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.ports import Route
from raylog.actors.runtime.base import Link, Runtime, Timer
from raylog.actors.transaction.api import Marker
from raylog.wire.control import EndTxnMarker, encode_end_txn_marker
from raylog.wire.errors import (
    EncodeError,
    ErrorCode,
    InvalidRecord,
    KafkaError,
    NotCoordinator,
    UnknownServerError,
)
from raylog.wire.internal.offsets import OffsetCommitKey
from raylog.wire.messages.offset_delete import OffsetDeleteRequest
from raylog.wire.messages.offset_fetch import OffsetFetchRequest
from raylog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

log = logging.getLogger(__name__)
SWEPT_AT_ONCE = 1_000
"""Offsets, groups and members that are looked at in one turn; all of the offsets may go."""
Marked = Callable[[ErrorCode], None]
"""Told what became of a marker."""


@dataclass(slots=True)
class _Count:
    """Appends that are waited for."""

    left: int


class ShardHost(Host[Shard, Step]):
    """One led partition: loading, then active, in the end closed.

    `stepped` is called after each step: the shard may have given assignors work. `verified` tells
    whether older clients' transactions must hold the partition that their offsets go to (KIP-890).
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
        verified: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._assigning = assigning
        self._told = stepped
        self._markers: dict[int, Marked] = {}
        """Who waits for a marker, by token."""
        self._in_groups: set[int] = set()
        """Tokens of who waited in a group when the shard was left."""
        self._verifying = Verifying(transactions, route.partition, verified)
        self._deleted: dict[str, int] = {}
        """Topics whose offsets are to go, by name: when each was seen to be deleted. Here until the
        log has it, also while the shard is loaded."""
        self._expiry: Timer | None = None
        self._timers = Timers(runtime, self._timer_fired)
        super().__init__(runtime, link, route, image, settings.offsets_commit_timeout_ms)

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

    def _failed(self, asked: Asked[Any], failure: KafkaError) -> Any:
        """Who waits in a group has to look for its coordinator; the others get the failure."""
        if asked.token in self._in_groups:
            failure = NotCoordinator("the group is loaded again")
        return failed(asked.request, asked.version, failure)

    def _append(self, step: Step) -> None:
        self._appends.add(step, _is_commit)

    def _needs_log(self, asked: Asked[Any]) -> bool:
        request = asked.request
        return not isinstance(request, OffsetFetchRequest) or request.require_stable

    def _carry_out(self, step: Step) -> bool:
        """Timers come before the answers: what these bring about may set them anew."""
        self._timers.apply(step.timers)
        return super()._carry_out(step)

    def _stepped(self, step: Step) -> None:
        self._told()

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

    def _take(self, asked: Asked[Any]) -> None:
        if isinstance(asked.request, TxnOffsetCommitRequest):
            self._verify(asked)
        elif isinstance(asked.request, OffsetDeleteRequest):
            self._when_read((asked.request.group_id,), partial(self._delete_offsets, asked))
        else:
            super()._take(asked)

    def _delete_offsets(self, asked: Asked[OffsetDeleteRequest]) -> None:
        if asked.token in self._waiting:  # otherwise failed meanwhile, with all that waited
            super()._take(asked)

    def topics_changed(self, deleted: set[str], changed: set[str]) -> None:
        """Topics were deleted, created, or have more partitions."""
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
        """Have all groups take in an event, some in each turn of the event loop."""
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
        """Forget the offsets of topics that are gone, some in each turn of the event loop.

        A shard that is loaded meanwhile forgets them itself.
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
        """The log has what follows from these deletions."""
        for name, at_ms in deleted.items():
            if self._deleted.get(name) == at_ms:
                del self._deleted[name]

    def assignment_is_ready(self, group_id: str) -> None:
        """What an assignor worked out elsewhere is there."""
        if self._state == "active":
            self._insist(lambda step: self._shard.assignment_is_ready(step, group_id))

    def _timer_fired(self, group_id: str, key: TimerKey) -> None:
        """What a timer brings about is repeated if the log refuses it, unless it is set anew."""
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
        """Look at all groups for offsets that have expired, some in each turn."""
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
        """Have a thread read what these groups subscribe to, where that is much; then look."""
        if _weighs_little(self._shard.unread_subscriptions(group_ids)):
            look()
        else:
            self._runtime.start(self._read_subscriptions(group_ids, look), "read subscriptions")

    async def _read_subscriptions(
        self, group_ids: Collection[str], look: Callable[[], None]
    ) -> None:
        """A generation that begins meanwhile has subscriptions of its own."""
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
                self._fail_one(asked.token, failure)

        self._verifying.ask(asked, verified)

    def _commit_in_transaction(self, asked: Asked[TxnOffsetCommitRequest]) -> None:
        shard = self._shard
        first = shard.offsets.pending.next_number
        step = self._step(shard.replay_in(asked.request))
        if not self._handled(step, lambda step: shard.handle(step, asked)):
            return
        if not step.records:
            self._carry_out(step)
            return
        numbers = range(first, shard.offsets.pending.next_number)
        (answer,) = step.answers
        try:
            batch = batch_of(step.records, producer_of(asked.request), step.now_ms)
        except (EncodeError, InvalidRecord) as failure:
            log.exception("%s: offsets of a transaction cannot be written", self)
            shard.offsets.revert_pending(numbers)
            self._fail_one(asked.token, UnknownServerError(str(failure)))
            return

        def appended(refusal: KafkaError | None) -> None:
            if refusal is None:
                shard.offsets.pending.confirm(numbers)
            else:
                shard.offsets.revert_pending(numbers)
            if answer.token not in self._waiting:
                return  # it has waited for too long
            if refusal is None:
                self.answer((answer,))
            else:
                self.refuse(answer, refusal)

        self._appends.add_batch(batch, appended, partial(self.refuse, answer))

    def end_transaction(self, marker: Marker, marked: Marked) -> None:
        """Append a marker; `marked` is called when it counts, or with why it does not."""
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
    """Whether subscriptions can be read on the event loop."""
    return sum(map(len, chain.from_iterable(unread.values()))) <= LIGHT_BYTES_MAX


def _is_commit(record: LogRecord) -> bool:
    """A committed offset stands on its own; other records of one step stay together."""
    return isinstance(record.key, OffsetCommitKey)
