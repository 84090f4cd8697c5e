"""Simulations whose records are deleted by age or by request, or compacted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raylog.actors.common_messages import TopicId
from raylog.actors.controller.messages import NewTopic
from raylog.simulation.clients import ACKS_ALL, Ledger, Stoppable
from raylog.simulation.faults import WEIGHTS, draw_weights
from raylog.simulation.loop import SimLoop
from raylog.simulation.properties import Property
from raylog.simulation.retention import branches
from raylog.simulation.retention.clients import (
    Deleter,
    GapReader,
    KeyWriter,
    Liar,
    LogClient,
)
from raylog.simulation.retention.history import DeletedLedger, KeyedLedger
from raylog.simulation.scenario import LOST, SERVED_AGAIN_S, Plan, Simulation

AGED, CUT, KEYED = "aged", "cut", "keyed"
RETENTION_MS = (3_000, 5_000)
EXPIRATION_MS = 8_000
DELETE_RETENTION_MS = 1_000
CHECK_MS = 400
IDLE_S = 12.0
"""Longer than producer.id.expiration.ms."""
SLACK_MS = 2_000
WEEK_MS = 7 * 24 * 3_600_000
PAUSE_S = 4.0
"""Enough time for some runs of retention and of the cleaner."""
SETTINGS = {
    "min.insync.replicas": "2",
    "log.retention.check.interval.ms": str(CHECK_MS),
    "log.cleaner.backoff.ms": "200",
    "producer.id.expiration.ms": str(EXPIRATION_MS),
}
SMALL = {"internal.segment.bytes": "400", "segment.ms": "1500", "file.delete.delay.ms": "500"}
COMPACTED = {
    **SMALL,
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": str(DELETE_RETENTION_MS),
}
LAST_READERS = 980


class RetentionSimulation(Simulation):
    """One run."""

    fault_s = 8.0
    branches = branches.ALL

    def __init__(self, loop: SimLoop, seed: int, plan: Plan) -> None:
        super().__init__(loop, seed, plan)
        self._retention_ms = self.random.choice(RETENTION_MS)
        self._deleted: list[DeletedLedger] = []
        self._keyed: list[KeyedLedger] = []
        self._writers: list[LogClient] = []

    def _draw_weights(self) -> dict[str, int]:
        """Clocks do not jump, because records would become old."""
        return draw_weights(self.random, {**WEIGHTS, "jump_clock": 0})

    def _settings(self) -> dict[str, str]:
        return {**super()._settings(), **SETTINGS}

    def _clients(self) -> Sequence[Stoppable]:
        return [*super()._clients(), *self._writers]

    # ---- before --------------------------------------------------------------------------

    async def _make_topics(self) -> None:
        aged = await self._make(AGED, {**SMALL, "retention.ms": str(self._retention_ms)})
        cut = await self._make(CUT, {**SMALL, "retention.ms": "-1"})
        keyed = await self._make(KEYED, COMPACTED)
        self._deleted = [
            DeletedLedger(AGED, aged, 0, ACKS_ALL, retention_ms=self._retention_ms),
            DeletedLedger(CUT, cut, 0, ACKS_ALL),
        ]
        self._keyed = [
            KeyedLedger(KEYED, keyed, 0, ACKS_ALL, delete_retention_ms=DELETE_RETENTION_MS)
        ]
        self.ledgers = [Ledger(name, one, 0, ACKS_ALL) for name, one in ((AGED, aged), (CUT, cut))]
        self.observer.rewritten.update((aged, cut, keyed))
        self.observer.end_listeners[(keyed, 0)] = self._keyed_ends_at

    async def _make(self, name: str, configs: Mapping[str, str | None]) -> TopicId:
        replicas = self.random.choice((2, 3, 3))
        return TopicId(await self.operator.make(NewTopic(name, 1, replicas, configs=configs)))

    def _start_clients(self, pause_s: float) -> None:
        aged, cut = self._deleted
        [keyed] = self._keyed
        self._writers = [
            Liar(self.cluster, aged, 0),
            Liar(self.cluster, cut, 1),
            Deleter(self.cluster, cut, 2),
            KeyWriter(self.cluster, keyed, 3),
            KeyWriter(self.cluster, keyed, 4),
        ]
        for one in self._writers:
            self.cluster.runtime.start(one.run(pause_s), "client")
        self.cluster.runtime.start(self.operator.run(), "operator")
        self.cluster.runtime.start(self._look_at_starts(), "looking at log starts")

    def _keyed_ends_at(self, broker_id: int, log_end_offset: int) -> None:
        now_ms = int(self.cluster.runtime.monotonic_ms())
        for ledger in self._keyed:
            ledger.ends_at(broker_id, log_end_offset, now_ms)

    async def _look_at_starts(self) -> None:
        """Check that no replica's log begins above what must be there."""
        while not self._done:
            await self.cluster.runtime.sleep(CHECK_MS / 2_000)
            now_ms = self.cluster.runtime.now_ms()
            for _, replica in self.cluster.replicas():
                for ledger in self._deleted:
                    partition = replica._partitions.get((ledger.topic_id, ledger.partition))
                    if partition is not None:
                        ledger.starts_at(partition.log.log_start_offset, now_ms, self.checks)

    # ---- the verdict ---------------------------------------------------------------------

    async def _judge(self) -> None:
        await super()._judge()
        _, cut = self._deleted
        cut.ends_with(await self._read(cut), self.checks)
        for keyed in self._keyed:
            await self._read(keyed)
            keyed.judge(self.checks)
        await self.cluster.runtime.sleep(IDLE_S)
        self._look_at_producers()
        await self._pause_for_a_week()

    async def _pause_for_a_week(self) -> None:
        """Make everything a week older: records go by age, but the newest value of each key stays.

        The clocks are put forward, because a week of heartbeats would take an hour to simulate.
        """
        for machine in self.cluster.machines:
            machine.clock_offset_ms += WEEK_MS
        self.world.tell("a week passes")
        await self.cluster.runtime.sleep(PAUSE_S)
        aged, _ = self._deleted
        for broker_id, replica in self.cluster.replicas():
            partition = replica._partitions.get((aged.topic_id, aged.partition))
            if partition is not None:
                log = partition.log
                left = log.log_start_offset, log.log_end_offset
                self.checks.hold(Property.AGED_GO, left[0] == left[1], broker_id, *left)
        for keyed in self._keyed:
            keyed.found.clear()
            await self._read(keyed)
            keyed.judge(self.checks)

    async def _judge_partition(self, ledger: Ledger, number: int) -> None:
        """Do nothing: these partitions are judged elsewhere, because records may be missing."""

    async def _read(self, ledger: Ledger) -> dict[int, bytes]:
        """All records of a partition from its log start, by offset."""
        epoch = self.cluster.committed_epoch(ledger.topic_id, ledger.partition)
        reader = GapReader(self.cluster, self.checks, ledger, LAST_READERS, leader_epoch=epoch)
        deadline = self.world.loop.time() + SERVED_AGAIN_S
        while self.world.loop.time() < deadline:
            try:
                await reader.begin()
            except LOST:
                await self.cluster.runtime.sleep(0.1)
            else:
                break
        return await self._read_all(reader)

    def _look_at_producers(self) -> None:
        """Check that producers which have not written for that long are forgotten."""
        oldest_ms = self.cluster.runtime.now_ms() - EXPIRATION_MS - SLACK_MS
        for broker_id, replica in self.cluster.replicas():
            for partition in replica._partitions.values():
                states = partition.log.producers._producers
                old = [one for one, state in states.items() if state.seen_ms < oldest_ms]
                self.checks.hold(
                    Property.PRODUCERS_EXPIRE, not old, broker_id, partition.name, old[:5]
                )
