"""Shell of one transaction shard: what a step asks for beside records, and its clocks.

Markers leave once the record that decides about a transaction is below the high watermark. Between
any two things that are durable lies a failpoint: `<state>.decided` before the append of a record of
that state, `<state>.durable` behind it, `loading` and `loaded` around a load, and the sender's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from raylog.actors.coordination.failpoints import Failpoints
from raylog.actors.coordination.hosting import Host
from raylog.actors.coordination.step import Asked
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.ports import Route
from raylog.actors.runtime.base import Link, Runtime, Timer
from raylog.actors.transaction.api import AddPartitions
from raylog.actors.transaction.failures import failed
from raylog.actors.transaction.ids import ProducerIdPool
from raylog.actors.transaction.loading import load
from raylog.actors.transaction.markers import MarkerSender
from raylog.actors.transaction.settings import TransactionSettings
from raylog.actors.transaction.shard import TransactionShard
from raylog.actors.transaction.state import State
from raylog.actors.transaction.step import SendMarkers, TransactionStep
from raylog.wire.errors import KafkaError
from raylog.wire.internal.transactions import TransactionLogKey, TransactionLogValue

APPEND_TIMEOUT_MS = 30_000
PARKED_MS = 100
"""How long a leader's request waits for the end of the transaction before: Kafka's default of
`add.partitions.to.txn.retry.backoff.max.ms`. Then the producer asks again."""
SWEEP_IDS = 500
"""Ids looked at in one go."""
Sweep = Callable[[TransactionShard, TransactionStep, list[str]], None]


class TransactionHost(Host[TransactionShard, TransactionStep]):
    """One led partition of `__transaction_state`."""

    def __init__(
        self,
        runtime: Runtime,
        link: Link,
        route: Route,
        image: MetadataImage,
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
        """What markers carry: durable already."""
        super().__init__(runtime, link, route, image, APPEND_TIMEOUT_MS)

    def __str__(self) -> str:
        return f"transaction shard {self.route.partition}"

    def _new_shard(self) -> TransactionShard:
        return TransactionShard(self._settings, self._producer_ids)

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

    def _failed(self, asked: Asked[Any], failure: KafkaError) -> Any:
        return failed(asked.request, asked.version, failure)

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
        """Markers wait for the records that decide about them, and leave behind the answers."""
        if step.coordinator_epoch is not None:
            self._appends.when_durable(partial(self._epoch_is_durable, step.coordinator_epoch))
        for markers in step.markers:
            self._appends.when_durable(partial(self._sender.send, self, markers))
        for asked in step.parked:
            self._runtime.call_later(PARKED_MS, partial(self._waited, asked))

    def _waited(self, asked: Asked[AddPartitions]) -> None:
        if self.is_active:
            self._run(lambda step: self._shard.waited_in_vain(step, asked))

    def _epoch_is_durable(self, epoch: int) -> None:
        self.coordinator_epoch = epoch

    # ---- what the sender reports ---------------------------------------------------------

    def marker_written(self, markers: SendMarkers, topic: str, partition: int) -> None:
        """A partition has its marker; others may still be without."""
        if self.is_active:
            self._shard.marker_written(markers.transactional_id, topic, partition)

    def markers_written(self, markers: SendMarkers) -> None:
        """Every partition has its marker."""
        if self.is_active:
            self._insist(lambda step: self._shard.markers_written(step, markers))

    def markers_uncertain(self, epoch: int) -> None:
        """Markers sent under an epoch may still be on their way, or were refused for a higher."""
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
        """Look at all ids, some at a time."""
        if not self.is_active or shard is not self._shard:
            return
        now, later = left[:SWEEP_IDS], left[SWEEP_IDS:]
        self._run(lambda step: sweep(shard, step, now))
        if later:
            self._runtime.call_later(0, lambda: self._sweep(shard, later, sweep))


def _label(key: object, value: object) -> str:
    """What a record is to failpoints."""
    if not isinstance(key, TransactionLogKey):
        return "CoordinatorEpoch"
    if isinstance(value, TransactionLogValue):
        return State(value.transaction_status).label
    return State.DEAD.label
