"""A supervised cluster under virtual time, and its operator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from raylog.actors.metadata.records import BrokerUnwanted, BrokerWanted
from raylog.actors.names import broker_name, supervisor_name
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout
from raylog.actors.supervisor.actor import ensure_supervisor
from raylog.actors.supervisor.rules.desired import DesiredCluster, cluster_key, read_desired
from raylog.simulation.cluster import SETTINGS
from raylog.simulation.loop import SimLoop, run_in_virtual_time
from raylog.simulation.runtime import SimRuntime
from raylog.simulation.simulated_gateway import simulated_role
from raylog.simulation.world import Machine, World
from raylog.wire.errors import KafkaError

CLUSTER = "c" * 22
LABEL = "raylog-broker"
DEADLINE_S = 120


def labelled(broker_id: int, **more: str) -> BrokerWanted:
    listeners = {"listeners": f"PLAINTEXT://127.0.0.1:{9092 + broker_id}"}
    labels = {LABEL: str(broker_id)}
    settings = {**SETTINGS, **listeners, **more}
    return BrokerWanted(broker_id, labels, "/srv/raylog", settings, 0.5, 1)


class Site:
    """Labelled machines, and the operator of a cluster on them."""

    def __init__(self, loop: SimLoop) -> None:
        self.world = World(loop, 5, simulated_role, SimRuntime)
        self.runtime = SimRuntime(self.world)
        self.machines = [self.world.add_machine(f"machine-{number}") for number in range(3)]
        for number, machine in enumerate(self.machines):
            machine.labels[LABEL] = str(number)

    async def found(self) -> None:
        voters = tuple((number, f"{number}" * 22) for number in range(3))
        new = DesiredCluster(CLUSTER, tuple(map(labelled, range(3))), voters, secret_source="s")
        await self.runtime.kv_put(new.key, new.to_bytes())
        await ensure_supervisor(self.runtime, CLUSTER)
        await self.all_serve()
        await self.until(lambda: all(one.directory_id for one in self.desired().brokers))

    def desired(self) -> DesiredCluster:
        return read_desired(self.world.values[cluster_key(CLUSTER)], "the store")

    async def until(self, look: Callable[[], bool]) -> None:
        for _ in range(DEADLINE_S * 10):
            if look():
                return
            await self.runtime.sleep(0.1)
        raise AssertionError(f"waited {DEADLINE_S} s: {self.desired()}")

    async def serves(self, broker_id: int) -> bool:
        name = broker_name(CLUSTER, broker_id)
        try:
            await self.runtime.call(name, "ready", 1_000, timeout_ms=2_000)
        except (PeerLost, PeerTimeout, ActorGone, KafkaError):
            return False
        return True

    async def all_serve(self, *broker_ids: int) -> None:
        for broker_id in broker_ids or range(3):
            for _ in range(DEADLINE_S):
                if await self.serves(broker_id):
                    break
                await self.runtime.sleep(1)
            else:
                raise AssertionError(f"broker {broker_id} does not serve: {await self.troubles()}")

    async def want(self, *changes: BrokerWanted | BrokerUnwanted) -> None:
        for _ in range(DEADLINE_S):
            try:
                name = await self.runtime.call(
                    broker_name(CLUSTER, 0), "controller", timeout_ms=5_000
                )
                await self.runtime.call(name, "want_brokers", list(changes), timeout_ms=5_000)
            except (PeerLost, PeerTimeout, KafkaError):
                await self.runtime.sleep(1)
            else:
                return
        raise AssertionError("no controller takes what is wanted")

    async def troubles(self) -> dict[int, str]:
        answer: dict[int, str] = await self.runtime.call(
            supervisor_name(CLUSTER), "troubles", timeout_ms=5_000
        )
        return answer

    async def until_trouble(self, broker_id: int, said: str) -> None:
        for _ in range(DEADLINE_S):
            if said in (await self.troubles()).get(broker_id, ""):
                return
            await self.runtime.sleep(1)
        raise AssertionError(f"expected {said!r}, found {await self.troubles()}")

    def machine_of(self, broker_id: int) -> Machine:
        return self.machines[broker_id]


Story = Callable[[Site], Awaitable[None]]


def tell(story: Story) -> None:
    """Run a story on a founded cluster; fail if an actor failed."""

    async def run(loop: SimLoop) -> None:
        site = Site(loop)
        await site.found()
        await story(site)
        assert site.world.failures == []

    run_in_virtual_time(run)
