"""Shell of a broker: owns its data directory and its children, and registers it with the cluster.

`start` locks and checks the directory, binds the ports, opens the voter's log and returns. Then, in
the background, the broker finds children that outlived its last process, makes sure that there is a
controller, registers, follows the metadata until it contains the registration, opens partitions and
lets gateways serve. `ready` waits for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import socket
from functools import partial
from pathlib import Path

from raylog.actors.broker.child_processes import ChildProcesses
from raylog.actors.broker.controller_handle import ControllerHandle
from raylog.actors.broker.data_directory import open_directory
from raylog.actors.broker.describing import log_dir
from raylog.actors.broker.followed import FollowedMetadata
from raylog.actors.broker.handing_over import hand_over
from raylog.actors.broker.health import HealthListener, Standing, standing_of
from raylog.actors.broker.identity import Past
from raylog.actors.broker.joining import keep_joining
from raylog.actors.broker.listeners import on_this_node, read_listeners, release, reserve_all
from raylog.actors.broker.messages import BrokerHealth, BrokerStatus
from raylog.actors.broker.refused_settings import RefusedSettings
from raylog.actors.broker.rules.cleaning_turns import CleaningTurns
from raylog.actors.broker.rules.effects import KeepStrays
from raylog.actors.broker.rules.machine import BrokerMachine
from raylog.actors.broker.rules.pool import pool_of
from raylog.actors.broker.rules.throttle_shares import ThrottleShares
from raylog.actors.broker.sampling import BrokerMetrics, Parts
from raylog.actors.broker.spec import broker_spec as broker_spec
from raylog.actors.broker.start_notes import note_end, note_start
from raylog.actors.broker.succession import Succession
from raylog.actors.broker.voter import Voter
from raylog.actors.broker.voter_membership import VoterMembership
from raylog.actors.build import BUILD
from raylog.actors.common_messages import LogDirStatus, PartitionKey
from raylog.actors.config import BrokerSettings
from raylog.actors.controller.messages import (
    AlterPartitions,
    BrokerHeartbeat,
    BrokerHeartbeatAnswer,
    IsrChange,
    IsrOutcome,
    MetadataUpdate,
    ProducerIdBlock,
    RegisterBroker,
)
from raylog.actors.metadata.entries import LogSnapshot
from raylog.actors.metadata.followed import DirectoryHistory, MetadataRefused
from raylog.actors.metadata.voting import (
    JoinVoters,
    NewEpoch,
    VoterAppend,
    VoterAppended,
    VoterLog,
    VoterState,
)
from raylog.actors.metrics.samples import Sample
from raylog.actors.names import GATEWAY
from raylog.actors.peers.metadata_copies import decoded
from raylog.actors.places import Place
from raylog.actors.remote import Controller
from raylog.actors.runtime.base import (
    ActorGone,
    ActorRef,
    LinkRequest,
    PeerLost,
    PeerTimeout,
    Runtime,
)
from raylog.actors.runtime.processes import cores_here
from raylog.wire.errors import (
    BrokerNotAvailable,
    InvalidRequest,
    KafkaError,
    NotController,
    StaleBrokerEpoch,
)

log = logging.getLogger(__name__)
FOLLOW_WAIT_MS = 30_000
CALL_TIMEOUT_MS = 5_000


class BrokerActor:
    """Serves the methods listed in `broker.messages`, and those of the voter."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        cluster_id: str,
        broker_id: int,
        data: str,
        settings: dict[str, str],
        broker_ids: list[int],
        initial_voters: list[tuple[int, str]],
        place: Place | None = None,
    ) -> None:
        self._runtime = runtime
        self._cluster_id = cluster_id
        self._broker_id = broker_id
        self._path = Path(data).absolute()
        self._settings = BrokerSettings(settings)
        self._broker_ids = broker_ids
        self._initial_voters = tuple((one, name) for one, name in initial_voters)
        self._listeners = read_listeners(self._settings)
        self._health = HealthListener(runtime, self._settings, self._standing, self.scrape)
        self._incarnation = f"{runtime.random.getrandbits(64):016x}"
        self._controller = ControllerHandle(runtime, cluster_id, self._ensure_controller)
        self._succession = Succession(
            self._runtime,
            self._controller,
            cluster_id=self._cluster_id,
            broker_id=self._broker_id,
            broker_ids=self._broker_ids,
            settings=self._settings.given,
            heartbeat_interval_ms=self._settings.number("broker.heartbeat.interval.ms"),
            voters=self._voter_ids,
            place=place,
        )
        self._refused_settings = RefusedSettings()
        self._broker_epoch, self._state = -1, "starting"
        self._failure: Exception | None = None
        self._place = place
        self._membership: VoterMembership | None = None
        self._reservations: dict[str, socket.socket] = {}
        self._throttle_shares = ThrottleShares()
        self._cleaning_turns = CleaningTurns()
        self._serves, self._beat, self._ended = (asyncio.Event() for _ in range(3))
        self._is_open = False  # False until `start` is over: calls may arrive earlier

    # ---- life ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the directory and bind the ports; the rest happens in the background."""
        fsync = self._settings.flag("metadata.log.fsync")
        self._data = await open_directory(
            self._runtime,
            self._path,
            self._cluster_id,
            self._broker_id,
            self._initial_voters,
            fsync=fsync,
        )
        try:
            survivors = await self._open(fsync=fsync)
        except BaseException:
            await self.stop()
            raise
        self._is_open = True
        self._runtime.start(self._bring_up(survivors), "bring up")

    def _require_open(self) -> None:
        if not self._is_open:
            raise BrokerNotAvailable(f"broker {self._broker_id} is still {self._state}")

    async def _open(self, *, fsync: bool) -> list[ActorRef]:
        """Do all that can be refused; return the children that outlived the last process."""
        log.info("broker %d starts in %s", self._broker_id, self._path)
        self._membership = VoterMembership(
            self._runtime,
            self._data,
            fsync=fsync,
            heartbeat_interval_ms=self._settings.number("broker.heartbeat.interval.ms"),
        )
        self._followed = FollowedMetadata(self._runtime, self._data)
        self._last = self._data.last
        self._past = self._data.past()
        await note_start(self._runtime, self._data)
        self._create_children()
        survivors = await self._children.survivors()
        self._listeners = await on_this_node(self._runtime, self._listeners, self._settings)
        self._hold_ports(adopting=any(ref.role == GATEWAY for ref in survivors))
        await self._health.open(self._data)
        await self._metrics.open(self._settings)
        return survivors

    def _create_children(self) -> None:
        numbers = itertools.count(self._last.next_child)
        pool = pool_of(self._cluster_id, self._broker_id, self._settings, cores_here(), numbers)
        self._machine = BrokerMachine(
            self._cluster_id,
            self._broker_id,
            self._settings,
            pool,
            topics_directory=str(self._data.topics),
            incarnation=self._incarnation,
        )
        self._children = ChildProcesses(
            self._runtime,
            self._machine,
            self._data,
            self._controller,
            self._settings,
            numbers=numbers,
            place=self._place,
            progressed=self._progressed,
        )
        membership, starts = self._require_membership(), self._last.starts
        parts = Parts(
            self._machine, self._children, self._controller, membership, str(self._path), starts
        )
        self._metrics = BrokerMetrics(self._runtime, self._cluster_id, parts, self._standing)

    def _hold_ports(self, *, adopting: bool) -> None:
        kept = {} if self._last.clean else self._last.ports
        self._reservations = reserve_all(self._listeners.listening, kept, adopting=adopting)
        self._listeners = self._listeners.bound_to(self._reservations)
        bound = {one.listener: one.port for one in self._listeners.listening}
        self._data.remember_ports(self._last.ports | bound)

    async def _bring_up(self, survivors: list[ActorRef]) -> None:
        """Run everything between `start` and serving."""
        held = await self._children.adopt(survivors)
        self._children.start_gateways(self._listeners.listening, self._health.bound)
        if self._votes:
            await self._succession.begin()
        await keep_joining(self._runtime, self._join_cluster, self._refused)
        self._children.caught_up()
        statuses = [status for _, open_there in held for status in open_there]
        strays = self._machine.strays(self._runtime.disk.listdir(str(self._data.topics)), statuses)
        self._children.carry_out([KeepStrays(strays), *self._machine.begin(held)])
        self._runtime.start(self._heartbeats(), "heartbeats")
        while not self._is_ending:
            try:
                await self._take_in(await self._follow())
            except MetadataRefused as refused:
                await self._followed.wait(refused)

    def _refused(self, why: KafkaError | None) -> None:
        """Record the cluster's reason for refusing this broker, for `ready`; None once accepted."""
        self._failure = why
        if why is not None:
            self._serves.set()
        else:
            self._serves.clear()

    async def _join_cluster(self) -> None:
        """Register, and follow the metadata until it contains the registration."""
        await self._register()
        await self._follow_up()
        membership = self._require_membership()
        if membership.is_lost:
            log.warning("%s is new: the voter of broker %d is lost", self._path, self._broker_id)
            await membership.begin_anew()
            self._incarnation = f"{self._runtime.random.getrandbits(64):016x}"
            await self._register()
            await self._follow_up()

    async def _follow_up(self) -> None:
        while self._machine.image.offset <= self._broker_epoch:
            await self._take_in(await self._follow())

    async def ready(self, timeout_ms: int) -> None:
        """Wait until this broker serves; raise the reason if it does not."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._serves.wait(), timeout_ms / 1000)
        if self._failure is not None:
            raise self._failure
        if not self._serves.is_set():
            why = self._controller.silence
            raise BrokerNotAvailable(
                f"broker {self._broker_id} is still {self._state}{': ' if why else ''}{why}"
            )

    def _standing(self) -> Standing:
        failure = "" if self._failure is None else str(self._failure)
        return standing_of(self._state, failure, self._machine, self._children, self._succession)

    async def health(self) -> BrokerHealth:
        """Report whether this broker serves, and why not."""
        self._require_open()
        return self._health.now()

    async def scrape(self) -> list[Sample]:
        """Collect the metrics of all processes here; one broker adds the controller's."""
        self._require_open()
        return await self._metrics.scrape()

    async def ping(self) -> dict[str, object]:
        """Report the process id, the state and the build."""
        return {"pid": os.getpid(), "state": self._state, "build": BUILD}

    def link_received(self, request: LinkRequest) -> None:
        """Refuse the request: a broker serves none over links."""
        request.fail(InvalidRequest(f"a broker serves no {request.kind} over links"))

    def link_lost(self, peer: int) -> None:
        """Do nothing: a broker keeps no link state."""

    async def shutdown(self) -> None:
        """Hand leadership over, close all logs, record the clean shutdown. A second call waits."""
        if self._is_ending:
            await self._ended.wait()
            return
        self._state = "shutting down"
        try:
            if self._broker_epoch >= 0 and self._settings.flag("controlled.shutdown.enable"):
                ask = partial(self._heartbeat, -1, wants_shutdown=True)
                await hand_over(self._runtime, ask, self._succession, self._ensure_controller)
            await self._children.end()
            await self._followed.note_now()
            await note_end(self._runtime, self._data)
        finally:
            self._state = "shut down"
            self._ended.set()

    async def stop(self) -> None:
        """Close the directory. Without `shutdown` before it, the broker counts as crashed."""
        self._state = "shut down"
        self._ended.set()
        await self._succession.withdraw()
        self._controller.close()
        membership, self._membership = self._membership, None  # `stop` may be called twice
        if membership is not None:
            membership.close()
        release(self._reservations)
        self._health.close()
        self._data.close()

    @property
    def _is_ending(self) -> bool:
        return self._state in ("shutting down", "shut down")

    # ---- the cluster ---------------------------------------------------------------------

    async def _ensure_controller(self) -> None:
        """Find the controller, or start one if this broker may."""
        await self._succession.missed(may_start=self._votes and not self._is_ending)

    @property
    def _voter(self) -> Voter | None:
        """This broker's copy of the metadata log."""
        return None if self._membership is None else self._membership.voter

    @property
    def _votes(self) -> bool:
        """Whether that copy votes."""
        return self._membership is not None and self._membership.votes

    def _require_membership(self) -> VoterMembership:
        if self._membership is None:
            raise BrokerNotAvailable(f"broker {self._broker_id} has not opened its directory yet")
        return self._membership

    def _voter_ids(self) -> list[int]:
        """Ids of the brokers that hold the metadata log, as far as this broker knows."""
        return [broker_id for broker_id, _ in self._require_membership().voters]

    async def _register(self) -> None:
        first = self._listeners.advertised[0]
        request = RegisterBroker(
            broker_id=self._broker_id,
            cluster_id=self._cluster_id,
            directory_id=self._data.identity.directory_id,
            incarnation=self._incarnation,
            host=first.host,
            port=first.port,
            rack=self._settings.raw("broker.rack"),
            build=BUILD,
            followed=self._followed.latest,
            endpoints=self._listeners.advertised,
            **self._past._asdict(),
        )
        self._data.note_asking(self._incarnation)
        self._broker_epoch = await self._controller.insist(
            Controller.register_broker, request, timeout_ms=CALL_TIMEOUT_MS
        )
        log.info("broker %d has broker epoch %d", self._broker_id, self._broker_epoch)
        self._children.broker_epoch = self._broker_epoch
        self._data.remember_epoch(self._broker_epoch)

    async def _register_anew(self) -> None:
        """Register again after the controller has forgotten the broker epoch."""
        self._past = Past(self._data.last.broker_epoch, False, self._last.clean)
        self._incarnation = f"{self._runtime.random.getrandbits(64):016x}"
        try:
            await self._register()
        except MetadataRefused as refused:
            self._followed.refused(refused)
            self._broker_epoch = -1  # reports under it may be lost: register again
        else:
            self._children.carry_out(self._machine.registered())

    async def _follow(self) -> MetadataUpdate:
        request = self._followed.asking(self._machine.image, FOLLOW_WAIT_MS)
        return await self._controller.insist(
            Controller.follow, request, timeout_ms=FOLLOW_WAIT_MS + CALL_TIMEOUT_MS
        )

    async def _take_in(self, update: MetadataUpdate) -> None:
        """Apply metadata, pass it on to the children, react to it; raises MetadataRefused."""
        if update.from_offset == update.to_offset:
            return
        whole = None
        if update.from_offset == -1:
            _, offset, records, parts = update
            whole = await decoded(self._runtime, offset, parts, records)
            self._followed.check(whole)
        effects = self._machine.apply(update, whole)
        self._followed.applied(self._machine.image)
        self._refused_settings.tell(self._machine.image)
        self._children.tell_metadata(update)
        self._require_membership().learned(self._machine.image.voters, self._machine.image.offset)
        self._children.carry_out(effects)

    async def _heartbeats(self) -> None:
        interval_ms = self._settings.number("broker.heartbeat.interval.ms")
        while not self._is_ending:
            self._beat.clear()
            settled = self._machine.is_settled
            try:
                await self._heartbeat(self._machine.image.offset if settled else -1)
            except StaleBrokerEpoch as stale:
                log.warning("registering again: %s", stale)
                await self._register_anew()
            except MetadataRefused as refused:
                self._followed.refused(refused)
            except (PeerLost, PeerTimeout, ActorGone, NotController) as lost:
                log.info("no controller answers: %s", lost)
                await self._ensure_controller()
            except KafkaError as failure:
                log.info("heartbeat: %s", failure)
            timer = self._runtime.call_later(interval_ms, self._beat.set)
            await self._beat.wait()
            timer.cancel()

    async def _heartbeat(
        self, offset: int, *, wants_shutdown: bool = False
    ) -> BrokerHeartbeatAnswer:
        """Send one heartbeat. Between the controller and a voter it also carries the lease."""
        membership, sent_ms = self._require_membership(), self._runtime.monotonic_ms()
        request = BrokerHeartbeat(self._broker_id, self._broker_epoch, offset, wants_shutdown)
        answer = await self._controller.heartbeat(
            membership.signed(request), self._succession.answer_within_ms
        )
        self._succession.heartbeat_answered(sent_ms, answer)
        membership.heartbeat_answered(answer)
        return answer

    def _progressed(self) -> None:
        """Check whether the broker serves now, or may ask to be unfenced."""
        if self._is_ending:
            return
        own = self._machine.image.brokers.get(self._broker_id)
        if own is None or own.fenced or own.broker_epoch != self._broker_epoch:
            if self._machine.is_settled:
                self._beat.set()  # the heartbeat that unfences it is due now
            if self._state == "running":
                self._state = "fenced"
            return
        if self._state == "fenced":
            self._state = "running"
        if (
            self._state == "starting"
            and self._machine.serves
            and self._children.gateways_are_up_to_date
        ):
            self._state = "running"
            self._serves.set()
            log.info("broker %d serves on %s", self._broker_id, self._listeners)

    # ---- the metadata log ----------------------------------------------------------------

    async def history(self) -> DirectoryHistory:
        """Return what this broker's directory knows of the cluster."""
        self._require_open()
        history: DirectoryHistory = await self._runtime.run_blocking(self._data.history)
        return history

    async def voter_state(self) -> VoterState:
        """Return how far this broker's copy of the metadata log goes."""
        return self._require_membership().require_voter().state()

    async def voter_new_epoch(self, request: NewEpoch) -> VoterState:
        """Promise a controller epoch."""
        return await self._require_membership().require_voter().new_epoch(request)

    async def voter_join(self, request: JoinVoters) -> VoterState:
        """Start to follow the controller, so that this copy can become a voter."""
        return await self._require_membership().join(request)

    async def voter_fetch(self, epoch: int, offset: int) -> VoterLog:
        """Read a part of the metadata log."""
        return self._require_membership().require_voter().fetch(epoch, offset)

    async def voter_append(self, request: VoterAppend) -> VoterAppended:
        """Append to the metadata log."""
        appended = await self._require_membership().require_voter().append(request)
        if self._controller.written_by(request.epoch, request.controller):
            self._beat.set()  # the controller waits for this broker's heartbeats
        return appended

    async def voter_install(
        self, epoch: int, snapshot: LogSnapshot, controller: str, directory_id: str
    ) -> None:
        """Replace the beginning of the metadata log by a snapshot."""
        voter = self._require_membership().require_voter()
        await voter.install(epoch, snapshot, controller, directory_id)

    async def controller(self) -> str:
        """Return the name of the controller that this broker follows."""
        return self._controller.name

    async def last_heartbeat(self) -> tuple[float, int, int]:
        """Return `Succession.last_heartbeat`, unless metadata is refused (BrokerNotAvailable)."""
        self._followed.require_accepted()
        return self._succession.last_heartbeat()

    async def replace_controller(self) -> None:
        """Start the controller in a new process near this broker; raises PeerLost, PeerTimeout."""
        await self._succession.replace()

    # ---- for replicas --------------------------------------------------------------------

    async def locate_leaders(self, keys: list[PartitionKey]) -> list[str]:
        """Tell followers where to fetch: the link address of each partition's leader process."""
        return self._machine.leader_addresses(keys) if self._is_open else [""] * len(keys)

    async def partitions_failed(self, name: str, keys: list[PartitionKey]) -> None:
        """Handle partitions whose disk failed; a starting broker asks its children later."""
        if self._is_open:
            self._children.carry_out(self._machine.failed(name, keys))

    async def throttle_shares(self, name: str, leads: bool, follows: bool) -> tuple[int, int]:
        """Return how many Replica processes share each throttled rate, including this one."""
        return self._throttle_shares.used(name, leads, follows, self._runtime.monotonic_ms())

    async def cleaning_turn(self, name: str, dirty_ratio: float) -> bool:
        """Decide whether a Replica process may start or continue cleaning its dirtiest log."""
        return self._cleaning_turns.ask(name, dirty_ratio, self._runtime.monotonic_ms())

    async def cleaning_ended(self, name: str) -> None:
        """Record that a Replica process has finished cleaning a log."""
        self._cleaning_turns.end(name)

    async def alter_partitions(self, changes: list[IsrChange]) -> list[IsrOutcome]:
        """Propose ISR changes to the controller; raises what the call to it raises."""
        request = AlterPartitions(self._broker_id, self._broker_epoch, changes)
        return await self._controller.alter_partitions(request)

    # ---- for coordinators ----------------------------------------------------------------

    async def coordinator_address(self, role: str) -> str:
        """Return the link address of this broker's coordinator, or "" while it does not run."""
        return self._children.coordinators.address(role) if self._is_open else ""

    async def find_transaction_coordinator(self, transactional_id: str) -> tuple[int, str]:
        """Return broker id and link address of the coordinator of a transactional id."""
        self._require_open()
        return await self._children.coordinators.find_transaction_coordinator(transactional_id)

    async def allocate_producer_ids(self) -> ProducerIdBlock:
        """Get producer ids from the controller; raises CoordinatorNotAvailable if it is silent."""
        self._require_open()
        return await self._controller.allocate_producer_ids(self._broker_id, self._broker_epoch)

    # ---- describing ----------------------------------------------------------------------

    async def describe(self) -> BrokerStatus:
        """Describe this broker and its children."""
        self._require_open()
        (disk,) = await self.describe_log_dirs()
        first = self._listeners.advertised[0]
        return BrokerStatus(
            broker_id=self._broker_id,
            cluster_id=self._cluster_id,
            broker_epoch=self._broker_epoch,
            host=first.host,
            port=first.port,
            directory=str(self._path),
            pid=os.getpid(),
            state=self._state,
            restarts=self._last.starts,
            metadata_offset=self._machine.image.offset,
            is_voter=self._votes,
            children=self._children.describe(),
            partitions=disk.partitions,
            strays=await self._runtime.run_blocking(self._data.strays),
            total_bytes=disk.total_bytes,
            usable_bytes=disk.usable_bytes,
            vote_trouble="" if self._membership is None else self._membership.trouble,
            listening=self._listeners.listening,
            endpoints=self._listeners.advertised,
            http=self._health.address,
        )

    async def describe_log_dirs(self) -> list[LogDirStatus]:
        """Describe the data directory and the partitions in it."""
        self._require_open()
        return [await log_dir(self._runtime, str(self._path), await self._children.partitions())]
