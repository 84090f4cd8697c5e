"""Decides who leads a partition and who is in sync when something happens.

The rules for a single change are in `changes`. This module knows which partitions an event affects,
and which changes leaders may propose (KIP-497, KIP-903).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from raylog.actors.common_messages import PartitionKey, TopicId
from raylog.actors.config import BrokerConfigs, BrokerSettings, ResourceType
from raylog.actors.controller.messages import (
    AlterPartitions,
    IsrChange,
    IsrOutcome,
    OpenedReplica,
)
from raylog.actors.controller.rules.changes import (
    Election,
    ElectionSettings,
    PartitionChange,
    without,
)
from raylog.actors.controller.rules.decision import Decision
from raylog.actors.controller.rules.index import PartitionIndex, Why
from raylog.actors.incarnations import is_earlier
from raylog.actors.metadata.configs import broker_configs
from raylog.actors.metadata.features import ELIGIBLE_LEADERS
from raylog.actors.metadata.image import MetadataImage, PartitionState
from raylog.actors.metadata.records import NO_LEADER, ConfigChanged, PartitionChanged, Record
from raylog.wire.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    NewLeaderElected,
    NotController,
    UnknownTopicId,
    UnknownTopicOrPartition,
)

_MIN_ISR = "min.insync.replicas"
_UNCLEAN = "unclean.leader.election.enable"
LOOKED_AT_ONCE = 200
"""Partitions handled in one step, which takes up to 4 ms if all of them change."""
Steps = Iterator[tuple[list[Record], bool]]
"""Yields the records of each step, which depend on the replayed previous step, and whether more
steps follow."""
Settings = Mapping[tuple[int, str, str], str | None]
"""(resource type, resource name, key) to a value that is about to be set."""


class ElectionRules:
    """The election rules of topics, cached for one decision."""

    def __init__(
        self, image: MetadataImage, settings: BrokerSettings, pending: Settings | None = None
    ) -> None:
        self._image = image
        self._pending = pending or {}
        self._broker = _with_pending(broker_configs(image, settings), self._pending)
        self.uses_elr = image.features.get(ELIGIBLE_LEADERS, 0) >= 1
        self._known: dict[TopicId, ElectionSettings] = {}

    def of(self, topic_id: TopicId) -> ElectionSettings:
        """Return the settings of a topic."""
        settings = self._known.get(topic_id)
        if settings is None:
            name = self._image.topics[topic_id].name
            min_isr, unclean = self._value(name, _MIN_ISR), self._value(name, _UNCLEAN)
            settings = ElectionSettings(int(min_isr), self.uses_elr, unclean == "true")
            self._known[topic_id] = settings
        return settings

    def _value(self, topic: str, key: str) -> str:
        own = self._image.configs_of(ResourceType.TOPIC, topic).get(key)
        value = self._pending.get((ResourceType.TOPIC, topic, key), own)
        return value or self._broker.effective(key) or ""


def _with_pending(broker: BrokerConfigs, pending: Settings) -> BrokerConfigs:
    """Return a broker's settings with pending changes of the cluster-wide ones applied."""
    cluster_wide = dict(broker.dynamic_default)
    for (resource_type, name, key), value in pending.items():
        if (resource_type, name) != (ResourceType.BROKER, ""):
            continue
        cluster_wide.pop(key, None)
        if value is not None:
            cluster_wide[key] = value
    return replace(broker, dynamic_default=cluster_wide)


class PartitionControl:
    """Decides about leaders and in-sync replicas from the image."""

    def __init__(
        self, image: MetadataImage, index: PartitionIndex, settings: BrokerSettings
    ) -> None:
        self._image = image
        self._index = index
        self._settings = settings

    def rules(self) -> ElectionRules:
        """Return the current rules, for one decision."""
        return ElectionRules(self._image, self._settings)

    def change(
        self,
        key: PartitionKey,
        state: PartitionState,
        settings: ElectionSettings,
        *,
        election: Election | None = None,
        may_lead: Callable[[int], bool] | None = None,
    ) -> PartitionChange:
        """Prepare a change of one partition, with the election that the topic allows."""
        return PartitionChange(
            key, state, settings, may_lead or self.is_live, election or settings.election
        )

    def is_live(self, broker_id: int) -> bool:
        """Whether a broker may lead."""
        broker = self._image.brokers.get(broker_id)
        return broker is not None and broker.is_live

    # ---- brokers and replicas that come and go -------------------------------------------

    def broker_gone(self, broker_id: int, *, crashed: bool = False) -> Iterator[Record]:
        """Remove a broker as a leader and from every ISR.

        A broker that crashed may have lost its page cache, so it is not eligible either.
        """
        rules = self.rules()
        # Without eligible replicas, the only replica in sync stays in the ISR, so nothing would
        # change.
        alone = [Why.ALONE] if rules.uses_elr else []
        for why in (Why.IN_SYNC, *alone, *([Why.ELIGIBLE] if crashed else [])):
            for key, state in self._index.find(why, broker_id):
                yield from self._without(broker_id, key, state, rules.of(key[0]), crashed=crashed)

    def replicas_gone(self, broker_id: int, keys: list[PartitionKey]) -> Iterator[Record]:
        """Remove a broker from the ISR and as leader, except where it is alone in the ISR."""
        rules = self.rules()
        for key in keys:
            state = self._image.partition(*key)
            if state is not None and state.isr != (broker_id,):
                yield from self._without(broker_id, key, state, rules.of(key[0]))

    def broker_back(self, broker_id: int) -> Steps:
        """Let a broker lead partitions that have no leader and wait for it."""
        keys = [key for key, _ in self._index.find(Why.WAITING, broker_id)]
        may_lead = self._with(broker_id)
        for begin in range(0, len(keys), LOOKED_AT_ONCE):
            rules, end = self.rules(), begin + LOOKED_AT_ONCE
            found: list[Record] = []
            for key in keys[begin:end]:
                state = self._image.partition(*key)  # its current state
                if state is not None and state.leader == NO_LEADER:
                    change = self.change(key, state, rules.of(key[0]), may_lead=may_lead)
                    found.extend(_made(change))
            yield found, end < len(keys)

    def opened(self, broker_id: int, replicas: Iterable[OpenedReplica]) -> Iterator[Record]:
        """Handle opened logs: each new opening of a leader's log starts a new leader epoch.

        A log that was opened again counts as in sync only once it has caught up, since only its
        disk knows what it still has. The last in-sync replica stays in sync, unless it is known to
        lack records: then it leads only after an unclean election. A replica that lacked records
        and is whole again has a restored directory, because a log that was merely reopened reports
        itself as not whole, now and at every later opening.
        """
        rules = self.rules()
        for replica in replicas:
            state = self._image.partition(replica.topic_id, replica.partition)
            if state is None or broker_id not in state.replicas:
                continue  # deleted or moved away since; the broker learns it from the metadata
            known = state.incarnations.get(broker_id)
            if known is not None and (
                known == replica.incarnation or is_earlier(replica.incarnation, known)
            ):
                continue  # a repeated or late report
            key = (replica.topic_id, replica.partition)
            again = known is not None and broker_id in state.isr and state.isr != (broker_id,)
            leaves = again or not replica.whole
            may_lead = self._others(broker_id) if leaves else None
            change = self.change(key, state, rules.of(replica.topic_id), may_lead=may_lead)
            if leaves:
                change.isr = without(state.isr, broker_id)
            change.lacking = without(state.lacking, broker_id)
            if not replica.whole:
                change.lacking = (*change.lacking, broker_id)
            change.incarnations = {broker_id: replica.incarnation}
            change.renews_epoch = known is not None and state.leader == broker_id
            yield from _made(change)

    def _with(self, broker_id: int) -> Callable[[int], bool]:
        """Return a predicate of brokers that may lead, including one that is about to be live."""
        return lambda one: one == broker_id or self.is_live(one)

    def _others(self, broker_id: int) -> Callable[[int], bool]:
        """Return a predicate of brokers that may lead, excluding one."""
        return lambda one: one != broker_id and self.is_live(one)

    def _without(
        self,
        broker_id: int,
        key: PartitionKey,
        state: PartitionState,
        settings: ElectionSettings,
        *,
        crashed: bool = False,
    ) -> Iterator[Record]:
        """Remove the broker from the partition, as far as possible."""
        if broker_id not in (*state.isr, *(state.elr if crashed else ())):
            return
        change = self.change(key, state, settings, may_lead=self._others(broker_id))
        change.isr = without(state.isr, broker_id)
        if crashed:
            change.crashed = (broker_id,)
        yield from _made(change)

    # ---- rules that change ---------------------------------------------------------------

    def settings_changed(self, altered: Iterable[Record]) -> Iterator[Record]:
        """Change partitions for settings that are about to change the election rules.

        If enough replicas are in sync for a lower min.insync.replicas, none is eligible any more.
        If unclean election becomes allowed, live replicas lead partitions without a leader at once;
        Apache Kafka checks this every unclean.leader.election.interval.ms (5 minutes).
        """
        pending = {
            (record.resource_type, record.resource_name, record.key): record.value
            for record in altered
            if isinstance(record, ConfigChanged) and record.key in (_MIN_ISR, _UNCLEAN)
        }
        if not pending:
            return
        elections = ElectionRules(self._image, self._settings, pending)
        names = {name for kind, name, _ in pending if kind == ResourceType.TOPIC}
        everywhere = len(names) < len({(kind, name) for kind, name, _ in pending})
        topics = {self._image.topic_ids.get(name) for name in names}
        for key, state in self._index.find(Why.UNSETTLED):
            if everywhere or key[0] in topics:
                settings = elections.of(key[0])
                if state.elr or (state.leader == NO_LEADER and settings.unclean):
                    yield from _made(self.change(key, state, settings))

    def took_over(self) -> Steps:
        """Hold the elections with which a new controller starts.

        Its settings may allow more than its predecessor's did. The predecessor may also have ended
        before it elected the leaders that a broker's return allows.
        """
        keys = [key for key, _ in self._index.find(Why.UNSETTLED)]
        for begin in range(0, len(keys), LOOKED_AT_ONCE):
            rules, end = self.rules(), begin + LOOKED_AT_ONCE
            found: list[Record] = []
            for key in keys[begin:end]:
                state = self._image.partition(*key)
                if state is not None:
                    found.extend(_made(self.change(key, state, rules.of(key[0]))))
            yield found, end < len(keys)

    def elr_ends(self) -> Iterator[Record]:
        """Prepare to disable eligible replicas: they count as in sync where no other does."""
        for key, state in self._index.find(Why.UNSETTLED):
            if state.elr or state.last_known_elr:
                waiting = state.isr or state.elr or state.last_known_elr
                isr = without(waiting, *state.lacking)
                yield PartitionChanged(
                    *key,
                    isr=isr if isr != state.isr else None,
                    elr=(),
                    last_known_elr=(),
                )

    # ---- what leaders ask for ------------------------------------------------------------

    def alter(self, request: AlterPartitions) -> Decision[list[IsrOutcome]]:
        """Apply ISR proposals of leaders. A refused proposal does not affect the others."""
        rules = self.rules()
        records: dict[PartitionKey, PartitionChanged] = {}
        outcomes = []
        for one in request.changes:
            key = (one.topic_id, one.partition)
            try:
                state = self._checked(request.broker_id, one, taken=key in records)
            except KafkaError as refused:
                outcomes.append(self._refused(one, refused))
                continue
            change = self.change(key, state, rules.of(one.topic_id), election=Election.ONLINE)
            change.isr = tuple(member for member, _ in one.isr)
            record = change.record()
            if record is not None:
                records[key] = record
            outcomes.append(_outcome(key, state, record))
        return Decision(list(records.values()), outcomes)

    def _checked(self, leader: int, change: IsrChange, *, taken: bool) -> PartitionState:
        """Return the partition to change; raises the reason for a refusal."""
        state = self._image.partition(change.topic_id, change.partition)
        if state is None:
            if change.topic_id not in self._image.topics:
                raise UnknownTopicId(f"no topic has the id {change.topic_id.hex()}")
            raise UnknownTopicOrPartition(f"there is no partition {change.partition}")
        self._check_epochs(leader, change, state, taken=taken)
        members = {broker_id for broker_id, _ in change.isr}
        if leader not in members or not members <= set(state.replicas):
            raise InvalidRequest(f"{sorted(members)} cannot be the in-sync replicas")
        for broker_id, incarnation in change.isr:
            same = state.incarnations.get(broker_id) == incarnation
            if not (same and self.is_live(broker_id)):
                raise IneligibleReplica(f"broker {broker_id} is not live as {incarnation}")
        return state

    @staticmethod
    def _check_epochs(
        leader: int, change: IsrChange, state: PartitionState, *, taken: bool
    ) -> None:
        if (
            change.leader_epoch > state.leader_epoch
            or change.partition_epoch > state.partition_epoch
        ):
            raise NotController(
                f"epochs {change.leader_epoch} and {change.partition_epoch} are not known yet"
            )
        if change.leader_epoch < state.leader_epoch or leader != state.leader:
            raise FencedLeaderEpoch(
                f"broker {leader} leads in epoch {change.leader_epoch}; broker "
                f"{state.leader} leads in epoch {state.leader_epoch}"
            )
        if change.partition_epoch != state.partition_epoch or taken:
            raise InvalidUpdateVersion(
                f"partition epoch {change.partition_epoch} is not {state.partition_epoch + taken}"
            )

    def _refused(self, change: IsrChange, refused: KafkaError) -> IsrOutcome:
        """Report the partition's state and why it is unchanged."""
        key = (change.topic_id, change.partition)
        state = self._image.partition(*key)
        if state is None:
            return IsrOutcome(*key, refused.code, str(refused))
        return IsrOutcome(
            *key,
            refused.code,
            str(refused),
            state.leader,
            state.leader_epoch,
            state.partition_epoch,
            state.isr,
        )


def _outcome(
    key: PartitionKey, state: PartitionState, record: PartitionChanged | None
) -> IsrOutcome:
    """Report the partition's state after the change.

    If the end of a reassignment removes the leader's replica, the old leader is told who leads now.
    """
    after = state if record is None else state.changed(record)
    moved = after.leader != state.leader
    error = NewLeaderElected.code if moved else IsrOutcome(*key).error
    message = f"broker {after.leader} leads in epoch {after.leader_epoch}" if moved else None
    return IsrOutcome(
        *key,
        error,
        message,
        after.leader,
        after.leader_epoch,
        after.partition_epoch,
        after.isr,
    )


def _made(change: PartitionChange) -> Iterator[Record]:
    record = change.record()
    if record is not None:
        yield record
