"""All children of a broker: starts and adopts them, and carries out the machine's effects."""

from __future__ import annotations

import asyncio  # noqa: TID251 - part of the broker's shell: children end side by side
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from raylog.actors.backoff import Backoff
from raylog.actors.broker.children import Child, taken_from
from raylog.actors.broker.controller_handle import ControllerHandle
from raylog.actors.broker.coordinators import Coordinators
from raylog.actors.broker.identity import DataDirectory
from raylog.actors.broker.messages import ChildStatus
from raylog.actors.broker.rules import effects as do
from raylog.actors.broker.rules.machine import BrokerMachine
from raylog.actors.broker.strays import keep_stray
from raylog.actors.build import BUILD
from raylog.actors.common_messages import PartitionStatus, RouteUpdate
from raylog.actors.config import BrokerSettings, settings_of
from raylog.actors.controller.messages import MetadataUpdate, PartitionsOpened, ReplicasLost
from raylog.actors.coordinator_kinds import KINDS
from raylog.actors.endpoints import Endpoint
from raylog.actors.names import GATEWAY, REPLICA, child_name, colocated_name, host_of
from raylog.actors.peers.metadata_copies import SnapshotEncoder
from raylog.actors.places import Place
from raylog.actors.remote import Controller, Gateway, Method, Replica, T, Ts, call
from raylog.actors.replica.rules.config import CleanerSettings, ReplicationSettings
from raylog.actors.runtime.base import (
    ActorGone,
    ActorRef,
    ActorSpec,
    PeerLost,
    PeerTimeout,
    Runtime,
)
from raylog.wire.errors import KafkaError

log = logging.getLogger(__name__)
CALL_TIMEOUT_MS = 5_000
DESCRIBE_TIMEOUT_MS = 2_000
"""Shorter than the callers' own timeout, so that only the child that hangs is left out."""
FIND_TIMEOUT_S = 10.0
OPEN_TIMEOUT_MS = 900_000
"""Recovery of large logs takes long. A process that exceeds this timeout is killed."""
STOP_TIMEOUT_MS = 60_000
RESPAWN_MS = 500
KEEP_AGAIN_MS = 5_000
"""Delay before the next attempt to set a stray aside."""


class ChildProcesses:
    """The gateways, replicas and coordinators of one broker."""

    def __init__(
        self,
        runtime: Runtime,
        machine: BrokerMachine,
        data: DataDirectory,
        controller: ControllerHandle,
        settings: BrokerSettings,
        *,
        numbers: itertools.count[int],
        place: Place | None,
        progressed: Callable[[], None],
    ) -> None:
        self.broker_epoch = -1
        """The epoch under which this broker reports to the controller."""
        self._runtime = runtime
        self._machine = machine
        self._data = data
        self._controller = controller
        self._settings = settings
        self._numbers = numbers
        self._place = place
        self._progressed = progressed
        self._gateways: dict[str, Child] = {}
        self._colocations = itertools.count()
        """How often a gateway was started in a replica's process."""
        self._replicas: dict[str, Child] = {}
        self._hosts: dict[str, Child] = {}
        """Former spares that host a coordinator, or a gateway that used to have its own process."""
        self._starting: dict[str, str] = {}
        """Names to roles."""
        self._gateway_starts = Backoff()
        self._silent: set[str] = set()
        """Replicas that did not answer when they were last asked to describe themselves."""
        self._snapshots = SnapshotEncoder(runtime, machine.image)
        self._coordinators = Coordinators(
            runtime,
            machine,
            settings,
            self._snapshots,
            numbers=numbers,
            place=place,
            find_host=self._find_host,
            # A new spare replaces the one taken.
            started=lambda: self.carry_out(self._machine.colocate_gateway()),
            noted=self._note_if_possible,
            moved=self._coordinator_moved,
        )
        self._bound: Mapping[str, str] = {}
        self._ending = False

    # ---- beginning -----------------------------------------------------------------------

    async def survivors(self) -> list[ActorRef]:
        """Return the live children of the last process that run this build; end the others."""
        last = self._data.last.children.items()
        found = await asyncio.gather(*(self._survivor(name, build) for name, build in last))
        return [ref for ref in found if ref is not None]

    async def _survivor(self, name: str, build: str) -> ActorRef | None:
        """Return the child if it can be adopted; end one that hangs, as it could wake up later."""
        try:
            async with asyncio.timeout(FIND_TIMEOUT_S):
                ref = await self._runtime.find(name)
        except (ActorGone, TimeoutError) as gone:
            log.info("%s did not outlive its broker: %s", name, gone)
            await self._runtime.end_for_good(name)
            return None
        try:
            await call(self._runtime, ref, Replica.ping, timeout_ms=CALL_TIMEOUT_MS)
        except (PeerLost, PeerTimeout) as failure:
            log.info("%s does not answer the restarted broker: %s", name, failure)
            await self._runtime.kill(ref)
            return None
        if build != BUILD:
            log.info("%s runs build %s, not %s", name, build or "none: it was ending", BUILD)
            await self._runtime.kill(ref)
            return None
        return ref

    async def adopt(self, refs: Sequence[ActorRef]) -> list[tuple[str, list[PartitionStatus]]]:
        """Take over children; return what each replica among them has open."""
        replicas = [ref for ref in refs if ref.role == REPLICA]
        roles = {*KINDS} if self._machine.pool.colocates_gateway else {*KINDS, GATEWAY}
        hosts = {host_of(ref.name) for ref in refs if ref.role in roles}
        hosting = [ref for ref in replicas if ref.name in hosts]
        replicas = [ref for ref in replicas if ref.name not in hosts]
        for ref in hosting:
            self._hosts[ref.name] = Child(self._runtime, ref, self._replica_lost)
        for ref in refs:
            if ref.role == GATEWAY:
                log.info("adopting %s (pid %d)", ref.name, ref.pid)
                restarts = 0 if host_of(ref.name) == ref.name else next(self._colocations)
                self._add_gateway(ref, restarts=restarts)
            elif ref.role in KINDS:
                log.info("adopting %s (pid %d)", ref.name, ref.pid)
                self._coordinators.adopt(ref)
        held = []
        for ref, statuses in zip(
            replicas, await asyncio.gather(*map(self._held, replicas)), strict=True
        ):
            if statuses is not None:
                log.info("adopting %s (pid %d)", ref.name, ref.pid)
                number = int(ref.name.rpartition("/")[2])
                self._machine.pool.adopt(ref.name, number, ref.instance, ref.address)
                self._replicas[ref.name] = Child(self._runtime, ref, self._replica_lost)
                held.append((ref.name, statuses))
        return held

    async def _held(self, ref: ActorRef) -> list[PartitionStatus] | None:
        """Return what a replica has open. A replica that does not answer is ended."""
        try:
            return await call(self._runtime, ref, Replica.describe, timeout_ms=CALL_TIMEOUT_MS)
        except (PeerLost, PeerTimeout, KafkaError) as failure:
            log.warning("%s is not adopted: %s", ref.name, failure)
            await self._runtime.kill(ref)
            return None

    def start_gateways(self, listening: Sequence[Endpoint], bound: Mapping[str, str]) -> None:
        """Start the gateways that are missing.

        `bound` has listener settings with the ports that the broker has bound, in place of port 0.
        """
        self._listening, self._bound = listening, bound
        if self._machine.pool.colocates_gateway:
            self.carry_out(self._machine.colocate_gateway())
            return
        for _ in range(self._machine.pool.gateways - len(self._gateways)):
            self._start_gateway(restarts=0)

    # ---- updates to children -------------------------------------------------------------

    @property
    def gateways_are_up_to_date(self) -> bool:
        """Whether every gateway runs and has acknowledged everything sent to it."""
        return len(self._gateways) >= self._machine.pool.gateways and all(
            gateway.is_idle for gateway in self._gateways.values()
        )

    def caught_up(self) -> None:
        """Start passing metadata on: the image has caught up with that of the last process."""
        self._machine.is_caught_up = True
        self._coordinators.tell_everything()
        for gateway in self._gateways.values():
            gateway.post_snapshot(self._snapshots.take(), answered=self._acknowledged)

    def tell_metadata(self, update: MetadataUpdate) -> None:
        """Pass metadata on to gateways and coordinators."""
        if not self._machine.is_caught_up:
            return
        self._coordinators.tell_metadata(update)
        for gateway in self._gateways.values():
            gateway.post(Gateway.apply_metadata, *update, answered=self._acknowledged)

    def _acknowledged(self, _: object) -> None:
        self._progressed()

    @property
    def coordinators(self) -> Coordinators:
        """The group and transaction coordinators."""
        return self._coordinators

    def _coordinator_moved(self, role: str, address: str | None) -> None:
        for gateway in self._gateways.values():
            gateway.post(Gateway.apply_coordinator, role, address, answered=self._acknowledged)

    def _find_host(self) -> str | None:
        """Return a process that can host a coordinator: a former spare, or a spare.

        None until the gateway has a process.
        """
        hosted = {*self._gateways, *self._starting, *self._coordinators.names}
        taken = set(map(host_of, hosted))
        pool = self._machine.pool
        free = next((name for name in self._hosts if name not in taken), None)
        if free is not None or (pool.colocates_gateway and not pool.gateway_runs):
            return free
        return self._take_spare()

    def _take_spare(self) -> str | None:
        """Take a running spare out of the pool to host something other than partitions."""
        spare = self._machine.pool.take_spare()
        if spare is None:
            return None
        self._hosts[spare.name] = self._replicas.pop(spare.name)
        return spare.name

    def carry_out(self, effects: Iterable[do.Effect]) -> None:
        """Carry out the machine's effects, in order."""
        for effect in effects:
            log.debug("%s", effect)
            match effect:
                case do.SpawnReplica() | do.ColocateGateway() | do.EndReplica():
                    self._start_or_end(effect)
                case do.RemoveDirectories(directories):
                    self._runtime.start(self.remove(directories), "remove directories")
                case do.KeepStrays(directories):
                    self._runtime.start(self.keep(directories), "keep strays")
                case do.ReportOpened(opened):
                    self._report(
                        Controller.partitions_opened,
                        PartitionsOpened(self._machine.broker_id, self.broker_epoch, opened),
                    )
                case do.ReportLost(keys):
                    self._report(
                        Controller.replicas_lost,
                        ReplicasLost(self._machine.broker_id, self.broker_epoch, keys),
                    )
                case do.SendRoutes(update):
                    for gateway in self._gateways.values():
                        gateway.post(Gateway.apply_routes, update, answered=self._acknowledged)
                    self._coordinators.tell_routes(update)
                case do.GoOn() | do.RetryLater():
                    self._come_again(effect)
                case _:
                    self._tell_replica(effect)
        self._progressed()

    def _start_or_end(self, effect: do.Effect) -> None:
        match effect:
            case do.SpawnReplica(name, delay_ms):
                self._starting[name] = REPLICA
                self._runtime.start(self._start_replica(name, delay_ms), f"start {name}")
            case do.ColocateGateway(home):
                self._start_gateway(home, restarts=next(self._colocations))
            case do.EndReplica(name):
                self._end_replica(name)
            case _:
                raise AssertionError(f"{effect} neither starts nor ends a process")

    def _come_again(self, effect: do.GoOn | do.RetryLater) -> None:
        match effect:
            case do.GoOn():
                self._runtime.call_later(0, self._go_on)
            case do.RetryLater(delay_ms):
                self._runtime.call_later(delay_ms, self._retry)

    def _tell_replica(self, effect: do.Effect) -> None:
        """Carry out effects that are calls to one replica. A lost replica gets none."""
        match effect:
            case do.OpenPartitions(name, partitions):
                answered = partial(self._opened, name)
                self._post(name, Replica.open_partitions, partitions, answered=answered)
            case do.LeadPartitions(name, leaderships):
                self._post(
                    name,
                    Replica.lead_partitions,
                    leaderships,
                    answered=lambda _: self.carry_out(self._machine.led(name, leaderships)),
                )
            case do.ConfigurePartitions(name, configs):
                self._post(name, Replica.configure, configs)
            case do.ClosePartitions(name, keys, directories, keep):
                after: do.Effect = do.RemoveDirectories(directories)
                if keep:
                    after = do.KeepStrays(directories)
                self._post(
                    name,
                    Replica.close_partitions,
                    keys,
                    not keep,
                    answered=lambda _: self.carry_out([after]),
                )
            case _:
                raise AssertionError(f"{effect} is not a call to a replica")

    def _post(
        self,
        name: str,
        method: Method[*Ts, T],
        *args: *Ts,
        answered: Callable[[T], None] | None = None,
    ) -> None:
        replica = self._replicas.get(name)
        if replica is not None:
            replica.post(method, *args, timeout_ms=OPEN_TIMEOUT_MS, answered=answered)

    def _opened(self, name: str, outcomes: Any) -> None:
        for outcome in outcomes:
            if outcome.error is not None:
                log.error("partition %d was not opened: %s", outcome.partition, outcome.error)
        self.carry_out(self._machine.opened(name, outcomes))

    def _report(self, method: Method[T, object], argument: T) -> None:
        self._controller.report(method, argument, timeout_ms=CALL_TIMEOUT_MS)

    def _go_on(self) -> None:
        if not self._ending:
            self.carry_out(self._machine.go_on())

    def _retry(self) -> None:
        if not self._ending:
            self.carry_out(self._machine.retry())

    async def remove(self, directories: Iterable[str]) -> None:
        """Remove the directories of partitions that were deleted or moved."""
        for directory in directories:
            await self._runtime.run_blocking(self._runtime.disk.remove_tree, directory)
        if not self._ending:
            self.carry_out(self._machine.removed(directories))

    async def keep(self, directories: Iterable[str]) -> None:
        """Set directories aside that the metadata does not know; retry until that succeeds."""
        left = []
        for directory in directories:
            try:
                kept = await self._runtime.run_blocking(
                    keep_stray, self._runtime.disk, directory, self._runtime.now_ms()
                )
            except OSError as failure:
                log.error("%s is a stray and cannot be set aside: %s", directory, failure)
                left.append(directory)
            else:
                log.warning("%s belongs to no partition here and is kept as %s", directory, kept)
        if self._ending:
            return
        self.carry_out(self._machine.removed({*directories} - {*left}))
        if left:
            self._runtime.call_later(KEEP_AGAIN_MS, partial(self.carry_out, [do.KeepStrays(left)]))

    # ---- processes -----------------------------------------------------------------------

    def _note(self) -> None:
        """Record all children, so that the next broker process adopts or ends them."""
        replicas = [*self._replicas, *self._hosts]
        names = [*self._gateways, *replicas, *self._starting, *self._coordinators.names]
        stopping = self._replicas.keys() - self._machine.pool.slots.keys()
        if self._ending:
            names += self._data.last.children  # `end` has taken them
            stopping = {*names}
        self._data.remember_children({name: "" if name in stopping else BUILD for name in names})

    def _note_if_possible(self) -> None:
        """Record the names, ignoring a failure: a wrong name is harmless here."""
        try:
            self._note()
        except OSError as failure:
            log.error("the children cannot be recorded: %s", failure)

    async def _start_replica(self, name: str, delay_ms: int) -> None:
        args = {
            "name": name,
            "cluster_id": self._machine.cluster_id,
            "broker_id": self._machine.broker_id,
            "replication": settings_of(ReplicationSettings, self._settings),
            "retention_check_interval_ms": self._settings.number("log.retention.check.interval.ms"),
            "cleaner": settings_of(CleanerSettings, self._settings),
            "topics_max": self._settings.number("metrics.topics.max"),
        }
        spec = ActorSpec(name, REPLICA, args, self._place, houses=(GATEWAY,))
        if delay_ms:
            await self._runtime.sleep(delay_ms / 1000)
        try:
            self._note()
            ref = await self._runtime.spawn(spec)
        except (PeerLost, PeerTimeout, KafkaError, OSError, ValueError) as failure:
            log.error("%s did not start: %s", name, failure)
            del self._starting[name]
            await self._runtime.sleep(RESPAWN_MS / 1000)
            if not self._ending:
                self.carry_out(self._machine.replica_lost(name, self._runtime.monotonic_ms()))
            return
        if self._ending:
            await self._end(ref)
        del self._starting[name]
        if self._ending:
            return
        self._replicas[name] = Child(self._runtime, ref, self._replica_lost)
        self.carry_out(self._machine.replica_ready(name, ref.instance, ref.address))

    def _replica_lost(self, child: Child) -> None:
        if self._hosts.pop(child.ref.name, None) is None:
            self._replicas.pop(child.ref.name, None)
        self._note_if_possible()
        if not self._ending:
            now_ms = self._runtime.monotonic_ms()
            self.carry_out(self._machine.replica_lost(child.ref.name, now_ms))

    def _end_replica(self, name: str) -> None:
        """End a replica after all calls already posted to it."""
        self._note_if_possible()
        self._post(name, Replica.stop, answered=lambda _: self._dismiss(name))

    def _dismiss(self, name: str) -> None:
        replica = self._replicas.pop(name, None)
        if replica is not None:
            replica.forget()
            self._runtime.start(self._runtime.dismiss(replica.ref), f"end {name}")

    def _start_gateway(self, home: str | None = None, *, restarts: int) -> None:
        """Start a gateway in its own process, or in a replica's."""
        machine = self._machine
        name = child_name(machine.cluster_id, GATEWAY, machine.broker_id, next(self._numbers))
        if home is not None:
            name = colocated_name(name, home)
        self._starting[name] = GATEWAY
        self._runtime.start(self._run_gateway(name, home, restarts), f"start {name}")

    @property
    def _facts(self) -> dict[str, str]:
        """Settings reported to clients as set, although they are optional."""
        facts = {"broker.id": str(self._machine.broker_id), "log.dirs": str(self._data.path)}
        return {**facts, **self._bound, **self._machine.pool.gateway_count_setting(self._settings)}

    async def _run_gateway(self, name: str, home: str | None, restarts: int) -> None:
        args = {
            "name": name,
            "cluster_id": self._machine.cluster_id,
            "broker_id": self._machine.broker_id,
            "listening": tuple(self._listening),
            "settings": self._settings.given | self._facts,
        }
        await self._runtime.sleep(self._gateway_starts.wait_ms(self._runtime.monotonic_ms()) / 1000)
        try:
            self._note()
            ref = await self._runtime.spawn(ActorSpec(name, GATEWAY, args, self._place))
        except (PeerLost, PeerTimeout, KafkaError, OSError, ValueError) as failure:
            log.error("%s did not start: %s", name, failure)
            del self._starting[name]
            self._gateway_starts.lost(self._runtime.monotonic_ms())
            await self._runtime.sleep(RESPAWN_MS / 1000)
            if not self._ending:
                self._replace_gateway(home, restarts + 1)
            return
        if self._ending:
            await self._end(ref)
        del self._starting[name]
        if self._ending:
            return
        self._add_gateway(ref, restarts=restarts)

    def _add_gateway(self, ref: ActorRef, *, restarts: int) -> None:
        """Add a running gateway and bring it up to date. From now on it gets every update."""
        gateway = Child(self._runtime, ref, self._gateway_lost)
        gateway.restarts = restarts
        self._gateways[ref.name] = gateway
        if self._machine.is_caught_up:
            gateway.post_snapshot(self._snapshots.take(), answered=self._acknowledged)
        routes = RouteUpdate(added=self._machine.routes())
        gateway.post(Gateway.apply_routes, routes, answered=self._acknowledged)
        for role, address in self._coordinators.addresses().items():
            gateway.post(Gateway.apply_coordinator, role, address, answered=self._acknowledged)
        home = host_of(ref.name)
        if home in self._hosts:
            self.carry_out(self._machine.colocate_gateway())  # starts another spare
        elif home != ref.name:
            self.carry_out(self._machine.gateway_ready(home))

    def _gateway_lost(self, child: Child) -> None:
        self._gateways.pop(child.ref.name, None)  # `end` may have taken it
        self._gateway_starts.lost(self._runtime.monotonic_ms())
        home = host_of(child.ref.name)
        if not self._ending and home not in self._replicas:  # else the loss of the host handles it
            self._replace_gateway(None if home == child.ref.name else home, child.restarts + 1)

    def _replace_gateway(self, home: str | None, restarts: int) -> None:
        """Start a successor for a gateway that ran in its own process or in `home`.

        If gateways have their own processes, the successor moves into a running spare, which is
        quicker than starting a process. The pool then starts another spare.
        """
        if self._machine.pool.colocates_gateway and home is not None:
            self.carry_out(self._machine.gateway_failed(home))
            return
        if home in self._hosts:  # the host lives; only the gateway failed to start there
            self._start_gateway(home, restarts=restarts)
            return
        self._start_gateway(self._take_spare(), restarts=restarts)

    # ---- ending --------------------------------------------------------------------------

    async def end(self) -> None:
        """Stop gateways first, so that clients go elsewhere; then close the logs."""
        self._ending = True
        self._note_if_possible()
        for ending in (
            taken_from(self._gateways),
            self._coordinators.take_all(),
            taken_from(self._replicas) + taken_from(self._hosts),
        ):
            await asyncio.gather(*(self._end(child.ref) for child in ending))
        while starting := self._starting | self._coordinators.starting:
            for name in starting:
                await self._runtime.end_for_good(name)
            await self._runtime.sleep(RESPAWN_MS / 1000)

    async def _end(self, ref: ActorRef) -> None:
        try:
            await call(self._runtime, ref, Replica.stop, timeout_ms=STOP_TIMEOUT_MS)
        except (PeerLost, PeerTimeout, KafkaError) as failure:
            log.warning("%s did not stop cleanly: %s", ref.name, failure)
        await self._runtime.dismiss(ref)

    # ---- describing ----------------------------------------------------------------------

    @property
    def refs(self) -> list[ActorRef]:
        """All running children."""
        groups = (self._replicas, self._hosts, self._gateways)
        return [child.ref for group in groups for child in group.values()] + self._coordinators.refs

    async def partitions(self) -> list[PartitionStatus]:
        """Describe all open partitions of the replicas that answer."""
        asked = [replica.ref for replica in self._replicas.values()]
        figures = await asyncio.gather(*map(self._figures, asked))
        self._silent = {
            one.name for one, statuses in zip(asked, figures, strict=True) if statuses is None
        }
        return [status for statuses in figures for status in statuses or ()]

    async def _figures(self, replica: ActorRef) -> list[PartitionStatus] | None:
        """Ask a replica for its status; None if it does not answer in time."""
        try:
            return await call(
                self._runtime, replica, Replica.describe, timeout_ms=DESCRIBE_TIMEOUT_MS
            )
        except (PeerLost, PeerTimeout, KafkaError) as failure:
            log.info("%s does not answer: %s", replica.name, failure)
            return None

    def describe(self) -> list[ChildStatus]:
        """Describe all children, running or starting."""
        gateways, hosts = self._gateways.values(), self._hosts.values()
        children = [_running(one.ref, one.restarts, "running", 0) for one in gateways]
        children.extend(self._coordinators.describe())
        for name, replica in self._replicas.items():
            slot = self._machine.pool.slots.get(name)
            if slot is not None:
                state = "running" if slot.partitions else "spare"
                if name in self._silent:
                    state = "silent"
                children.append(_running(replica.ref, slot.restarts, state, len(slot.partitions)))
        children.extend(_running(one.ref, one.restarts, "host", 0) for one in hosts)
        starting = self._starting | self._coordinators.starting
        children.extend(
            ChildStatus(name, role, 0, "", "starting", 0) for name, role in starting.items()
        )
        return children


def _running(ref: ActorRef, restarts: int, state: str, partitions: int) -> ChildStatus:
    return ChildStatus(ref.name, ref.role, ref.pid, ref.node_id, state, restarts, partitions)
