"""Shell of one transaction shard: sends its markers and runs its timers.

Markers are sent once the record with the decision is below the high watermark. There is a failpoint
between any two durable steps: `<state>.decided` before the append of a record of that state,
`<state>.durable` after it, `loading` and `loaded` around a load, and those of the sender.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from raylog.actors.common_messages import Route
from raylog.actors.coordination.hosting import Host
from raylog.actors.coordination.lease import LeaseHolder
from raylog.actors.coordination.rules.failpoints import Failpoints
from raylog.actors.coordination.rules.step import ClientCall
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.runtime.base import Link, Runtime, Timer
from raylog.actors.transaction.loading import load
from raylog.actors.transaction.markers import MarkerSender
from raylog.actors.transaction.messages import AddPartitions
from raylog.actors.transaction.rules.failures import failed
from raylog.actors.transaction.rules.filtering import ListTransactionsPart
from raylog.actors.transaction.rules.ids import ProducerIdPool
from raylog.actors.transaction.rules.settings import TransactionSettings
from raylog.actors.transaction.rules.shard import TransactionShard
from raylog.actors.transaction.rules.state import State
from raylog.actors.transaction.rules.step import SendMarkers, TransactionStep
from raylog.wire.errors import KafkaError
from raylog.wire.internal.transactions import TransactionLogKey, TransactionLogValue

APPEND_TIMEOUT_MS = 30_000
PARKED_MS = 100
"""How long a leader's request waits for the end of the previous transaction: Kafka's default of
`add.partitions.to.txn.retry.backoff.max.ms`. After that the producer must retry."""
SWEEP_IDS = 500
"""Ids handled in one turn."""
Sweep = Callable[[TransactionShard, TransactionStep, list[str]], None]


class TransactionHost(Host[TransactionShard, TransactionStep]):
    """One led partition of `__transaction_state`."""

    def __init__(
        self,
        runtime: Runtime,
        link: Link,
        route: Route,
        image: MetadataImage,
        lease: LeaseHolder,
        settings: TransactionSettings,
        producer_ids: ProducerIdPool,
        sender: MarkerSender,
        failpoints: Failpoints,
    ) -> None:
        self._settings = settings
        self._producer_ids = producer_ids
        self._sender = sender
        self._failpoints = failpoints
        self._clocks: dict[str, Timer] = {}
        self.coordinator_epoch = -1
        """The epoch of markers; its record is durable."""
        super().__init__(runtime, link, route, image, lease, APPEND_TIMEOUT_MS)

    def __str__(self) -> str:
        return f"transaction shard {self.route.partition}"

    def _new_shard(self) -> TransactionShard:
        return TransactionShard(self._settings, self._producer_ids)

    def _needs_lease(self, request: Any) -> bool:
        return not isinstance(request, ListTransactionsPart)

    def _new_step(self, shard: TransactionShard) -> TransactionStep:
        runtime = self._runtime
        return TransactionStep(
            runtime.now_ms(), runtime.monotonic_ms(), self._image, runtime.random, shard.replay
        )

    async def _read(self, shard: TransactionShard) -> int:
        self._failpoints.reach("loading")
        end = await load(self._runtime, self.link, self.route, shard)
        self._failpoints.reach("loaded")
        return end

    def _failed(self, call: ClientCall[Any], failure: KafkaError) -> Any:
        return failed(call.request, call.version, failure)

    def _append(self, step: TransactionStep) -> None:
        if not self._failpoints:
            super()._append(step)
            return
        names = [_label(record.key, record.value) for record in step.records]
        for name in names:
            self._failpoints.reach(f"{name}.decided")
        super()._append(step)
        for name in names:
            self._appends.when_durable(partial(self._failpoints.reach, f"{name}.durable"))

    def _stepped(self, step: TransactionStep) -> None:
        """Send markers after the responses, once the records with the decisions are durable."""
        if step.coordinator_epoch is not None:
            self._appends.when_durable(partial(self._epoch_is_durable, step.coordinator_epoch))
        for markers in step.markers:
            self._appends.when_durable(partial(self._sender.send, self, markers))
        for asked in step.parked:
            self._runtime.call_later(PARKED_MS, partial(self._waited, asked))

    def _waited(self, call: ClientCall[AddPartitions]) -> None:
        if self.is_active:
            self._run(lambda step: self._shard.expire_wait(step, call))

    def _epoch_is_durable(self, epoch: int) -> None:
        self.coordinator_epoch = epoch

    # ---- what the sender reports ---------------------------------------------------------

    def marker_written(self, markers: SendMarkers, topic: str, partition: int) -> None:
        """Record that a partition has its marker; others may still lack theirs."""
        if self.is_active:
            self._shard.marker_written(markers.transactional_id, topic, partition)

    def markers_written(self, markers: SendMarkers) -> None:
        """Complete the transaction, as every partition has its marker."""
        if self.is_active:
            self._insist(lambda step: self._shard.markers_written(step, markers))

    def markers_uncertain(self, epoch: int) -> None:
        """Use a higher epoch, because markers of this one may still arrive or were fenced."""
        if self.is_active:
            self._insist(lambda step: self._shard.markers_uncertain(step, epoch))

    # ---- clocks --------------------------------------------------------------------------

    def _activated(self) -> None:
        settings = self._settings
        self._start_clock("timeouts", settings.abort_interval_ms, TransactionShard.abort_timed_out)
        self._start_clock("expiry", settings.expiry_interval_ms, TransactionShard.forget_expired)

    def _deactivated(self) -> None:
        for clock in self._clocks.values():
            clock.cancel()
        self._clocks.clear()
        self._sender.drop(self)

    def _start_clock(self, name: str, interval_ms: int, sweep: Sweep) -> None:
        def due() -> None:
            self._start_clock(name, interval_ms, sweep)
            self._sweep(self._shard, self._shard.transactional_ids(), sweep)

        self._clocks[name] = self._runtime.call_later(interval_ms, due)

    def _sweep(self, shard: TransactionShard, left: list[str], sweep: Sweep) -> None:
        """Handle all ids, a few in each turn."""
        if not self.is_active or shard is not self._shard:
            return
        now, later = left[:SWEEP_IDS], left[SWEEP_IDS:]
        self._run(lambda step: sweep(shard, step, now))
        if later:
            self._runtime.call_later(0, lambda: self._sweep(shard, later, sweep))


def _label(key: object, value: object) -> str:
    """Return a record's name for failpoints."""
    if not isinstance(key, TransactionLogKey):
        return "CoordinatorEpoch"
    if isinstance(value, TransactionLogValue):
        return State(value.transaction_status).label
    return State.DEAD.label
