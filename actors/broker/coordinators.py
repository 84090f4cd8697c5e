"""The coordinator processes of one broker: started on first use, and sent what concerns them.

A coordinator is started once this broker serves a partition of its internal topic. It then keeps
running, so that returning leadership need not wait for a process to start. If there is a warm spare
in the replica pool, it moves in there; otherwise the first group, and after a crash every group,
would have to wait for a process.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable

from raylog.actors.backoff import Backoff
from raylog.actors.broker.children import Child, taken_from
from raylog.actors.broker.messages import ChildStatus
from raylog.actors.broker.rules.machine import BrokerMachine
from raylog.actors.common_messages import Route, RouteUpdate
from raylog.actors.config import BrokerSettings
from raylog.actors.controller.messages import MetadataUpdate
from raylog.actors.coordination.rules.placement import partition_of
from raylog.actors.coordinator_kinds import KINDS
from raylog.actors.names import (
    TRANSACTION,
    broker_name,
    child_name,
    colocated_name,
)
from raylog.actors.peers.metadata_copies import SnapshotEncoder
from raylog.actors.places import Place
from raylog.actors.remote import Broker, GroupCoordinator, call
from raylog.actors.runtime.base import (
    ActorGone,
    ActorRef,
    ActorSpec,
    PeerLost,
    PeerTimeout,
    Runtime,
)
from raylog.wire.errors import CoordinatorNotAvailable, KafkaError

log = logging.getLogger(__name__)
RESPAWN_MS = 500
FIND_TIMEOUT_MS = 2_000


class Coordinators:
    """At most one running process for each coordinator role.

    `find_host` returns the name of a running process with room for a coordinator, or None.
    `started` is called when a new coordinator runs, `noted` when names change, and `moved(role,
    address)` when gateways must use another address; None means that there is none for now.
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
        find_host: Callable[[], str | None],
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
        self._find_host = find_host
        self._started = started
        self._noted = noted
        self._moved = moved
        self._running: dict[str, Child] = {}
        self._starting: dict[str, str] = {}
        """Roles to names."""
        self._starts = {role: Backoff() for role in KINDS}
        self._ending = False

    @property
    def names(self) -> list[str]:
        """The names of all coordinators, running or starting."""
        return [*(child.ref.name for child in self._running.values()), *self._starting.values()]

    def addresses(self) -> dict[str, str]:
        """The link addresses of the coordinators, by role."""
        return {role: child.ref.address for role, child in self._running.items()}

    def address(self, role: str) -> str:
        """Return the link address of a coordinator, or "" while it does not run."""
        child = self._running.get(role)
        return "" if child is None else child.ref.address

    async def find_transaction_coordinator(self, transactional_id: str) -> tuple[int, str]:
        """Return broker id and link address of the coordinator of a transactional id.

        Raises CoordinatorNotAvailable, which is temporary.
        """
        machine = self._machine
        _, partition = partition_of(machine.image, TRANSACTION, transactional_id)
        leader = partition.leader
        address = ""
        if leader == machine.broker_id:
            address = self.address(TRANSACTION)
        elif leader >= 0:
            broker = broker_name(machine.cluster_id, leader)
            try:
                address = await call(
                    self._runtime,
                    broker,
                    Broker.coordinator_address,
                    TRANSACTION,
                    timeout_ms=FIND_TIMEOUT_MS,
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
        """Send all coordinators a metadata snapshot."""
        for child in self._running.values():
            child.post_snapshot(self._snapshots.take())

    def tell_metadata(self, update: MetadataUpdate) -> None:
        """Pass a metadata update on to all coordinators."""
        for child in self._running.values():
            child.post(GroupCoordinator.apply_metadata, *update)

    def tell_routes(self, update: RouteUpdate) -> None:
        """Pass route changes on to each coordinator, and start those that are now needed."""
        for role, kind in KINDS.items():
            added = self._of_topic(kind.topic, update.added)
            child = self._running.get(role)
            if child is not None:
                if added or update.removed:
                    child.post(GroupCoordinator.apply_routes, RouteUpdate(added, update.removed))
            elif added and role not in self._starting and not self._ending:
                self._start(role, restarts=0)

    def _of_topic(self, topic: str, routes: list[Route]) -> list[Route]:
        topic_id = self._machine.image.topic_ids.get(topic)
        return [route for route in routes if route.leads and route.topic_id == topic_id]

    # ---- processes -----------------------------------------------------------------------

    def _start(self, role: str, *, restarts: int) -> None:
        machine = self._machine
        name = child_name(machine.cluster_id, role, machine.broker_id, next(self._numbers))
        host = self._find_host()
        if host is not None:
            name = colocated_name(name, host)
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
        """Add a running coordinator and bring it up to date; from now on it gets every update."""
        child = Child(self._runtime, ref, self._lost)
        child.restarts = restarts
        self._running[ref.role] = child
        self._noted()
        if self._machine.is_caught_up:
            child.post_snapshot(self._snapshots.take())
        routes = self._of_topic(KINDS[ref.role].topic, self._machine.routes())
        child.post(GroupCoordinator.apply_routes, RouteUpdate(routes))
        self._moved(ref.role, ref.address)

    def _lost(self, child: Child) -> None:
        role = child.ref.role
        self._running.pop(role, None)  # `take_all` may have taken it
        self._moved(role, None)
        self._starts[role].lost(self._runtime.monotonic_ms())
        if not self._ending:
            self._start(role, restarts=child.restarts + 1)

    # ---- ending and describing -----------------------------------------------------------

    def take_all(self) -> list[Child]:
        """Stop watching all running coordinators and return them."""
        self._ending = True
        return taken_from(self._running)

    @property
    def starting(self) -> dict[str, str]:
        """Names of the coordinators being started, to their roles."""
        return {name: role for role, name in self._starting.items()}

    @property
    def refs(self) -> list[ActorRef]:
        """All running coordinators."""
        return [child.ref for child in self._running.values()]

    def describe(self) -> list[ChildStatus]:
        """Describe all running coordinators."""
        return [
            ChildStatus(ref.name, ref.role, ref.pid, ref.node_id, "running", child.restarts)
            for child in self._running.values()
            for ref in (child.ref,)
        ]
