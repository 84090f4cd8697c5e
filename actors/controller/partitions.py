"""Who leads a partition and who is in sync: what events mean for it, as records to be written.

The rules of a single change are in `changes`. Here is which partitions an event touches, and which
changes leaders may ask for (KIP-497, KIP-903).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from raylog.actors.config import BrokerConfigs, BrokerSettings, ResourceType
from raylog.actors.controller.api import (
    AlterPartitions,
    IsrChange,
    IsrOutcome,
    OpenedReplica,
)
from raylog.actors.controller.changes import Election, PartitionChange, Rules, without
from raylog.actors.controller.decision import Decision
from raylog.actors.controller.index import PartitionIndex, Why
from raylog.actors.incarnations import is_earlier
from raylog.actors.metadata.configs import broker_configs
from raylog.actors.metadata.features import ELIGIBLE_LEADERS
from raylog.actors.metadata.image import MetadataImage, PartitionState
from raylog.actors.metadata.records import NO_LEADER, ConfigChanged, PartitionChanged, Record
from raylog.actors.ports import PartitionKey, TopicId
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
"""Partitions that are looked at in one step: up to 4 ms if all of them change."""
Steps = Iterator[tuple[list[Record], bool]]
"""Records of one step after the other, each decided on what the last one left, and whether there
are more steps."""
Settings = Mapping[tuple[int, str, str], str | None]
"""(resource type, resource name, key) to a value that is about to be set."""


class ElectionRules:
    """The rules of topics, looked up once each: for one decision."""

    def __init__(
        self, image: MetadataImage, settings: BrokerSettings, pending: Settings | None = None
    ) -> None:
        self._image = image
        self._pending = pending or {}
        self._broker = _with_pending(broker_configs(image, settings), self._pending)
        self.uses_elr = image.features.get(ELIGIBLE_LEADERS, 0) >= 1
        self._known: dict[TopicId, Rules] = {}

    def of(self, topic_id: TopicId) -> Rules:
        """The rules of a topic."""
        rules = self._known.get(topic_id)
        if rules is None:
            name = self._image.topics[topic_id].name
            min_isr, unclean = self._value(name, _MIN_ISR), self._value(name, _UNCLEAN)
            rules = Rules(int(min_isr), self.uses_elr, unclean == "true")
            self._known[topic_id] = rules
        return rules

    def _value(self, topic: str, key: str) -> str:
        own = self._image.configs_of(ResourceType.TOPIC, topic).get(key)
        value = self._pending.get((ResourceType.TOPIC, topic, key), own)
        return value or self._broker.effective(key) or ""


def _with_pending(broker: BrokerConfigs, pending: Settings) -> BrokerConfigs:
    """A broker's layers with the cluster-wide settings that are about to be set, or removed."""
    cluster_wide = dict(broker.dynamic_default)
    for (resource_type, name, key), value in pending.items():
        if (resource_type, name) != (ResourceType.BROKER, ""):
            continue
        cluster_wide.pop(key, None)
        if value is not None:
            cluster_wide[key] = value
    return replace(broker, dynamic_default=cluster_wide)


class PartitionControl:
    """Decides leadership and in-sync replicas against the image."""

    def __init__(
        self, image: MetadataImage, index: PartitionIndex, settings: BrokerSettings
    ) -> None:
        self._image = image
        self._index = index
        self._settings = settings

    def rules(self) -> ElectionRules:
        """The rules in force, for one decision."""
        return ElectionRules(self._image, self._settings)

    def change(
        self,
        key: PartitionKey,
        state: PartitionState,
        rules: Rules,
        *,
        election: Election | None = None,
        may_lead: Callable[[int], bool] | None = None,
    ) -> PartitionChange:
        """A change of one partition in the making, with the election that the topic allows."""
        return PartitionChange(
            key, state, rules, may_lead or self.is_live, election or rules.election
        )

    def is_live(self, broker_id: int) -> bool:
        """Whether a broker may lead."""
        broker = self._image.brokers.get(broker_id)
        return broker is not None and broker.is_live

    # ---- brokers and replicas that come and go -------------------------------------------

    def broker_gone(self, broker_id: int, *, crashed: bool = False) -> Iterator[Record]:
        """Take a broker out of leadership and in-sync replicas everywhere.

        One that crashed may have lost what its page cache held: it is not eligible either.
        """
        rules = self.rules()
        # Without eligible replicas the only one in sync stays so: nothing would change.
        alone = [Why.ALONE] if rules.uses_elr else []
        for why in (Why.IN_SYNC, *alone, *([Why.ELIGIBLE] if crashed else [])):
            for key, state in self._index.find(why, broker_id):
                yield from self._without(broker_id, key, state, rules.of(key[0]), crashed=crashed)

    def replicas_gone(self, broker_id: int, keys: list[PartitionKey]) -> Iterator[Record]:
        """Take a broker out of some partitions that others hold too."""
        rules = self.rules()
        for key in keys:
            state = self._image.partition(*key)
            if state is not None and state.isr != (broker_id,):
                yield from self._without(broker_id, key, state, rules.of(key[0]))

    def broker_back(self, broker_id: int) -> Steps:
        """Let a broker lead what has no leader and waits for it."""
        keys = [key for key, _ in self._index.find(Why.WAITING, broker_id)]
        may_lead = self._with(broker_id)
        for begin in range(0, len(keys), LOOKED_AT_ONCE):
            rules, end = self.rules(), begin + LOOKED_AT_ONCE
            found: list[Record] = []
            for key in keys[begin:end]:
                state = self._image.partition(*key)  # as it is by now
                if state is not None and state.leader == NO_LEADER:
                    change = self.change(key, state, rules.of(key[0]), may_lead=may_lead)
                    found.extend(_made(change))
            yield found, end < len(keys)

    def opened(self, broker_id: int, replicas: Iterable[OpenedReplica]) -> Iterator[Record]:
        """Logs were opened: every opening of a leader's but the first begins a new leader epoch.

        A log that was opened again counts as in sync once it has caught up: until then nobody but
        its disk knows what it still has. The last in sync stays so, unless it is known to lack
        records: it leads only where an unclean election is allowed, or asked for. One that lacked
        records and is whole again has its directory restored: a log that is only opened anew says
        of itself, and of every opening after that, that it is not whole.
        """
        rules = self.rules()
        for replica in replicas:
            state = self._image.partition(replica.topic_id, replica.partition)
            if state is None or broker_id not in state.replicas:
                continue  # deleted or moved away meanwhile: the metadata tells the broker so
            known = state.incarnations.get(broker_id)
            if known is not None and (
                known == replica.incarnation or is_earlier(replica.incarnation, known)
            ):
                continue  # told before, or a report that was late
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
        """Who may lead, and one that is about to be live."""
        return lambda one: one == broker_id or self.is_live(one)

    def _others(self, broker_id: int) -> Callable[[int], bool]:
        """Who may lead but one."""
        return lambda one: one != broker_id and self.is_live(one)

    def _without(
        self,
        broker_id: int,
        key: PartitionKey,
        state: PartitionState,
        rules: Rules,
        *,
        crashed: bool = False,
    ) -> Iterator[Record]:
        """The partition without the broker, as far as that goes."""
        if broker_id not in (*state.isr, *(state.elr if crashed else ())):
            return
        change = self.change(key, state, rules, may_lead=self._others(broker_id))
        change.isr = without(state.isr, broker_id)
        if crashed:
            change.crashed = (broker_id,)
        yield from _made(change)

    # ---- rules that change ---------------------------------------------------------------

    def settings_changed(self, altered: Iterable[Record]) -> Iterator[Record]:
        """Settings are about to change: what the new rules of elections make of partitions.

        With enough in sync by a lower bar nobody is eligible. Where unclean election is allowed
        from now on, who lives leads what has no leader: at once, while Apache Kafka looks every
        unclean.leader.election.interval.ms (5 minutes).
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
                rules = elections.of(key[0])
                if state.elr or (state.leader == NO_LEADER and rules.unclean):
                    yield from _made(self.change(key, state, rules))

    def took_over(self) -> Steps:
        """A controller begins: its settings may allow what those of the one before did not.

        That one may have ended before it had elected the leaders that a broker's return allows.
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
        """Eligible replicas are about to be no more: where nobody else is in sync they are."""
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

    def alter(self, asked: AlterPartitions) -> Decision[list[IsrOutcome]]:
        """Leaders change their in-sync replicas: a change that is refused keeps no other."""
        rules = self.rules()
        records: dict[PartitionKey, PartitionChanged] = {}
        outcomes = []
        for one in asked.changes:
            key = (one.topic_id, one.partition)
            try:
                state = self._checked(asked.broker_id, one, taken=key in records)
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

    def _checked(self, leader: int, asked: IsrChange, *, taken: bool) -> PartitionState:
        """The partition to be changed; raises why it cannot be."""
        state = self._image.partition(asked.topic_id, asked.partition)
        if state is None:
            if asked.topic_id not in self._image.topics:
                raise UnknownTopicId(f"no topic has the id {asked.topic_id.hex()}")
            raise UnknownTopicOrPartition(f"there is no partition {asked.partition}")
        self._check_epochs(leader, asked, state, taken=taken)
        members = {broker_id for broker_id, _ in asked.isr}
        if leader not in members or not members <= set(state.replicas):
            raise InvalidRequest(f"{sorted(members)} cannot be the in-sync replicas")
        for broker_id, incarnation in asked.isr:
            same = state.incarnations.get(broker_id) == incarnation
            if not (same and self.is_live(broker_id)):
                raise IneligibleReplica(f"broker {broker_id} is not live as {incarnation}")
        return state

    @staticmethod
    def _check_epochs(leader: int, asked: IsrChange, state: PartitionState, *, taken: bool) -> None:
        if asked.leader_epoch > state.leader_epoch or asked.partition_epoch > state.partition_epoch:
            raise NotController(
                f"epochs {asked.leader_epoch} and {asked.partition_epoch} are not known yet"
            )
        if asked.leader_epoch < state.leader_epoch or leader != state.leader:
            raise FencedLeaderEpoch(
                f"broker {leader} leads in epoch {asked.leader_epoch}; broker "
                f"{state.leader} leads in epoch {state.leader_epoch}"
            )
        if asked.partition_epoch != state.partition_epoch or taken:
            raise InvalidUpdateVersion(
                f"partition epoch {asked.partition_epoch} is not {state.partition_epoch + taken}"
            )

    def _refused(self, asked: IsrChange, refused: KafkaError) -> IsrOutcome:
        """How the partition stands, and why it stays so."""
        key = (asked.topic_id, asked.partition)
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
    """How the partition will stand.

    A leader that ends a reassignment which takes its replica away is told who leads now.
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
