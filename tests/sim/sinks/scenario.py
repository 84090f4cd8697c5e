"""A cluster under faults whose client is a streaming query with an exactly-once sink.

Drivers die, or are taken for dead and continue. Their tasks are left behind, the checkpoint is
restored from older copies, and weeks pass, after which no committed offset and no transactional id
is known any more.
"""

from __future__ import annotations

from collections import Counter
from copy import deepcopy

from raylog.actors.common_messages import TopicId
from raylog.actors.controller.messages import NewTopic
from raylog.actors.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from raylog.client.cluster import TopicPartition
from raylog.simulation.clients import ACKS_ALL, Producer
from raylog.simulation.loop import SimLoop
from raylog.simulation.properties import Property
from raylog.simulation.scenario import Plan
from raylog.simulation.transactions.history import StableLedger
from raylog.simulation.transactions.outcome import Outcome
from raylog.simulation.transactions.scenario import TransactionalSimulation
from raylog.sink.state_topic import CONFIGS
from tests.sim.sinks.driver import FAILED, OUT, STATE, Driver, Query, row_of
from tests.support.spark_query import Checkpoint

WEEK_MS = 7 * 24 * 3_600_000
EXPIRY_S = 3.0
"""The time until every coordinator has looked for expired state."""
CAUGHT_UP_S = 60.0
"""The time for the last driver, which waits for lost requests."""
TIMEOUT_MS = 4_000
FIRST_DRIVER = 100


class SinkSimulation(TransactionalSimulation):
    """One run."""

    fault_s = 12.0

    def __init__(self, loop: SimLoop, seed: int, plan: Plan) -> None:
        super().__init__(loop, seed, plan)
        self.query = Query(Checkpoint("q1", {TopicPartition("source", 0): 0}))
        self.weeks = 0
        self._rows: list[StableLedger] = []
        self._drivers = 0
        self._spark = Spark(self)

    def _settings(self) -> dict[str, str]:
        return {
            **super()._settings(),
            "offsets.retention.check.interval.ms": "1000",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
        }

    async def _make_topics(self) -> None:
        await super()._make_topics()
        topic_id = TopicId(await self.operator.create("rows", len(OUT)))
        self._rows = [StableLedger("rows", topic_id, at, ACKS_ALL) for at in range(len(OUT))]
        await self.operator.make(NewTopic(STATE, 2, 3, configs=dict(CONFIGS)))

    def _start_clients(self, pause_s: float) -> None:
        source, *_ = self.stable
        self.producers = [Producer(self.cluster, self.checks, source, 0, idempotent=False)]
        for client in self.producers:
            self.cluster.runtime.start(client.run(pause_s), "client")
        self.cluster.runtime.start(self._spark.run(), "spark")
        self.cluster.runtime.start(self.operator.run(), "operator")

    def _clients(self) -> list[object]:  # type: ignore[override]
        return [*super()._clients(), self._spark]

    def new_driver(self) -> Driver:
        """A driver of the query on a machine of its own."""
        self._drivers += 1
        number = FIRST_DRIVER + self._drivers
        return Driver(self.cluster, self.checks, self.query, self.stable[0], number)

    async def a_week_passes(self) -> None:
        """Put the clocks forward, so that unused offsets and transactional ids expire."""
        self.weeks += 1
        self.world.tell("a week passes")
        self._compacted_may_differ()
        for machine in self.cluster.machines:
            machine.clock_offset_ms += WEEK_MS
        await self.cluster.runtime.sleep(EXPIRY_S)

    def _compacted_may_differ(self) -> None:
        """Accept that the logs of internal topics differ and are not read as a whole at the end.

        Segments that are a week old are closed, and each replica compacts them on its own, so their
        logs have gaps.
        """
        self._offsets.clear()
        compacted = {TRANSACTIONS_TOPIC, OFFSETS_TOPIC, STATE}
        topics = self.cluster.newest_image().topics
        self.observer.rewritten |= {key for key, one in topics.items() if one.name in compacted}

    # ---- after ---------------------------------------------------------------------------

    @property
    def _longest_timeout_ms(self) -> int:
        return TIMEOUT_MS

    async def _judge(self) -> None:
        end = await self._catch_up()
        await super()._judge()
        for number, ledger in enumerate(self._rows):
            epoch = self.cluster.committed_epoch(ledger.topic_id, ledger.partition)
            await self._read_all(self._last_reader(ledger, 970 + number, epoch))
        rows = Counter(
            value for ledger in self._rows for value in Outcome(ledger.batches).visible.values()
        )
        source = Outcome(self.stable[0].batches).visible
        wanted = Counter(row_of(offset) for offset in source if offset < end)
        wrong = (rows - wanted) | (wanted - rows)
        self.checks.hold(Property.OFFSETS_WITH_OUTPUT, not wrong, "up to", end, dict(wrong))
        self.world.tell(
            f"{rows.total()} rows of {self.query.count} queries, {self._drivers} drivers, "
            f"{self.query.mismatches} mismatches, {self.weeks} weeks"
        )

    async def _catch_up(self) -> int:
        """Let the last driver write everything. Returns the final offset of the source."""
        deadline = self.world.loop.time() + CAUGHT_UP_S
        while True:
            driver = self.new_driver()
            try:
                while await driver.write_next():
                    self.checks.raise_violations()
                [end] = (await driver.committed()).values()
            except FAILED as failure:
                late = self.world.loop.time() > deadline
                self.checks.hold(Property.SERVED_AGAIN, not late, "the query", failure)
                self.checks.raise_violations()
            else:
                return end


class Spark:
    """Starts drivers, and does to them and to the checkpoint what happens in operation."""

    label = "spark"

    def __init__(self, simulation: SinkSimulation) -> None:
        self._simulation = simulation
        self._random = simulation.random
        self.stopping = False
        self.stopped = False

    async def run(self) -> None:
        """Run one driver after another. Some keep running next to their successor."""
        runtime = self._simulation.cluster.runtime
        alive = []
        while not self.stopping:
            driver = self._simulation.new_driver()
            task = runtime.start(driver.run(), "driver")
            alive.append((driver, task))
            lives_s = self._random.choice((0.3, 2.0, 6.0)) * self._random.random()
            for _ in range(int(lives_s / 0.1) + 1):
                if not (self.stopping or task.done()):
                    await runtime.sleep(0.1)
            if self._random.random() < 0.7:
                for _, one in alive:
                    one.cancel()
                alive.clear()
            await self._meanwhile(is_idle=not alive)
        for _, one in alive:
            one.cancel()
        self.stopped = True

    async def _meanwhile(self, *, is_idle: bool) -> None:
        """What happens between two drivers."""
        query = self._simulation.query
        if query.copies and self._random.random() < 0.3:
            newest = query.copies[-1]
            query.checkpoint = deepcopy(self._random.choice([newest, *query.copies]))
        if is_idle and self._random.random() < 0.1:
            await self._simulation.a_week_passes()
