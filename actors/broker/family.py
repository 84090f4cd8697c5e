"""The broker's children as a group: spawns and adopts them, carries the machine's effects out."""

from __future__ import annotations

import asyncio  # noqa: TID251 - part of the broker's shell: children end side by side
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from raylog.actors.backoff import Backoff
from raylog.actors.broker import effects as do
from raylog.actors.broker.api import ChildStatus
from raylog.actors.broker.children import Child, taken_from
from raylog.actors.broker.controller_port import ControllerPort
from raylog.actors.broker.coordinators import TOPICS, Coordinators
from raylog.actors.broker.effects import Effect
from raylog.actors.broker.identity import DataDirectory
from raylog.actors.broker.machine import BrokerMachine
from raylog.actors.broker.strays import keep_stray
from raylog.actors.build import BUILD
from raylog.actors.config import BrokerSettings
from raylog.actors.controller.api import MetadataUpdate, PartitionsOpened, ReplicasLost
from raylog.actors.endpoints import Endpoint
from raylog.actors.metadata.snapshots import SnapshotEncoder
from raylog.actors.names import GATEWAY, REPLICA, child_name, host_of, lodger_name
from raylog.actors.ports import PartitionStatus, RouteUpdate
from raylog.actors.replica.config import cleaner_settings, replication_settings
from raylog.actors.runtime.base import (
    ActorGone,
    ActorRef,
    ActorSpec,
    PeerLost,
    PeerTimeout,
    Place,
    Runtime,
)
from raylog.wire.errors import KafkaError

log = logging.getLogger(__name__)
CALL_TIMEOUT_MS = 5_000
DESCRIBE_TIMEOUT_MS = 2_000
"""Less than whoever asks the broker waits: one that hangs is left out of the answer."""
FIND_TIMEOUT_S = 10.0
OPEN_TIMEOUT_MS = 900_000
"""Recovery of large logs takes long; a process that hangs is ended after this."""
STOP_TIMEOUT_MS = 60_000
RESPAWN_MS = 500
KEEP_AGAIN_MS = 5_000
"""Until a stray that could not be set aside is tried again."""


class Family:
    """Gateways, replicas and coordinators of one broker."""

    def __init__(
        self,
        runtime: Runtime,
        machine: BrokerMachine,
        data: DataDirectory,
        controller: ControllerPort,
        settings: BrokerSettings,
        *,
        numbers: itertools.count[int],
        place: Place | None,
        progressed: Callable[[], None],
    ) -> None:
        self.broker_epoch = -1
        """Under which the controller is told things."""
        self._runtime = runtime
        self._machine = machine
        self._data = data
        self._controller = controller
        self._settings = settings
        self._numbers = numbers
        self._place = place
        self._progressed = progressed
        self._gateways: dict[str, Child] = {}
        self._housings = itertools.count()
        """How often the gateway came to live in a replica's process."""
        self._replicas: dict[str, Child] = {}
        self._shelters: dict[str, Child] = {}
        """Former spares: a coordinator lives there, or a gateway that had a process of its own."""
        self._starting: dict[str, str] = {}
        """Names to roles."""
        self._gateway_starts = Backoff()
        self._silent: set[str] = set()
        """Replicas that did not describe themselves when they were last asked."""
        self._snapshots = SnapshotEncoder(runtime, machine.image)
        self._coordinators = Coordinators(
            runtime,
            machine,
            settings,
            self._snapshots,
            numbers=numbers,
            place=place,
            shelter=self._shelter,
            started=self._coordinator_started,
            noted=self._note_if_possible,
            moved=self._coordinator_moved,
        )
        self._bound: Mapping[str, str] = {}
        self._ending = False

    # ---- beginning -----------------------------------------------------------------------

    async def survivors(self) -> list[ActorRef]:
        """Children of the last process that still live and run this build; others are ended."""
        last = self._data.last.children.items()
        found = await asyncio.gather(*(self._survivor(name, build) for name, build in last))
        return [ref for ref in found if ref is not None]

    async def _survivor(self, name: str, build: str) -> ActorRef | None:
        """The child, if it can be adopted. One that hangs must not come back to life later."""
        try:
            async with asyncio.timeout(FIND_TIMEOUT_S):
                ref = await self._runtime.find(name)
        except (ActorGone, TimeoutError) as gone:
            log.info("%s did not outlive its broker: %s", name, gone)
            await self._runtime.end_for_good(name)
            return None
        try:
            await self._runtime.call(ref, "ping", timeout_ms=CALL_TIMEOUT_MS)
        except (PeerLost, PeerTimeout) as failure:
            log.info("%s does not answer its new broker: %s", name, failure)
            await self._runtime.kill(ref)
            return None
        if build != BUILD:
            log.info("%s runs build %s, not %s", name, build, BUILD)
            await self._runtime.kill(ref)
            return None
        return ref

    async def adopt(self, refs: Sequence[ActorRef]) -> list[tuple[str, list[PartitionStatus]]]:
        """Take children over; returns what each replica among them has open."""
        replicas = [ref for ref in refs if ref.role == REPLICA]
        roles = {*TOPICS} if self._machine.pool.houses_gateway else {*TOPICS, GATEWAY}
        housing = {host_of(ref.name) for ref in refs if ref.role in roles}
        sheltering = [ref for ref in replicas if ref.name in housing]
        replicas = [ref for ref in replicas if ref.name not in housing]
        for ref in sheltering:
            self._shelters[ref.name] = Child(self._runtime, ref, self._replica_lost)
        for ref in refs:
            if ref.role == GATEWAY:
                log.info("adopting %s (pid %d)", ref.name, ref.pid)
                restarts = 0 if host_of(ref.name) == ref.name else next(self._housings)
                self._add_gateway(ref, restarts=restarts)
            elif ref.role in TOPICS:
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
        """What a replica has open; one that does not say is ended."""
        try:
            statuses: list[PartitionStatus] = await self._runtime.call(
                ref, "describe", timeout_ms=CALL_TIMEOUT_MS
            )
        except (PeerLost, PeerTimeout, KafkaError) as failure:
            log.warning("%s is not adopted: %s", ref.name, failure)
            await self._runtime.kill(ref)
            return None
        return statuses

    def start_gateways(self, listening: Sequence[Endpoint], bound: Mapping[str, str]) -> None:
        """Start as many gateways as are wanted and not there.

        `bound` has settings with the ports that the broker has bound, where 0 may have been given.
        """
        self._listening, self._bound = listening, bound
        if self._machine.pool.houses_gateway:
            self.carry_out(self._machine.house_gateway())
            return
        for _ in range(self._machine.pool.gateways - len(self._gateways)):
            self._start_gateway(restarts=0)

    # ---- telling -------------------------------------------------------------------------

    @property
    def all_told(self) -> bool:
        """Whether every gateway is there and has taken in everything it was told."""
        return len(self._gateways) >= self._machine.pool.gateways and all(
            gateway.is_idle for gateway in self._gateways.values()
        )

    def caught_up(self) -> None:
        """The image is whole: from now on children hear of it. Those adopted served by theirs."""
        self._machine.is_caught_up = True
        self._coordinators.tell_everything()
        for gateway in self._gateways.values():
            gateway.post_snapshot(self._snapshots.take(), answered=self._told)

    def tell_metadata(self, update: MetadataUpdate) -> None:
        """Pass metadata on to gateways and coordinators."""
        if not self._machine.is_caught_up:
            return
        self._coordinators.tell_metadata(update)
        for gateway in self._gateways.values():
            gateway.post("apply_metadata", *update, answered=self._told)

    def _told(self, _: object) -> None:
        self._progressed()

    @property
    def coordinators(self) -> Coordinators:
        """The coordinators of groups and transactions."""
        return self._coordinators

    def _coordinator_moved(self, role: str, address: str | None) -> None:
        for gateway in self._gateways.values():
            gateway.post("apply_coordinator", role, address, answered=self._told)

    def _shelter(self) -> str | None:
        """A process that a coordinator may have for itself: a former spare, or a spare.

        None before the gateway has found its place.
        """
        lodging = {*self._gateways, *self._starting, *self._coordinators.names}
        taken = set(map(host_of, lodging))
        pool = self._machine.pool
        free = next((name for name in self._shelters if name not in taken), None)
        if free is not None or (pool.houses_gateway and not pool.gateway_runs):
            return free
        return self._lend()

    def _lend(self) -> str | None:
        """Take a running spare for somebody who is no replica."""
        spare = self._machine.pool.lend()
        if spare is None:
            return None
        self._shelters[spare.name] = self._replicas.pop(spare.name)
        return spare.name

    def _coordinator_started(self) -> None:
        self.carry_out(self._machine.house_gateway())  # another spare for one that was lent

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """Do what the machine wants done, in order."""
        for effect in effects:
            log.debug("%s", effect)
            match effect:
                case do.SpawnReplica() | do.HouseGateway() | do.EndReplica():
                    self._start_or_end(effect)
                case do.RemoveDirectories(directories):
                    self._runtime.start(self.remove(directories), "remove directories")
                case do.KeepStrays(directories):
                    self._runtime.start(self.keep(directories), "keep strays")
                case do.ReportOpened(opened):
                    self._report(
                        "partitions_opened",
                        PartitionsOpened(self._machine.broker_id, self.broker_epoch, opened),
                    )
                case do.ReportLost(keys):
                    self._report(
                        "replicas_lost",
                        ReplicasLost(self._machine.broker_id, self.broker_epoch, keys),
                    )
                case do.SendRoutes(update):
                    for gateway in self._gateways.values():
                        gateway.post("apply_routes", update, answered=self._told)
                    self._coordinators.tell_routes(update)
                case do.GoOn() | do.RetryLater():
                    self._come_again(effect)
                case _:
                    self._tell_replica(effect)
        self._progressed()

    def _start_or_end(self, effect: Effect) -> None:
        match effect:
            case do.SpawnReplica(name, delay_ms):
                self._starting[name] = REPLICA
                self._runtime.start(self._start_replica(name, delay_ms), f"start {name}")
            case do.HouseGateway(home):
                self._start_gateway(home, restarts=next(self._housings))
            case do.EndReplica(name):
                self._end_replica(name)
            case _:
                raise AssertionError(f"{effect} neither starts nor ends anybody")

    def _come_again(self, effect: do.GoOn | do.RetryLater) -> None:
        match effect:
            case do.GoOn():
                self._runtime.call_later(0, self._go_on)
            case do.RetryLater(delay_ms):
                self._runtime.call_later(delay_ms, self._retry)

    def _tell_replica(self, effect: Effect) -> None:
        """Effects that are calls to one replica; one that is lost gets none."""
        match effect:
            case do.OpenPartitions(name, partitions):
                answered: Callable[[Any], None] = partial(self._opened, name)
                self._post(name, "open_partitions", partitions, answered=answered)
            case do.LeadPartitions(name, leaderships):
                self._post(
                    name,
                    "lead_partitions",
                    leaderships,
                    answered=lambda _: self.carry_out(self._machine.led(name, leaderships)),
                )
            case do.ConfigurePartitions(name, configs):
                self._post(name, "configure", configs)
            case do.ClosePartitions(name, keys, directories, keep):
                after: Effect = do.RemoveDirectories(directories)
                if keep:
                    after = do.KeepStrays(directories)
                self._post(
                    name,
                    "close_partitions",
                    keys,
                    not keep,
                    answered=lambda _: self.carry_out([after]),
                )
            case _:
                raise AssertionError(f"{effect} is no call to a replica")

    def _post(
        self, name: str, method: str, *args: Any, answered: Callable[[Any], None] | None = None
    ) -> None:
        replica = self._replicas.get(name)
        if replica is not None:
            replica.post(method, *args, timeout_ms=OPEN_TIMEOUT_MS, answered=answered)

    def _opened(self, name: str, outcomes: Any) -> None:
        for outcome in outcomes:
            if outcome.error is not None:
                log.error("partition %d was not opened: %s", outcome.partition, outcome.error)
        self.carry_out(self._machine.opened(name, outcomes))

    def _report(self, method: str, argument: Any) -> None:
        self._controller.report(method, argument, timeout_ms=CALL_TIMEOUT_MS)

    def _go_on(self) -> None:
        if not self._ending:
            self.carry_out(self._machine.go_on())

    def _retry(self) -> None:
        if not self._ending:
            self.carry_out(self._machine.retry())

    async def remove(self, directories: Iterable[str]) -> None:
        """Remove directories of partitions that are no more."""
        for directory in directories:
            await self._runtime.run_blocking(self._runtime.disk.remove_tree, directory)
        if not self._ending:
            self.carry_out(self._machine.removed(directories))

    async def keep(self, directories: Iterable[str]) -> None:
        """Set directories aside that the metadata does not know; it is tried until they are."""
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
                log.warning("%s is of no partition here and is kept as %s", directory, kept)
        if self._ending:
            return
        self.carry_out(self._machine.removed({*directories} - {*left}))
        if left:
            self._runtime.call_later(KEEP_AGAIN_MS, partial(self.carry_out, [do.KeepStrays(left)]))

    # ---- processes -----------------------------------------------------------------------

    def _note(self) -> None:
        """Write down who is there, so that the next broker process finds them."""
        coordinators = self._coordinators.names
        replicas = [*self._replicas, *self._shelters]
        names = [*self._gateways, *replicas, *self._starting, *coordinators]
        self._data.remember_children(dict.fromkeys(names, BUILD))

    def _note_if_possible(self) -> None:
        """The same, where a name too many or a coordinator's too few does no harm."""
        try:
            self._note()
        except OSError as failure:
            log.error("the children are not noted: %s", failure)

    async def _start_replica(self, name: str, delay_ms: int) -> None:
        args = {
            "name": name,
            "cluster_id": self._machine.cluster_id,
            "broker_id": self._machine.broker_id,
            "replication": replication_settings(self._settings),
            "retention_check_interval_ms": self._settings.number("log.retention.check.interval.ms"),
            "cleaner": cleaner_settings(self._settings),
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
        if self._shelters.pop(child.ref.name, None) is None:
            del self._replicas[child.ref.name]
        self._note_if_possible()
        if not self._ending:
            now_ms = self._runtime.monotonic_ms()
            self.carry_out(self._machine.replica_lost(child.ref.name, now_ms))

    def _end_replica(self, name: str) -> None:
        """End a replica behind everything it was told."""
        self._post(name, "stop", answered=lambda _: self._dismiss(name))

    def _dismiss(self, name: str) -> None:
        replica = self._replicas.pop(name, None)
        if replica is not None:
            replica.forget()
            self._runtime.start(self._runtime.dismiss(replica.ref), f"end {name}")

    def _start_gateway(self, home: str | None = None, *, restarts: int) -> None:
        """Start a gateway in a process of its own, or in that of a replica."""
        name = child_name(
            self._machine.cluster_id, GATEWAY, self._machine.broker_id, next(self._numbers)
        )
        if home is not None:
            name = lodger_name(name, home)
        self._starting[name] = GATEWAY
        self._runtime.start(self._run_gateway(name, home, restarts), f"start {name}")

    @property
    def _facts(self) -> dict[str, str]:
        """Settings that clients are told as given at the start; nobody needs to give them."""
        facts = {"broker.id": str(self._machine.broker_id), "log.dirs": str(self._data.path)}
        return {**facts, **self._bound, **self._machine.pool.gateways_told(self._settings)}

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
        """Bring a gateway up to date; from then on it hears everything."""
        gateway = Child(self._runtime, ref, self._gateway_lost)
        gateway.restarts = restarts
        self._gateways[ref.name] = gateway
        if self._machine.is_caught_up:
            gateway.post_snapshot(self._snapshots.take(), answered=self._told)
        routes = RouteUpdate(added=self._machine.routes())
        gateway.post("apply_routes", routes, answered=self._told)
        for role, address in self._coordinators.addresses().items():
            gateway.post("apply_coordinator", role, address, answered=self._told)
        home = host_of(ref.name)
        if home in self._shelters:
            self.carry_out(self._machine.house_gateway())  # which starts another spare
        elif home != ref.name:
            self.carry_out(self._machine.gateway_ready(home))

    def _gateway_lost(self, child: Child) -> None:
        del self._gateways[child.ref.name]
        self._gateway_starts.lost(self._runtime.monotonic_ms())
        home = host_of(child.ref.name)
        if not self._ending and home not in self._replicas:  # else the loss of that tells more
            self._replace_gateway(None if home == child.ref.name else home, child.restarts + 1)

    def _replace_gateway(self, home: str | None, restarts: int) -> None:
        """Start a gateway instead of one that lived in a process of its own, or in `home`.

        Where gateways have processes of their own the next one moves into a running spare, which
        is quicker than the start of a process; another spare follows.
        """
        if self._machine.pool.houses_gateway and home is not None:
            self.carry_out(self._machine.gateway_failed(home))
            return
        if home in self._shelters:  # it lives, and the gateway did not start there
            self._start_gateway(home, restarts=restarts)
            return
        self._start_gateway(self._lend(), restarts=restarts)

    # ---- ending --------------------------------------------------------------------------

    async def end(self) -> None:
        """Stop gateways first, so that clients go elsewhere; then close the logs."""
        self._ending = True
        for ending in (
            taken_from(self._gateways),
            self._coordinators.take_all(),
            taken_from(self._replicas) + taken_from(self._shelters),
        ):
            await asyncio.gather(*(self._end(child.ref) for child in ending))
        while starting := self._starting | self._coordinators.starting:
            for name in starting:
                await self._runtime.end_for_good(name)
            await self._runtime.sleep(RESPAWN_MS / 1000)

    async def _end(self, ref: ActorRef) -> None:
        try:
            await self._runtime.call(ref, "stop", timeout_ms=STOP_TIMEOUT_MS)
        except (PeerLost, PeerTimeout, KafkaError) as failure:
            log.warning("%s did not stop cleanly: %s", ref.name, failure)
        await self._runtime.dismiss(ref)

    # ---- describing ----------------------------------------------------------------------

    @property
    def refs(self) -> list[ActorRef]:
        """Every child that runs."""
        groups = (self._replicas, self._shelters, self._gateways)
        return [child.ref for group in groups for child in group.values()] + self._coordinators.refs

    async def partitions(self) -> list[PartitionStatus]:
        """Figures of every partition that is open, as far as the replicas answer."""
        asked = [replica.ref for replica in self._replicas.values()]
        told = await asyncio.gather(*map(self._figures, asked))
        self._silent = {
            one.name for one, statuses in zip(asked, told, strict=True) if statuses is None
        }
        return [status for statuses in told for status in statuses or ()]

    async def _figures(self, replica: ActorRef) -> list[PartitionStatus] | None:
        """What a replica tells of itself; None if it does not answer soon."""
        try:
            statuses: list[PartitionStatus] = await self._runtime.call(
                replica, "describe", timeout_ms=DESCRIBE_TIMEOUT_MS
            )
        except (PeerLost, PeerTimeout, KafkaError) as failure:
            log.info("%s does not describe itself: %s", replica.name, failure)
            return None
        return statuses

    def describe(self) -> list[ChildStatus]:
        """Every child, running or being started."""
        children = [
            _running(gateway.ref, gateway.restarts, "running", 0)
            for gateway in self._gateways.values()
        ]
        children.extend(self._coordinators.describe())
        for name, replica in self._replicas.items():
            slot = self._machine.pool.slots.get(name)
            if slot is not None:
                state = "running" if slot.partitions else "spare"
                if name in self._silent:
                    state = "silent"
                children.append(_running(replica.ref, slot.restarts, state, len(slot.partitions)))
        children.extend(
            _running(shelter.ref, shelter.restarts, "host", 0)
            for shelter in self._shelters.values()
        )
        starting = self._starting | self._coordinators.starting
        children.extend(
            ChildStatus(name, role, 0, "", "starting", 0) for name, role in starting.items()
        )
        return children


def _running(ref: ActorRef, restarts: int, state: str, partitions: int) -> ChildStatus:
    return ChildStatus(ref.name, ref.role, ref.pid, ref.node_id, state, restarts, partitions)
