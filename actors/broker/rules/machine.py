"""Decides about a broker's partitions: which process opens each, and what each process is sent.

A partition replica on this broker goes through these phases:

| phase    | entered when                                | then                               |
|----------|---------------------------------------------|------------------------------------|
| assigned | it is in the metadata; its process was lost | opened as soon as its process runs |
| opening  | its process was sent OpenPartitions         | `opened` has the outcome           |
| open     | the log is open, as a new incarnation       | reported to the controller         |
| failed   | it could not be opened, or its disk failed  | retried after a delay              |

Once an open replica's incarnation is in the metadata, its process is sent the leadership. After the
acknowledgement gateways get the route, which says whether the replica leads or follows. The route
is removed when the process is lost or another broker takes over the leadership; it then returns as
a follower's route.
"""

from __future__ import annotations

from collections.abc import Iterable

from raylog.actors import incarnations
from raylog.actors.backoff import Backoff
from raylog.actors.broker.rules.directories import directory_name, is_partition
from raylog.actors.broker.rules.effects import ConfigurePartitions, Effect, EndReplica, RetryLater
from raylog.actors.broker.rules.held import Leaving, LocalPartition
from raylog.actors.broker.rules.held import Phase as Phase
from raylog.actors.broker.rules.pending_effects import PendingEffects
from raylog.actors.broker.rules.pool import ReplicaPool, ReplicaSlot
from raylog.actors.broker.rules.reconcile_queue import ReconcileQueue
from raylog.actors.broker.rules.topic_configs import config_of, grown
from raylog.actors.common_messages import (
    OpenedPartition,
    OpenPartition,
    PartitionKey,
    PartitionLeadership,
    PartitionStatus,
    Route,
    TopicConfig,
    TopicId,
)
from raylog.actors.config import BrokerSettings, ResourceType
from raylog.actors.controller.messages import MetadataUpdate, OpenedReplica
from raylog.actors.coordinator_kinds import KIND_OF_TOPIC
from raylog.actors.metadata.image import MetadataImage, PartitionState
from raylog.actors.metadata.records import (
    NO_LEADER,
    ConfigChanged,
    PartitionChanged,
    PartitionCreated,
    TopicDeleted,
)

RETRY_OPEN_MS = 100
"""After the first failure of a log; it doubles with each, up to RETRY_OPEN_MS_MAX."""
RETRY_OPEN_MS_MAX = 5_000


class BrokerMachine:
    """The partitions of one broker, compared with its copy of the metadata.

    Handlers take an event and return effects. Partitions are not touched before `begin`.
    """

    def __init__(
        self,
        cluster_id: str,
        broker_id: int,
        settings: BrokerSettings,
        pool: ReplicaPool,
        *,
        topics_directory: str,
        incarnation: str,
    ) -> None:
        self.image = MetadataImage()
        self.is_caught_up = False
        """Whether the image is as new as what the last process sent its children."""
        self.partitions: dict[PartitionKey, LocalPartition] = {}
        self.offline: set[PartitionKey] = set()
        """Partitions that failed and are not open again."""
        self.pool = pool
        self.cluster_id = cluster_id
        self.broker_id = broker_id
        self._settings = settings
        self._topics_directory = topics_directory
        self._incarnation = incarnation
        self._openings = 0
        self._replica_starts = Backoff()
        self._leaving: dict[str, Leaving] = {}
        """Directories to be removed or set aside."""
        self._reconcile_queue = ReconcileQueue()
        """Partitions that changed in the metadata and are to be compared."""
        self._begun = False

    # ---- events --------------------------------------------------------------------------

    def begin(self, adopted: Iterable[tuple[str, list[PartitionStatus]]] = ()) -> list[Effect]:
        """Start with the metadata up to date: adopt what processes have open, and open the rest.

        `adopted` are processes of the pool that survived the last broker process, with their open
        partitions. The settings of their topics may have changed meanwhile.
        """
        self._begun = True
        pending = PendingEffects()
        for name, statuses in adopted:
            slot = self.pool.slots.get(name)
            if slot is not None:  # else it was lost meanwhile
                for status in statuses:
                    self._adopt(slot, status, pending)
        held = {topic_id for topic_id, _ in self.partitions}
        self._reconcile_all(pending)
        self._staff(pending)
        return [*pending.effects(), *self._configured(held, pending), *self._reconcile_queue.rest()]

    def apply(self, update: MetadataUpdate, whole: MetadataImage | None = None) -> list[Effect]:
        """Apply committed metadata; `whole` is the image that a snapshot's parts make up."""
        assert (whole is not None) == (update.from_offset == -1), "a snapshot is decoded first"
        pending = PendingEffects()
        fresh = True
        if whole is not None:
            for key in self._reconcile_queue.all():  # carry out earlier records first
                self._reconcile(key, pending)
            self.image.become(whole)
            pending.configs.clear()
        else:
            fresh = self.image.apply_update(*update[:3])
        if not fresh or not self._begun:
            return []
        if whole is not None:
            self._reconcile_all(pending)
            changed = set(self.image.topics)
        else:
            changed = self._take_in(update, pending)
        self._staff(pending)
        configured = self._configured(changed, pending)
        return [*pending.effects(), *configured, *self._surplus(), *self._reconcile_queue.rest()]

    def go_on(self) -> list[Effect]:
        """Compare more of the queued partitions with the metadata."""
        self._reconcile_queue.came()
        pending = PendingEffects()
        self._reconcile_some((), pending)
        self._staff(pending)
        return [*pending.effects(), *self._surplus(), *self._reconcile_queue.rest()]

    def replica_ready(self, name: str, instance: str, address: str) -> list[Effect]:
        """Open the partitions that waited for this Replica process, which now runs."""
        slot = self.pool.slots.get(name)
        if slot is None:
            return [EndReplica(name)]
        slot.instance, slot.address = instance, address
        pending = PendingEffects()
        self._reconcile_some(sorted(slot.partitions), pending)
        self._staff(pending)
        return [*pending.effects(), *self._surplus(), *self._reconcile_queue.rest()]

    def replica_lost(self, name: str, now_ms: float) -> list[Effect]:
        """Give everything that a lost Replica process held to another one."""
        pending = PendingEffects()
        for directory, leaving in list(self._leaving.items()):
            if leaving.holder == name:
                self._let_go(directory, pending, keep=leaving.keep)
        slot = self.pool.remove(name)
        if slot is None:
            return pending.effects()
        if slot.partitions:
            self._succeed(slot, pending)
        self._staff(pending)
        return pending.effects(self._replica_starts.lost(now_ms))

    def colocate_gateway(self) -> list[Effect]:
        """Start the gateway in a Replica process."""
        pending = PendingEffects()
        self._staff(pending)
        return pending.effects()

    def gateway_ready(self, home: str) -> list[Effect]:
        """Record that the gateway runs in that process."""
        pending = PendingEffects()
        if self.pool.home in (None, home):
            self.pool.home, self.pool.gateway_runs = home, True
            self._staff(pending)
        return pending.effects()

    def gateway_failed(self, home: str) -> list[Effect]:
        """Record that the gateway could not start in that process, or ended with it."""
        pending = PendingEffects()
        if self.pool.home == home:
            self.pool.lose_home()
            self._staff(pending)
        return pending.effects()

    def opened(self, name: str, outcomes: list[OpenedPartition]) -> list[Effect]:
        """Handle a Replica process's answer to OpenPartitions."""
        pending = PendingEffects()
        for outcome in outcomes:
            key = (outcome.topic_id, outcome.partition)
            local = self.partitions.get(key)
            if local is None or local.slot != name or local.phase is not Phase.OPENING:
                continue  # deleted or moved to another process meanwhile
            if outcome.error is None:
                local.phase = Phase.OPEN
                local.whole = outcome.whole
                self.offline.discard(key)
            else:
                self._fail(key, local, pending)
            self._reconcile(key, pending)
        return [*pending.effects(), *self._retry_later(pending.losses)]

    def failed(self, name: str, keys: Iterable[PartitionKey]) -> list[Effect]:
        """Fail logs that their process closed after a disk failure: others lead; retry later."""
        pending = PendingEffects()
        for key in keys:
            local = self.partitions.get(key)
            if local is not None and local.slot == name and local.phase is Phase.OPEN:
                self._fail(key, local, pending)
                self._reconcile(key, pending)
        return [*pending.effects(), *self._retry_later(pending.losses)]

    def _fail(self, key: PartitionKey, local: LocalPartition, pending: PendingEffects) -> None:
        local.phase = Phase.FAILED
        self.offline.add(key)
        local.failures += 1
        pending.losses.append(key)

    def _retry_later(self, failed: Iterable[PartitionKey]) -> list[Effect]:
        """Retry soon, because reopening repairs damage, then less and less often."""
        known = [local for key in failed if (local := self.partitions.get(key)) is not None]
        waits = [RETRY_OPEN_MS << min(local.failures - 1, 16) for local in known]
        return [RetryLater(min(*waits, RETRY_OPEN_MS_MAX))] if waits else []

    def led(self, name: str, leaderships: list[PartitionLeadership]) -> list[Effect]:
        """Record that a Replica process has acknowledged leaderships."""
        pending = PendingEffects()
        for leadership in leaderships:
            key = (leadership.topic_id, leadership.partition)
            local = self.partitions.get(key)
            if local is not None and local.slot == name and local.sent_epochs is not None:
                local.led_epoch = max(local.led_epoch, leadership.leader_epoch)
                self._route(key, local, pending)
        return pending.effects()

    def retry(self) -> list[Effect]:
        """Retry to open the partitions that failed."""
        pending = PendingEffects()
        for key, local in list(self.partitions.items()):
            if local.phase is Phase.FAILED:
                local.phase = Phase.ASSIGNED
                self._reconcile(key, pending)
        return pending.effects()

    def removed(self, directories: Iterable[str]) -> list[Effect]:
        """Record that directories are removed: partitions that came back may be opened now."""
        pending = PendingEffects()
        for directory in directories:
            self._leaving.pop(directory, None)
        for key, local in list(self.partitions.items()):
            if local.phase is Phase.ASSIGNED:
                self._reconcile(key, pending)
        return pending.effects()

    def registered(self) -> list[Effect]:
        """Handle a new broker epoch: reports sent under the old one may be lost, so repeat them."""
        pending = PendingEffects()
        for key, local in list(self.partitions.items()):
            local.reported = False
            self._reconcile(key, pending)
        return pending.effects()

    # ---- queries -------------------------------------------------------------------------

    def routes(self) -> list[Route]:
        """Return all routes, for a gateway that has none yet."""
        return [
            self._route_of(key, local)
            for key, local in self.partitions.items()
            if local.routed_epoch >= 0
        ]

    def leader_addresses(self, keys: Iterable[PartitionKey]) -> list[str]:
        """Return the link address of each partition's leader process here, or ""."""
        found = []
        for key in keys:
            local = self.partitions.get(key)
            leads = local is not None and local.routed_epoch >= 0 and local.routed_leader
            found.append(self.pool.slots[local.slot].address if local and leads else "")
        return found

    @property
    def is_settled(self) -> bool:
        """Whether every log is known to the controller, or cannot be opened."""
        return (
            self._begun
            and not self._reconcile_queue
            and all(
                local.phase is Phase.FAILED
                or (local.phase is Phase.OPEN and self._known_incarnation(key) == local.incarnation)
                for key, local in self.partitions.items()
            )
        )

    @property
    def serves(self) -> bool:
        """Whether every partition that this broker leads and can open has a route."""
        return self.is_settled and all(
            local.phase is Phase.FAILED or self._is_served(key, local)
            for key, local in self.partitions.items()
        )

    def strays(self, names: Iterable[str], held: Iterable[PartitionStatus]) -> list[str]:
        """Return the named directories that are strays: of no partition here, and not open."""
        known = {
            directory_name(self.image.topics[topic_id].name, (topic_id, index))
            for topic_id, index, _ in self.image.partitions_on(self.broker_id)
        }
        opened = {directory_name(one.topic, (one.topic_id, one.partition)) for one in held}
        found = sorted({name for name in names if is_partition(name)} - known - opened)
        strays = [f"{self._topics_directory}/{name}" for name in found]
        self._leaving.update(dict.fromkeys(strays, Leaving("", True)))
        return strays

    # ---- partitions ----------------------------------------------------------------------

    def _reconcile_all(self, pending: PendingEffects) -> None:
        """Compare everything: after a snapshot, or at the start.

        Partitions that are no longer here were not seen to be removed, so they are kept as strays.
        """
        wanted = {one[:2]: None for one in self.image.partitions_on(self.broker_id)}
        for key in [key for key in self.partitions if key not in wanted]:
            self._retire(key, pending, keep=True)
        for local in self.partitions.values():
            local.reported = False  # records between may be missing, as below
        self._reconcile_some(wanted, pending)

    def _take_in(self, update: MetadataUpdate, pending: PendingEffects) -> set[TopicId]:
        """Reconcile the partitions that the records change.

        Returns the topics whose settings or number of partitions may have changed.
        """
        touched: dict[PartitionKey, None] = {}
        configured = grown(update.records)
        deleted: set[TopicId] = set()
        for record in update.records:
            match record:
                case PartitionCreated() | PartitionChanged():
                    key = (record.topic_id, record.partition)
                    touched[key] = None
                    if record.replicas is not None and key in self.partitions:
                        self.partitions[key].reported = False  # a removed replica is forgotten
                case TopicDeleted():
                    deleted.add(record.topic_id)
                case ConfigChanged():
                    configured.update(self._topics_of(record))
                case _:
                    pass
        if deleted:
            touched.update(dict.fromkeys(key for key in self.partitions if key[0] in deleted))
        self._reconcile_some(touched, pending)
        return configured

    def _reconcile_some(self, keys: Iterable[PartitionKey], pending: PendingEffects) -> None:
        """Queue these partitions, and reconcile as many as one turn may; `go_on` does the rest."""
        self._reconcile_queue.add(keys)
        for key in self._reconcile_queue.some():
            self._reconcile(key, pending)

    def _reconcile(self, key: PartitionKey, pending: PendingEffects) -> None:
        """Move one partition one step closer to the state in the metadata."""
        state = self.image.partition(*key)
        if state is None or self.broker_id not in state.replicas:
            self._retire(key, pending, keep=False)  # because of a record that this broker has seen
            return
        local = self.partitions.get(key)
        if local is None:
            local = self._assign(key, pending)
        slot = self.pool.slots[local.slot]
        is_blank = self._directory(local.topic, key) not in self._leaving
        if local.phase is Phase.ASSIGNED and slot.is_ready and is_blank:
            self._open(key, local, slot, pending)
        if local.phase is Phase.OPEN:
            self._report_or_lead(key, local, state, pending)
        self._route(key, local, pending)

    def _assign(self, key: PartitionKey, pending: PendingEffects) -> LocalPartition:
        topic = self.image.topics[key[0]].name
        dedicated = self._config(key[0], pending).config["raylog.replica.dedicated"] == "true"
        known = set(self.pool.slots)
        slot = self.pool.place(key, dedicated=dedicated, internal=topic in KIND_OF_TOPIC)
        if slot.name not in known:
            pending.spawns.append(slot)
        local = self.partitions[key] = LocalPartition(topic, slot.name)
        return local

    def _adopt(self, slot: ReplicaSlot, status: PartitionStatus, pending: PendingEffects) -> None:
        """Take over a log that a surviving process has open."""
        key = (status.topic_id, status.partition)
        slot.partitions.add(key)
        known = self._known_incarnation(key)
        same = known is not None and known.startswith(f"{slot.instance}@")
        self.partitions[key] = LocalPartition(
            topic=status.topic,
            slot=slot.name,
            phase=Phase.OPEN,
            incarnation=known if known is not None and same else self._new_incarnation(slot),
        )
        self.partitions[key].whole = status.whole
        if status.offline:
            self._fail(key, self.partitions[key], pending)

    def _open(
        self, key: PartitionKey, local: LocalPartition, slot: ReplicaSlot, pending: PendingEffects
    ) -> None:
        local.phase = Phase.OPENING
        local.incarnation = self._new_incarnation(slot)
        local.reported = False
        local.sent_epochs = None
        local.led_epoch = -1
        configured = self._config(key[0], pending)
        pending.opens.setdefault(slot.name, []).append(
            OpenPartition(
                topic_id=key[0],
                topic=local.topic,
                partition=key[1],
                directory=self._directory(local.topic, key),
                config=configured.config,
                settings=configured.settings,
                was_open=self._known_incarnation(key) is not None,
                noted=configured.noted,
                lacks=self._lacks(key),
            )
        )

    def _new_incarnation(self, slot: ReplicaSlot) -> str:
        """Name one opening of a log; the name begins with the process that has it open."""
        self._openings += 1
        return incarnations.name_of(slot.instance, self._incarnation, self._openings)

    def _report_or_lead(
        self,
        key: PartitionKey,
        local: LocalPartition,
        state: PartitionState,
        pending: PendingEffects,
    ) -> None:
        """Report a new incarnation until the metadata has it; then pass on the leadership."""
        if state.incarnations.get(self.broker_id) != local.incarnation:
            if not local.reported:
                local.reported = True
                pending.reports.append(OpenedReplica(*key, local.incarnation, local.whole))
            return
        epochs = (state.leader_epoch, state.partition_epoch)
        if local.sent_epochs == epochs:
            return
        local.sent_epochs = epochs
        pending.leads.setdefault(local.slot, []).append(
            PartitionLeadership(
                topic_id=key[0],
                partition=key[1],
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                replicas=state.replicas,
                isr=state.isr,
                incarnations=dict(state.incarnations),
            )
        )

    def _route(self, key: PartitionKey, local: LocalPartition, pending: PendingEffects) -> None:
        """Add or remove the route, as the metadata and the process require."""
        state = self.image.partition(*key)
        known = (
            state is not None
            and local.phase is Phase.OPEN
            and state.incarnations.get(self.broker_id) == local.incarnation
        )
        leads = known and state is not None and state.leader == self.broker_id
        if local.routed_epoch >= 0 and not (leads or (known and not local.routed_leader)):
            local.routed_epoch = -1
            pending.routes.removed.append(key)
        if not known or state is None or state.leader == NO_LEADER:
            return
        if local.led_epoch == state.leader_epoch > local.routed_epoch:
            local.routed_epoch = state.leader_epoch
            local.routed_leader = leads
            pending.routes.added.append(self._route_of(key, local))

    def _route_of(self, key: PartitionKey, local: LocalPartition) -> Route:
        return Route(
            topic_id=key[0],
            partition=key[1],
            leader_epoch=local.routed_epoch,
            replica_name=local.slot,
            replica_address=self.pool.slots[local.slot].address,
            directory=self._directory(local.topic, key),
            leads=local.routed_leader,
        )

    def _retire(self, key: PartitionKey, pending: PendingEffects, *, keep: bool) -> None:
        """Close a partition that is no longer here; its directory is removed or kept."""
        local = self.partitions.pop(key, None)
        if local is None:
            return
        self.offline.discard(key)
        directory = self._directory(local.topic, key)
        if local.routed_epoch >= 0:
            pending.routes.removed.append(key)
        if local.phase in (Phase.OPENING, Phase.OPEN):
            self._leaving[directory] = Leaving(local.slot, keep)
            pending.closes.setdefault((local.slot, keep), []).append((key, directory))
        elif directory not in self._leaving:
            self._let_go(directory, pending, keep=keep)
        self.pool.release(local.slot, key)

    def _let_go(self, directory: str, pending: PendingEffects, *, keep: bool) -> None:
        """Remove or set aside a directory that no process has open any more."""
        self._leaving[directory] = Leaving("", keep)
        (pending.strays if keep else pending.removals).append(directory)

    def _is_served(self, key: PartitionKey, local: LocalPartition) -> bool:
        state = self.image.partition(*key)
        assert state is not None, "a partition that left the metadata is retired"
        return state.leader != self.broker_id or local.routed_epoch == state.leader_epoch

    def _known_incarnation(self, key: PartitionKey) -> str | None:
        state = self.image.partition(*key)
        return None if state is None else state.incarnations.get(self.broker_id)

    def _lacks(self, key: PartitionKey) -> bool:
        state = self.image.partition(*key)
        return state is not None and self.broker_id in state.lacking

    # ---- processes -----------------------------------------------------------------------

    def _succeed(self, lost: ReplicaSlot, pending: PendingEffects) -> None:
        """Give all partitions of a lost process to one successor, preferably a spare."""
        slot = self.pool.spare(dedicated=lost.dedicated)
        if slot is None:
            slot = self.pool.add()
            pending.spawns.append(slot)
        slot.dedicated = lost.dedicated
        slot.restarts = lost.restarts + 1
        slot.partitions |= lost.partitions
        for key in sorted(lost.partitions):
            local = self.partitions[key]
            local.slot = slot.name
            local.phase = Phase.ASSIGNED
            pending.losses.append(key)
            self._reconcile(key, pending)

    def _staff(self, pending: PendingEffects) -> None:
        """Make sure that the gateway has a host; start spares once nothing waits for a process."""
        if self.pool.colocates_gateway and self.pool.home is None:
            self._colocate(pending)
        if self._begun and not self.pool.is_waited_for:
            pending.spawns.extend(self.pool.missing_spares())

    def _colocate(self, pending: PendingEffects) -> None:
        """Start the gateway in a running process, or as soon as there is one."""
        slot = self.pool.candidate()
        if slot is None:
            pending.spawns.append(self.pool.add())
        elif slot.is_ready:
            pending.home = self.pool.home = slot.name

    def _surplus(self) -> list[Effect]:
        """End processes that are not needed, once it is known which ones hold partitions."""
        is_known = self._begun and not self._reconcile_queue
        return [EndReplica(slot.name) for slot in self.pool.surplus()] if is_known else []

    # ---- settings and directories --------------------------------------------------------

    def _config(self, topic_id: TopicId, pending: PendingEffects) -> TopicConfig:
        found = pending.configs.get(topic_id)
        if found is None:
            found = config_of(self.image, self._settings, self.broker_id, topic_id)
            pending.configs[topic_id] = found
        return found

    def _topics_of(self, record: ConfigChanged) -> Iterable[TopicId]:
        """Return the topics here that a changed setting may affect."""
        if record.resource_type == ResourceType.TOPIC:
            topic_id = self.image.topic_ids.get(record.resource_name)
            return () if topic_id is None else (topic_id,)
        if record.resource_type == ResourceType.BROKER:
            return {key[0] for key in self.partitions}
        return ()

    def _configured(self, topics: set[TopicId], pending: PendingEffects) -> list[Effect]:
        """Send processes the settings of topics, with one effect per process."""
        by_process: dict[str, dict[TopicId, TopicConfig]] = {}
        if topics:
            for key, local in self.partitions.items():
                is_there = key[0] in topics and key[0] in self.image.topics
                if is_there and local.phase in (Phase.OPENING, Phase.OPEN):
                    by_process.setdefault(local.slot, {})[key[0]] = self._config(key[0], pending)
        return [ConfigurePartitions(name, list(each.values())) for name, each in by_process.items()]

    def _directory(self, topic: str, key: PartitionKey) -> str:
        return f"{self._topics_directory}/{directory_name(topic, key)}"
