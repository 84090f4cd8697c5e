"""Leaders and followers under any order of kills, elections, late news and lost answers.

The processes' code and logs are real. `ReplicaWorld` plays brokers and controller by the
controller's rules: leaders come from the in-sync replicas, and a replica that loses records leaves
them first.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from raylog.actors.replica.messages import ProduceAnswer
from raylog.wire.errors import ErrorCode
from raylog.wire.records import Record, decode_batch, encode_batch, iter_batches
from tests.worlds.replica.actor import ReplicaWorld, raw_log
from tests.worlds.storage.logs import NOW_MS

BROKERS = st.sampled_from((1, 2, 3))
REFUSALS = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
}
"""Errors that a producer may get. None of them blames its batch."""


def numbered(first: int, count: int) -> bytes:
    """A batch of records with values that no other batch has."""
    records = [Record(at, NOW_MS, None, b"%d" % (first + at), []) for at in range(count)]
    return encode_batch(records)


class Replicas(RuleBasedStateMachine):
    """One partition with three replicas."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.world = ReplicaWorld(config={"min.insync.replicas": "2", "flush.messages": "20"})
        self.numbers = 0
        self.waiting: list[tuple[bytes, asyncio.Future[list[ProduceAnswer | ErrorCode]]]] = []
        self.acknowledged: dict[int, bytes] = {}
        """The values of acknowledged records by offset."""
        self.high_watermarks: dict[tuple[int, int], int] = {}
        """The last high watermark seen, by (broker, start of its process)."""

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.runner.run(coroutine)

    @initialize()
    def begin(self) -> None:
        self.run(self.world.start_all())

    # ---- clients -------------------------------------------------------------------------

    @rule(count=st.sampled_from((1, 2, 3, 20)), broker=st.none() | BROKERS)
    def produce(self, count: int, broker: int | None) -> None:
        """Produce to the leader, or to a broker that may consider itself the leader."""
        asked = self.state.leader if broker is None else broker
        if asked in self.world.nodes:
            data = numbered(self.numbers, count)
            self.numbers += count

            async def write() -> None:
                self.waiting.append((data, self.world.produce(asked, data)))

            self.run(write())

    @rule(ms=st.sampled_from((0, 0, 1, 60, 500, 2_500)))
    def pass_time(self, ms: int) -> None:
        self.run(self.world.pass_ms(ms))
        self.collect()

    def collect(self) -> None:
        waiting, self.waiting = self.waiting, []
        for data, outcome in waiting:
            if not outcome.done():
                self.waiting.append((data, outcome))
                continue
            [answer] = outcome.result()
            if isinstance(answer, ErrorCode):
                assert answer in REFUSALS
                continue
            for record in decode_batch(data):
                offset = answer.base_offset + record.offset
                assert offset not in self.acknowledged
                assert record.value is not None
                self.acknowledged[offset] = bytes(record.value)

    # ---- faults --------------------------------------------------------------------------

    @property
    def state(self) -> Any:
        return self.world.metadata[self.world.keys[0]]

    def others(self, broker: int) -> list[int]:
        """The live in-sync replicas other than `broker`."""
        return [one for one in self.state.isr if one != broker and one in self.world.nodes]

    @rule(
        broker=BROKERS, orderly=st.booleans(), power=st.none() | st.randoms(use_true_random=False)
    )
    def kill(self, broker: int, orderly: bool, power: random.Random | None) -> None:
        """Kill a process. With `power` its machine loses power, and unsynced data may be gone."""
        if broker not in self.world.nodes:
            return
        if power is not None and not self.others(broker):
            return  # the last in-sync replica loses records that nobody else has: not ours to save
        self.run(self.world.kill(broker, power=power))
        if orderly or power is not None:
            self.leave(broker)
            self.run(self.world.publish())

    def leave(self, broker: int) -> None:
        """Let the controller learn of a death. The last in-sync replica stays in the ISR."""
        isr = tuple(one for one in self.state.isr if one != broker) or self.state.isr
        if self.state.leader == broker:
            leader = next((one for one in isr if one in self.world.nodes), -1)
            self.world.change(leader=leader, isr=isr)
        elif isr != self.state.isr:
            self.world.change(isr=isr)

    @rule(broker=BROKERS)
    def start(self, broker: int) -> None:
        """Start a process again. The controller knows by now that it was gone."""
        if broker in self.world.nodes:
            return
        self.leave(broker)
        self.run(self.world.start(broker))
        if self.state.leader == -1 and broker in self.state.isr:
            self.run(self.world.elect(broker))

    @rule(broker=BROKERS)
    def elect(self, broker: int) -> None:
        if broker in self.world.nodes and broker in self.state.isr:
            self.run(self.world.elect(broker))

    @rule(broker=BROKERS, notified=st.sets(BROKERS, min_size=1))
    def elect_and_notify_some(self, broker: int, notified: set[int]) -> None:
        if broker in self.world.nodes and broker in self.state.isr:
            self.world.change(leader=broker)
            self.run(self.world.publish(*sorted(notified)))

    @rule()
    def notify_all(self) -> None:
        self.run(self.world.publish())

    @rule(failures=st.integers(1, 4))
    def lose_answers_of_the_controller(self, failures: int) -> None:
        self.world.controller_fails = failures

    @precondition(lambda self: len(self.world.nodes) > 1)
    @rule(broker=BROKERS)
    def break_links(self, broker: int) -> None:
        """Break all links to a process that stays alive."""
        node = self.world.nodes.get(broker)
        if node is not None:
            for link in list(node.links):
                link.close()

    # ---- what always holds ---------------------------------------------------------------

    @invariant()
    def high_watermarks_never_go_back(self) -> None:
        for broker, node in self.world.nodes.items():
            replica = self.world.replica(broker)
            seen = replica.high_watermark
            assert seen <= replica.log.log_end_offset
            assert seen >= self.high_watermarks.get((broker, node.number), 0)
            self.high_watermarks[broker, node.number] = seen

    @invariant()
    def who_is_in_sync_holds_what_is_committed(self) -> None:
        committed = max(self.high_watermarks.values(), default=0)
        for broker in self.state.isr if self.world.nodes else ():
            if broker in self.world.nodes:
                assert self.world.replica(broker).log.log_end_offset >= committed

    @invariant()
    def what_is_committed_is_the_same_everywhere(self) -> None:
        replicas = [self.world.replica(broker) for broker in self.world.nodes]
        for one in replicas:
            for other in replicas:
                common = min(one.high_watermark, other.high_watermark)
                assert raw_log(one, common) == raw_log(other, common)

    def teardown(self) -> None:
        """Recover from all faults, and check that no acknowledged record is lost."""
        try:
            self.run(self._heal())
            self.collect()
            assert set(self.world.isr()) == {1, 2, 3}
            assert len({end for end, _ in self.world.ends()}) == 1
            assert all(end == high_watermark for end, high_watermark in self.world.ends())
            assert len({self.world.raw(broker) for broker in self.world.nodes}) == 1
            held = {
                record.offset: record.value
                for _, data in iter_batches(self.world.raw(1))
                for record in decode_batch(data)
            }
            assert self.acknowledged.items() <= held.items()
            assert len(set(held.values())) == len(held)
        finally:
            for broker in list(self.world.nodes):
                self.run(self.world.kill(broker))
            self.runner.close()

    async def _heal(self) -> None:
        self.world.controller_fails = 0
        for broker in self.world.brokers:
            if broker not in self.world.nodes:
                self.leave(broker)
                await self.world.start(broker)
        if self.state.leader == -1:
            self.world.change(leader=self.state.isr[0])
        await self.world.publish()
        await self.world.pass_ms(8_000)
        for broker in self.world.brokers:
            await self.world.elect(broker)
            written = self.world.produce(broker, numbered(self.numbers, 1))
            self.numbers += 1
            await self.world.pass_ms(500)
            assert written.done()
            assert isinstance(written.result()[0], ProduceAnswer)


Replicas.TestCase.settings = settings(stateful_step_count=40)
TestReplicas = Replicas.TestCase
