"""The coordinator processes of one broker: started on first use, told what concerns them.

A coordinator is wanted once this broker serves a partition of its internal topic. It then stays,
so that leadership that comes back need not wait for a process. It moves into a warm spare of the
replicas, where there is one: else the first group, and all groups after a crash, wait for the start
of a process.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable

from raylog.actors.backoff import Backoff
from raylog.actors.broker.api import ChildStatus
from raylog.actors.broker.children import Child, taken_from
from raylog.actors.broker.machine import BrokerMachine
from raylog.actors.config import BrokerSettings
from raylog.actors.controller.api import MetadataUpdate
from raylog.actors.coordination.placement import transaction_partition
from raylog.actors.metadata.snapshots import SnapshotEncoder
from raylog.actors.names import (
    GROUP,
    OFFSETS_TOPIC,
    TRANSACTION,
    TRANSACTIONS_TOPIC,
    broker_name,
    child_name,
    lodger_name,
)
from raylog.actors.ports import Route, RouteUpdate
from raylog.actors.runtime.base import (
    ActorGone,
    ActorRef,
    ActorSpec,
    PeerLost,
    PeerTimeout,
    Place,
    Runtime,
)
from raylog.wire.errors import CoordinatorNotAvailable, KafkaError

log = logging.getLogger(__name__)
RESPAWN_MS = 500
FIND_TIMEOUT_MS = 2_000
TOPICS = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC}
"""Role to the topic whose partitions it coordinates."""


class Coordinators:
    """At most one running process of each coordinator role.

    `shelter` names a process that runs and has room for a coordinator, which saves the start of
    one; None: there is none. `started` is called when a coordinator runs that was started.
    `noted` is called when names change, `moved(role, address)` when gateways must look elsewhere;
    an address of None says that there is none for now.
    """

    def __init__(
        self,
        runtime: Runtime,
        machine: BrokerMachine,
        settings: BrokerSettings,
        snapshots: SnapshotEncoder,
        *,
        numbers: itertools.count[int],
        place: Place | None,
        shelter: Callable[[], str | None],
        started: Callable[[], None],
        noted: Callable[[], None],
        moved: Callable[[str, str | None], None],
    ) -> None:
        self._runtime = runtime
        self._machine = machine
        self._settings = settings
        self._snapshots = snapshots
        self._numbers = numbers
        self._place = place
        self._shelter = shelter
        self._started = started
        self._noted = noted
        self._moved = moved
        self._running: dict[str, Child] = {}
        self._starting: dict[str, str] = {}
        """Roles to names."""
        self._starts = {role: Backoff() for role in TOPICS}
        self._ending = False

    @property
    def names(self) -> list[str]:
        """Every coordinator, running or being started."""
        return [*(child.ref.name for child in self._running.values()), *self._starting.values()]

    def addresses(self) -> dict[str, str]:
        """Where gateways find the coordinators, by role."""
        return {role: child.ref.address for role, child in self._running.items()}

    def address(self, role: str) -> str:
        """Where a coordinator is found; "" while it does not run."""
        child = self._running.get(role)
        return "" if child is None else child.ref.address

    async def find_transaction_coordinator(self, transactional_id: str) -> tuple[int, str]:
        """Broker id and link address of whoever coordinates an id.

        Raises CoordinatorNotAvailable, which passes.
        """
        machine = self._machine
        _, partition = transaction_partition(machine.image, transactional_id)
        leader = partition.leader
        address = ""
        if leader == machine.broker_id:
            address = self.address(TRANSACTION)
        elif leader >= 0:
            broker = broker_name(machine.cluster_id, leader)
            try:
                address = await self._runtime.call(
                    broker, "coordinator_address", TRANSACTION, timeout_ms=FIND_TIMEOUT_MS
                )
            except (ActorGone, PeerLost, PeerTimeout) as failure:
                raise CoordinatorNotAvailable(f"{broker} does not answer: {failure}") from failure
        if not address:
            raise CoordinatorNotAvailable(f"nobody coordinates {transactional_id!r} yet")
        return leader, address

    def adopt(self, ref: ActorRef) -> None:
        """Take over a process that outlived the last broker process."""
        self._add(ref, restarts=0)

    def tell_everything(self) -> None:
        """Tell all metadata anew."""
        for child in self._running.values():
            child.post_snapshot(self._snapshots.take())

    def tell_metadata(self, update: MetadataUpdate) -> None:
        """Pass metadata on."""
        for child in self._running.values():
            child.post("apply_metadata", *update)

    def tell_routes(self, update: RouteUpdate) -> None:
        """Pass on what concerns each coordinator, starting those that are needed now."""
        for role, topic in TOPICS.items():
            added = self._of_topic(topic, update.added)
            child = self._running.get(role)
            if child is not None:
                if added or update.removed:
                    child.post("apply_routes", RouteUpdate(added, update.removed))
            elif added and role not in self._starting and not self._ending:
                self._start(role, restarts=0)

    def _of_topic(self, topic: str, routes: list[Route]) -> list[Route]:
        topic_id = self._machine.image.topic_ids.get(topic)
        return [route for route in routes if route.leads and route.topic_id == topic_id]

    # ---- processes -----------------------------------------------------------------------

    def _start(self, role: str, *, restarts: int) -> None:
        machine = self._machine
        name = child_name(machine.cluster_id, role, machine.broker_id, next(self._numbers))
        shelter = self._shelter()
        if shelter is not None:
            name = lodger_name(name, shelter)
        self._starting[role] = name
        self._noted()
        self._runtime.start(self._run(role, name, restarts), f"start {name}")

    async def _run(self, role: str, name: str, restarts: int) -> None:
        args = {
            "name": name,
            "broker_id": self._machine.broker_id,
            "cluster_id": self._machine.cluster_id,
            "settings": self._settings.given,
        }
        await self._runtime.sleep(self._starts[role].wait_ms(self._runtime.monotonic_ms()) / 1000)
        try:
            ref = await self._runtime.spawn(ActorSpec(name, role, args, self._place))
        except (PeerLost, PeerTimeout, KafkaError, ValueError) as failure:
            log.error("%s did not start: %s", name, failure)
            del self._starting[role]
            self._starts[role].lost(self._runtime.monotonic_ms())
            await self._runtime.sleep(RESPAWN_MS / 1000)
            if not self._ending:
                self._start(role, restarts=restarts + 1)
            return
        del self._starting[role]
        if self._ending:
            await self._runtime.kill(ref)
            return
        self._add(ref, restarts=restarts)
        self._started()

    def _add(self, ref: ActorRef, *, restarts: int) -> None:
        """Bring a coordinator up to date; from then on it hears everything."""
        child = Child(self._runtime, ref, self._lost)
        child.restarts = restarts
        self._running[ref.role] = child
        self._noted()
        if self._machine.is_caught_up:
            child.post_snapshot(self._snapshots.take())
        routes = self._of_topic(TOPICS[ref.role], self._machine.routes())
        child.post("apply_routes", RouteUpdate(routes))
        self._moved(ref.role, ref.address)

    def _lost(self, child: Child) -> None:
        role = child.ref.role
        del self._running[role]
        self._moved(role, None)
        self._starts[role].lost(self._runtime.monotonic_ms())
        if not self._ending:
            self._start(role, restarts=child.restarts + 1)

    # ---- ending and describing -----------------------------------------------------------

    def take_all(self) -> list[Child]:
        """Every running coordinator, which is no longer kept alive from here."""
        self._ending = True
        return taken_from(self._running)

    @property
    def starting(self) -> dict[str, str]:
        """Names of those being started, to their roles."""
        return {name: role for role, name in self._starting.items()}

    @property
    def refs(self) -> list[ActorRef]:
        """Every coordinator that runs."""
        return [child.ref for child in self._running.values()]

    def describe(self) -> list[ChildStatus]:
        """Every running coordinator."""
        return [
            ChildStatus(ref.name, ref.role, ref.pid, ref.node_id, "running", child.restarts)
            for child in self._running.values()
            for ref in (child.ref,)
        ]
