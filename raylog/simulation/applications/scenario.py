"""Simulations with real clients, each in a process that may die."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from raylog.client.admin.groups import GroupAdmin
from raylog.client.cluster import TopicPartition
from raylog.client.core import Core
from raylog.simulation.applications import branches
from raylog.simulation.applications.consuming import (
    Asynchronous,
    AtMostOnce,
    Automatic,
    Reading,
    Synchronous,
)
from raylog.simulation.applications.copying import TIMEOUTS_MS, Copying
from raylog.simulation.applications.faults import CLIENT_WEIGHTS, ClientFaults
from raylog.simulation.applications.history import KIP_848, GroupHistory, Promise
from raylog.simulation.applications.io import SimIo
from raylog.simulation.applications.judging import Verdict
from raylog.simulation.applications.producing import Writing
from raylog.simulation.applications.scene import Scene
from raylog.simulation.applications.seats import (
    EXPECTED,
    Application,
    Life,
    Seat,
    check_sound,
    role_class,
)
from raylog.simulation.clients import Stoppable
from raylog.simulation.faults import Faults, draw_weights
from raylog.simulation.groups.scenario import GROUP_SETTINGS
from raylog.simulation.loop import SimLoop
from raylog.simulation.network import CLIENT
from raylog.simulation.properties import Property
from raylog.simulation.runtime import SimRuntime
from raylog.simulation.scenario import Plan
from raylog.simulation.simulated_gateway import simulated_role
from raylog.simulation.transactions.scenario import (
    SINK,
    SOURCE,
    TransactionalSimulation,
)
from raylog.simulation.world import ActorClass

PRODUCERS = (1, 2)
MEMBERS = (2, 2, 3)
PROTOCOLS = (KIP_848, KIP_848, "range", "cooperative-sticky")
STATIC = 0.2
"""Probability that a group's members are static."""
CAUGHT_UP_S = 90.0
LOOKER = f"{CLIENT}-999"
"""The machine of the client that fetches the groups' offsets at the end."""


class ClientSimulation(TransactionalSimulation):
    """One run."""

    fault_s = 8.0
    branches = branches.ALL
    written = ((SOURCE, 3), (SINK, 2))

    def __init__(self, loop: SimLoop, seed: int, plan: Plan) -> None:
        super().__init__(loop, seed, plan)
        self._producing: list[Seat] = []
        self._reading: list[Seat] = []
        self._scene: Scene | None = None

    def _role_class(self) -> Callable[[str], ActorClass]:
        return role_class(simulated_role)

    def _draw_weights(self) -> dict[str, int]:
        return draw_weights(self.random, CLIENT_WEIGHTS)

    def _faults(self) -> Faults:
        clients, given_out = len(self._clients()), self.quorum.given_out
        return ClientFaults(self.cluster, self.random, clients, self._weights, given_out)

    def _settings(self) -> dict[str, str]:
        """Disable compaction: the logs of `__consumer_offsets` are compared with commits."""
        return {**super()._settings(), **GROUP_SETTINGS, "log.cleaner.enable": "false"}

    def _clients(self) -> Sequence[Stoppable]:
        return [*self._producing, *self._reading]

    @property
    def scene(self) -> Scene:
        """What the applications share."""
        assert self._scene is not None, "there is one once the topics are made"
        return self._scene

    # ---- before --------------------------------------------------------------------------

    async def _make_topics(self) -> None:
        await super()._make_topics()
        ledgers = {TopicPartition(one.topic, one.partition): one for one in self.stable}
        self._scene = Scene(self.cluster, self.checks, self.history, ledgers)

    def _start_clients(self, pause_s: float) -> None:
        for number in range(self.random.choice(PRODUCERS)):
            self._producing.append(self._seat(f"producer-{number}", self._new_writer))
        for group in self._draw_groups():
            self.scene.history.groups.append(group)
            is_static = self.random.random() < STATIC
            for number in range(self.random.choice(MEMBERS)):
                make = partial(self._new_reader, group, is_static)
                self._reading.append(self._seat(f"{group.group_id}-{number}", make))
        for seat in (*self._producing, *self._reading):
            self.cluster.runtime.start(seat.run(), "seat")
        self.cluster.runtime.start(self.operator.run(), "operator")

    def _seat(self, label: str, make: Callable[[Life], Application]) -> Seat:
        number = len(self._producing) + len(self._reading)
        return Seat(self.cluster, number, label, make)

    def _draw_groups(self) -> list[GroupHistory]:
        """Two groups with different guarantees."""
        promises = self.random.sample(list(Promise), 2)
        return [
            GroupHistory(f"{promise}", promise, self.random.choice(PROTOCOLS), SOURCE, target=SINK)
            for promise in promises
        ]

    def _new_writer(self, life: Life) -> Application:
        return Writing(life, self.scene, SOURCE)

    def _new_reader(self, group: GroupHistory, is_static: bool, life: Life) -> Application:
        if group.promise is Promise.EXACTLY_ONCE:
            return Copying(life, self.scene, SOURCE, group, is_static=is_static, target=SINK)
        kind: type[Reading] = AtMostOnce
        if group.promise is Promise.AT_LEAST_ONCE:
            kind = life.random.choice((Automatic, Synchronous, Asynchronous))
        return kind(life, self.scene, SOURCE, group, is_static=is_static)

    # ---- after ---------------------------------------------------------------------------

    @property
    def _longest_timeout_ms(self) -> int:
        return max(TIMEOUTS_MS)

    async def _served_again(self) -> None:
        """Wait until groups have caught up, too."""
        for seat in (*self._producing, *self._reading):
            seat.is_calm = True
        await super()._served_again()
        for seat in self._producing:
            seat.stopping = True
        await self._until("producers end", lambda: all(one.stopped for one in self._producing))
        await self._catch_up()

    async def _until(self, what: str, done: Callable[[], bool]) -> None:
        deadline = self.world.loop.time() + CAUGHT_UP_S
        while not done() and self.world.loop.time() < deadline:
            self.checks.raise_violations()
            await self.cluster.runtime.sleep(0.1)
        self.checks.hold(Property.SERVED_AGAIN, done(), what)
        self.checks.raise_violations()

    async def _catch_up(self) -> None:
        """Wait until every group has committed the end of every partition that it reads."""
        io = SimIo(self.cluster, SimRuntime(self.world, machine=LOOKER), LOOKER)
        core = Core(io, self.scene.client_settings(self.random))
        admin = GroupAdmin(core)
        deadline = self.world.loop.time() + CAUGHT_UP_S
        left = [one.group_id for one in self.scene.history.groups]
        behind: object = None
        while left and self.world.loop.time() < deadline:
            self.checks.raise_violations()
            try:
                behind = await self._behind(admin, left[0])
            except EXPECTED as failure:
                check_sound(failure)
                behind = failure
            if behind:
                await self.cluster.runtime.sleep(0.2)
            else:
                left.pop(0)
        core.close()
        self.checks.hold(Property.GROUPS_CATCH_UP, not left, *left, behind)
        self.world.tell(f"groups have caught up: {not left}")
        self.checks.raise_violations()

    async def _behind(self, admin: GroupAdmin, group_id: str) -> list[str]:
        """The partitions in which a group has not committed the end."""
        ends = {
            TopicPartition(SOURCE, partition.key[1]): partition.log.log_end_offset
            for partition in self._leaders()
            if partition.name.startswith(SOURCE)
        }
        committed = await admin.group_offsets(group_id)
        found = []
        for key in self.scene.partitions(SOURCE):
            end = ends.get(key)
            offset = committed[key].offset if key in committed else 0
            if offset != end:
                found.append(f"{key} at {offset} of {end}")
        return found

    async def _judge(self) -> None:
        await super()._judge()
        Verdict(self.checks, self.scene.ledgers, self._offsets).judge(self.scene.history)
        lives = sum(one.lives for one in (*self._producing, *self._reading))
        processed = sum(one.count for one in self.scene.history.groups)
        self.world.tell(f"{processed} records processed, {lives} lives")
