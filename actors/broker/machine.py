"""What a broker does about its partitions: which process opens them, who is told what and when.

A partition replica on this broker goes through these phases:

| phase    | entered by                                  | then                               |
|----------|---------------------------------------------|------------------------------------|
| assigned | it is in the metadata; its process was lost | opened as soon as its process runs |
| opening  | its process was told to open the log        | `opened` says how it went          |
| open     | the log is open, as a new incarnation       | reported to the controller         |
| failed   | it could not be opened, or its disk failed  | tried again after a while          |

An open replica whose incarnation the metadata shows is told who leads; once it has taken that in,
gateways get the route, which says whether it leads or follows. A route is taken back as soon as the
process is lost, or another broker leads in its stead: it comes back as a follower's.
"""

from __future__ import annotations

from collections.abc import Iterable

from raylog.actors import incarnations
from raylog.actors.backoff import Backoff
from raylog.actors.broker.batch import Batch
from raylog.actors.broker.behind import Behind
from raylog.actors.broker.directories import directory_name, is_partition
from raylog.actors.broker.effects import ConfigurePartitions, Effect, EndReplica, RetryLater
from raylog.actors.broker.held import Leaving, LocalPartition
from raylog.actors.broker.held import Phase as Phase
from raylog.actors.broker.pool import ReplicaPool, ReplicaSlot
from raylog.actors.broker.topic_configs import config_of, grown
from raylog.actors.config import BrokerSettings, ResourceType
from raylog.actors.controller.api import MetadataUpdate, OpenedReplica
from raylog.actors.metadata.image import MetadataImage, PartitionState
from raylog.actors.metadata.records import (
    NO_LEADER,
    ConfigChanged,
    PartitionChanged,
    PartitionCreated,
    TopicDeleted,
)
from raylog.actors.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from raylog.actors.ports import (
    OpenedPartition,
    OpenPartition,
    PartitionKey,
    PartitionLeadership,
    PartitionStatus,
    Route,
    TopicConfig,
    TopicId,
)

RETRY_OPEN_MS = 100
"""After the first failure of a log; it doubles with each, up to RETRY_OPEN_MS_MAX."""
RETRY_OPEN_MS_MAX = 5_000
_INTERNAL_TOPICS = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)


class BrokerMachine:
    """The partitions of one broker, against its copy of the metadata.

    Handlers take an event and return effects. Nothing is done about partitions before `begin`.
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
        """Whether the image is as new as what children of the last process were told."""
        self.partitions: dict[PartitionKey, LocalPartition] = {}
        self.offline: set[PartitionKey] = set()
        """Those that failed and are not open again."""
        self.pool = pool
        self.cluster_id = cluster_id
        self.broker_id = broker_id
        self._settings = settings
        self._topics_directory = topics_directory
        self._incarnation = incarnation
        self._openings = 0
        self._replica_starts = Backoff()
        self._leaving: dict[str, Leaving] = {}
        """Directories on their way out."""
        self._behind = Behind()
        """Partitions of which the metadata has news."""
        self._begun = False

    # ---- events --------------------------------------------------------------------------

    def begin(self, adopted: Iterable[tuple[str, list[PartitionStatus]]] = ()) -> list[Effect]:
        """The metadata is caught up: take over what processes have open, open the rest.

        `adopted` are processes in the pool that survived the last broker process, with what they
        have open: their topics may have been given other settings meanwhile.
        """
        self._begun = True
        batch = Batch()
        for name, statuses in adopted:
            slot = self.pool.slots.get(name)
            if slot is not None:  # else it was lost meanwhile
                for status in statuses:
                    self._adopt(slot, status, batch)
        held = {topic_id for topic_id, _ in self.partitions}
        self._reconcile_all(batch)
        self._staff(batch)
        return [*batch.effects(), *self._configured(held, batch), *self._behind.rest()]

    def apply(self, update: MetadataUpdate, whole: MetadataImage | None = None) -> list[Effect]:
        """Committed metadata came; `whole` is what the parts of a snapshot add up to."""
        assert (whole is not None) == (update.from_offset == -1), "a snapshot is decoded first"
        batch = Batch()
        fresh = True
        if whole is not None:
            for key in self._behind.all():  # what it was seen to become, it becomes before
                self._reconcile(key, batch)
            self.image.become(whole)
            batch.configs.clear()
        else:
            fresh = self.image.apply_update(*update[:3])
        if not fresh or not self._begun:
            return []
        if whole is not None:
            self._reconcile_all(batch)
            changed = set(self.image.topics)
        else:
            changed = self._take_in(update, batch)
        self._staff(batch)
        told = self._configured(changed, batch)
        return [*batch.effects(), *told, *self._surplus(), *self._behind.rest()]

    def go_on(self) -> list[Effect]:
        """Look at more of the partitions of which the metadata has news."""
        self._behind.came()
        batch = Batch()
        self._reconcile_some((), batch)
        self._staff(batch)
        return [*batch.effects(), *self._surplus(), *self._behind.rest()]

    def replica_ready(self, name: str, instance: str, address: str) -> list[Effect]:
        """A Replica process runs; open what waits for it."""
        slot = self.pool.slots.get(name)
        if slot is None:
            return [EndReplica(name)]
        slot.instance, slot.address = instance, address
        batch = Batch()
        self._reconcile_some(sorted(slot.partitions), batch)
        self._staff(batch)
        return [*batch.effects(), *self._surplus(), *self._behind.rest()]

    def replica_lost(self, name: str, now_ms: float) -> list[Effect]:
        """A Replica process is gone: another takes all that it held."""
        batch = Batch()
        for directory, leaving in list(self._leaving.items()):
            if leaving.holder == name:
                self._let_go(directory, batch, keep=leaving.keep)
        slot = self.pool.remove(name)
        if slot is None:
            return batch.effects()
        if slot.partitions:
            self._succeed(slot, batch)
        self._staff(batch)
        return batch.effects(self._replica_starts.lost(now_ms))

    def house_gateway(self) -> list[Effect]:
        """The gateway is wanted, in a Replica process."""
        batch = Batch()
        self._staff(batch)
        return batch.effects()

    def gateway_ready(self, home: str) -> list[Effect]:
        """The gateway runs in that process."""
        batch = Batch()
        if self.pool.home in (None, home):
            self.pool.home, self.pool.gateway_runs = home, True
            self._staff(batch)
        return batch.effects()

    def gateway_failed(self, home: str) -> list[Effect]:
        """The gateway could not start in that process, or ended with it."""
        batch = Batch()
        if self.pool.home == home:
            self.pool.lose_home()
            self._staff(batch)
        return batch.effects()

    def opened(self, name: str, outcomes: list[OpenedPartition]) -> list[Effect]:
        """A Replica process answered OpenPartitions."""
        batch = Batch()
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
                self._fail(key, local, batch)
            self._reconcile(key, batch)
        return [*batch.effects(), *self._retry_later(batch.losses)]

    def failed(self, name: str, keys: Iterable[PartitionKey]) -> list[Effect]:
        """A Replica process has closed logs whose disk failed: others lead, then it tries again."""
        batch = Batch()
        for key in keys:
            local = self.partitions.get(key)
            if local is not None and local.slot == name and local.phase is Phase.OPEN:
                self._fail(key, local, batch)
                self._reconcile(key, batch)
        return [*batch.effects(), *self._retry_later(batch.losses)]

    def _fail(self, key: PartitionKey, local: LocalPartition, batch: Batch) -> None:
        local.phase = Phase.FAILED
        self.offline.add(key)
        local.failures += 1
        batch.losses.append(key)

    def _retry_later(self, failed: Iterable[PartitionKey]) -> list[Effect]:
        """Try again soon: what is damaged is repaired by that. If it does not help, less often."""
        known = [local for key in failed if (local := self.partitions.get(key)) is not None]
        waits = [RETRY_OPEN_MS << min(local.failures - 1, 16) for local in known]
        return [RetryLater(min(*waits, RETRY_OPEN_MS_MAX))] if waits else []

    def led(self, name: str, leaderships: list[PartitionLeadership]) -> list[Effect]:
        """A Replica process has taken in who leads."""
        batch = Batch()
        for told in leaderships:
            key = (told.topic_id, told.partition)
            local = self.partitions.get(key)
            if local is not None and local.slot == name and local.told is not None:
                local.led_epoch = max(local.led_epoch, told.leader_epoch)
                self._route(key, local, batch)
        return batch.effects()

    def retry(self) -> list[Effect]:
        """Try again to open what failed."""
        batch = Batch()
        for key, local in list(self.partitions.items()):
            if local.phase is Phase.FAILED:
                local.phase = Phase.ASSIGNED
                self._reconcile(key, batch)
        return batch.effects()

    def removed(self, directories: Iterable[str]) -> list[Effect]:
        """Directories are gone: partitions that have come back meanwhile may begin there anew."""
        batch = Batch()
        for directory in directories:
            self._leaving.pop(directory, None)
        for key, local in list(self.partitions.items()):
            if local.phase is Phase.ASSIGNED:
                self._reconcile(key, batch)
        return batch.effects()

    def registered(self) -> list[Effect]:
        """The broker has a new broker epoch: what was reported under the old one may be lost."""
        batch = Batch()
        for key, local in list(self.partitions.items()):
            local.reported = False
            self._reconcile(key, batch)
        return batch.effects()

    # ---- questions -----------------------------------------------------------------------

    def routes(self) -> list[Route]:
        """All routes, for a gateway that has none yet."""
        return [
            self._route_of(key, local)
            for key, local in self.partitions.items()
            if local.routed_epoch >= 0
        ]

    def leader_addresses(self, keys: Iterable[PartitionKey]) -> list[str]:
        """Link address of the process that leads each partition here; "" where none does."""
        found = []
        for key in keys:
            local = self.partitions.get(key)
            leads = local is not None and local.routed_epoch >= 0 and local.routed_leader
            found.append(self.pool.slots[local.slot].address if local and leads else "")
        return found

    @property
    def is_settled(self) -> bool:
        """Whether every log is open and known to the controller, or cannot be opened."""
        return (
            self._begun
            and not self._behind
            and all(
                local.phase is Phase.FAILED
                or (local.phase is Phase.OPEN and self._known_incarnation(key) == local.incarnation)
                for key, local in self.partitions.items()
            )
        )

    @property
    def serves(self) -> bool:
        """Whether every partition led here, as far as it can be opened, has a route."""
        return self.is_settled and all(
            local.phase is Phase.FAILED or self._is_served(key, local)
            for key, local in self.partitions.items()
        )

    def strays(self, names: Iterable[str], held: Iterable[PartitionStatus]) -> list[str]:
        """Of the directories named, those of no partition here that nobody has open: strays."""
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

    def _reconcile_all(self, batch: Batch) -> None:
        """Compare everything: after a snapshot, or at the start.

        What the metadata does not have here (any more) was not seen to go: it is kept as a stray.
        """
        wanted = {
            (topic_id, index): None
            for topic_id, index, _ in self.image.partitions_on(self.broker_id)
        }
        for key in [key for key in self.partitions if key not in wanted]:
            self._retire(key, batch, keep=True)
        for local in self.partitions.values():
            local.reported = False  # as below: what came between is not told
        self._reconcile_some(wanted, batch)

    def _take_in(self, update: MetadataUpdate, batch: Batch) -> set[TopicId]:
        """Reconcile what the records touch.

        Returns the topics whose settings may differ, or the number of partitions.
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
                        self.partitions[key].reported = False  # who is taken away is forgotten
                case TopicDeleted():
                    deleted.add(record.topic_id)
                case ConfigChanged():
                    configured.update(self._topics_of(record))
                case _:
                    pass
        if deleted:
            touched.update(dict.fromkeys(key for key in self.partitions if key[0] in deleted))
        self._reconcile_some(touched, batch)
        return configured

    def _reconcile_some(self, keys: Iterable[PartitionKey], batch: Batch) -> None:
        """Reconcile these, behind those that are waited for: so many now, the rest in `go_on`."""
        self._behind.add(keys)
        for key in self._behind.some():
            self._reconcile(key, batch)

    def _reconcile(self, key: PartitionKey, batch: Batch) -> None:
        """Bring one partition a step nearer to what the metadata says."""
        state = self.image.partition(*key)
        if state is None or self.broker_id not in state.replicas:
            self._retire(key, batch, keep=False)  # by a record that this broker has seen
            return
        local = self.partitions.get(key)
        if local is None:
            local = self._assign(key, batch)
        slot = self.pool.slots[local.slot]
        is_blank = self._directory(local.topic, key) not in self._leaving
        if local.phase is Phase.ASSIGNED and slot.is_ready and is_blank:
            self._open(key, local, slot, batch)
        if local.phase is Phase.OPEN:
            self._tell(key, local, state, batch)
        self._route(key, local, batch)

    def _assign(self, key: PartitionKey, batch: Batch) -> LocalPartition:
        topic = self.image.topics[key[0]].name
        dedicated = self._config(key[0], batch).config["raylog.replica.dedicated"] == "true"
        known = set(self.pool.slots)
        slot = self.pool.place(key, dedicated=dedicated, internal=topic in _INTERNAL_TOPICS)
        if slot.name not in known:
            batch.spawns.append(slot)
        local = self.partitions[key] = LocalPartition(topic, slot.name)
        return local

    def _adopt(self, slot: ReplicaSlot, status: PartitionStatus, batch: Batch) -> None:
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
            self._fail(key, self.partitions[key], batch)

    def _open(
        self, key: PartitionKey, local: LocalPartition, slot: ReplicaSlot, batch: Batch
    ) -> None:
        local.phase = Phase.OPENING
        local.incarnation = self._new_incarnation(slot)
        local.reported = False
        local.told = None
        local.led_epoch = -1
        configured = self._config(key[0], batch)
        batch.opens.setdefault(slot.name, []).append(
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
        """A name for one opening of a log: begins with the process that has it open."""
        self._openings += 1
        return incarnations.name_of(slot.instance, self._incarnation, self._openings)

    def _tell(
        self, key: PartitionKey, local: LocalPartition, state: PartitionState, batch: Batch
    ) -> None:
        """Report an opening until the metadata shows it; then pass on who leads."""
        if state.incarnations.get(self.broker_id) != local.incarnation:
            if not local.reported:
                local.reported = True
                batch.reports.append(OpenedReplica(*key, local.incarnation, local.whole))
            return
        epochs = (state.leader_epoch, state.partition_epoch)
        if local.told == epochs:
            return
        local.told = epochs
        batch.leads.setdefault(local.slot, []).append(
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

    def _route(self, key: PartitionKey, local: LocalPartition, batch: Batch) -> None:
        """Give or take back the route, as the metadata and the process have it."""
        state = self.image.partition(*key)
        known = (
            state is not None
            and local.phase is Phase.OPEN
            and state.incarnations.get(self.broker_id) == local.incarnation
        )
        leads = known and state is not None and state.leader == self.broker_id
        if local.routed_epoch >= 0 and not (leads or (known and not local.routed_leader)):
            local.routed_epoch = -1
            batch.routes.removed.append(key)
        if not known or state is None or state.leader == NO_LEADER:
            return
        if local.led_epoch == state.leader_epoch > local.routed_epoch:
            local.routed_epoch = state.leader_epoch
            local.routed_leader = leads
            batch.routes.added.append(self._route_of(key, local))

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

    def _retire(self, key: PartitionKey, batch: Batch, *, keep: bool) -> None:
        """A partition is not (or no longer) held here; its directory goes, or is kept."""
        local = self.partitions.pop(key, None)
        if local is None:
            return
        self.offline.discard(key)
        directory = self._directory(local.topic, key)
        if local.routed_epoch >= 0:
            batch.routes.removed.append(key)
        if local.phase in (Phase.OPENING, Phase.OPEN):
            self._leaving[directory] = Leaving(local.slot, keep)
            batch.closes.setdefault((local.slot, keep), []).append((key, directory))
        elif directory not in self._leaving:
            self._let_go(directory, batch, keep=keep)
        self.pool.release(local.slot, key)

    def _let_go(self, directory: str, batch: Batch, *, keep: bool) -> None:
        """Nobody has a directory open any more that is on its way out."""
        self._leaving[directory] = Leaving("", keep)
        (batch.strays if keep else batch.removals).append(directory)

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

    def _succeed(self, lost: ReplicaSlot, batch: Batch) -> None:
        """Give all partitions of a lost process to one successor, a spare if there is one."""
        slot = self.pool.spare(dedicated=lost.dedicated)
        if slot is None:
            slot = self.pool.add()
            batch.spawns.append(slot)
        slot.dedicated = lost.dedicated
        slot.restarts = lost.restarts + 1
        slot.partitions |= lost.partitions
        for key in sorted(lost.partitions):
            local = self.partitions[key]
            local.slot = slot.name
            local.phase = Phase.ASSIGNED
            batch.losses.append(key)
            self._reconcile(key, batch)

    def _staff(self, batch: Batch) -> None:
        """See that the gateway has a home; start missing spares once nobody waits for a start."""
        if self.pool.houses_gateway and self.pool.home is None:
            self._house(batch)
        if self._begun and not self.pool.is_waited_for:
            batch.spawns.extend(self.pool.missing_spares())

    def _house(self, batch: Batch) -> None:
        """Start the gateway in a process that runs; if there is none, it follows one's start."""
        slot = self.pool.candidate()
        if slot is None:
            batch.spawns.append(self.pool.add())
        elif slot.is_ready:
            batch.home = self.pool.home = slot.name

    def _surplus(self) -> list[Effect]:
        """End processes that nobody needs, once it is known which hold partitions."""
        is_known = self._begun and not self._behind
        return [EndReplica(slot.name) for slot in self.pool.surplus()] if is_known else []

    # ---- settings and directories --------------------------------------------------------

    def _config(self, topic_id: TopicId, batch: Batch) -> TopicConfig:
        found = batch.configs.get(topic_id)
        if found is None:
            found = config_of(self.image, self._settings, self.broker_id, topic_id)
            batch.configs[topic_id] = found
        return found

    def _topics_of(self, record: ConfigChanged) -> Iterable[TopicId]:
        """The topics here that a changed setting may concern."""
        if record.resource_type == ResourceType.TOPIC:
            topic_id = self.image.topic_ids.get(record.resource_name)
            return () if topic_id is None else (topic_id,)
        if record.resource_type == ResourceType.BROKER:
            return {key[0] for key in self.partitions}
        return ()

    def _configured(self, topics: set[TopicId], batch: Batch) -> list[Effect]:
        """Tell the processes the settings of topics, one effect a process."""
        told: dict[str, dict[TopicId, TopicConfig]] = {}
        if topics:
            for key, local in self.partitions.items():
                is_there = key[0] in topics and key[0] in self.image.topics
                if is_there and local.phase in (Phase.OPENING, Phase.OPEN):
                    told.setdefault(local.slot, {})[key[0]] = self._config(key[0], batch)
        return [ConfigurePartitions(name, list(each.values())) for name, each in told.items()]

    def _directory(self, topic: str, key: PartitionKey) -> str:
        return f"{self._topics_directory}/{directory_name(topic, key)}"
