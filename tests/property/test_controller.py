"""The controller's machine keeps its guarantees under any sequence of events."""

from copy import deepcopy

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from raylog.actors.common_messages import TopicId
from raylog.actors.config import ResourceType
from raylog.actors.controller.messages import (
    AlterConfigs,
    AlterOp,
    AlterPartitions,
    AlterReassignments,
    BrokerHeartbeat,
    ConfigAlteration,
    ConfigOp,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    FeatureUpdate,
    FeatureUpgradeType,
    IsrChange,
    MorePartitions,
    NewTopic,
    OpenedReplica,
    PartitionsOpened,
    ReassignPartition,
    ReplicasLost,
    UpdateFeatures,
)
from raylog.actors.controller.rules import brokers, leaders, partitions
from raylog.actors.metadata.features import ELIGIBLE_LEADERS
from raylog.actors.metadata.image import MetadataImage, PartitionState, Snapshot
from raylog.actors.metadata.records import (
    NO_LEADER,
    LeaderChanged,
    PartitionChanged,
    Record,
    decode_record,
    encode_record,
)
from tests.worlds.controller.machine import Controlled, assert_finds_all

BROKERS = st.integers(0, 3)
NAMES = st.sampled_from(["a", "b", "c"])
LEFT_AT_ONCE = brokers.LEFT_AT_ONCE
LOOKED_AT_ONCE = partitions.LOOKED_AT_ONCE
MOVES_AT_ONCE = leaders.MOVES_AT_ONCE


class ControllerHistory(RuleBasedStateMachine):
    """Registers, fences, creates, opens, loses and deletes, with checks after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.world = Controlled(brokers=4, settings={"default.replication.factor": "3"})
        self.openings = 0
        self.elected_uncleanly = False
        self.epochs: dict[tuple[TopicId, int], tuple[int, int]] = {}
        self.leaders: dict[tuple[TopicId, int, int], int] = {}
        """The leader by (topic id, partition, leader epoch)."""
        self.taken: list[tuple[Snapshot, MetadataImage]] = []
        """The last snapshots, and the image when each was taken."""
        self.shadow = MetadataImage()
        self.shadow.apply_update(-1, self.world.image.offset, self.world.image.snapshot())

    def carry(self, records: list[Record]) -> None:
        for record in records:
            if isinstance(record, PartitionChanged):
                self.check_election(record)
        for record in records:
            self.world.machine.replay([record])
            assert_finds_all(self.world.machine.index, self.world.image)
        self.shadow.apply_all(decode_record(encode_record(record)) for record in records)

    def check_election(self, record: PartitionChanged) -> None:
        """Check that a new leader was in sync, eligible or last leader, or the election unclean."""
        state = self.world.image.partition(record.topic_id, record.partition)
        assert state is not None
        if record.leader in (None, NO_LEADER, state.leader):
            return
        eligible = record.leader in state.elr and record.isr == (record.leader,)
        if record.leader in state.isr or eligible or self.unclean(record.topic_id):
            return
        assert not (state.isr or state.elr) or self.loses_all(record, state)
        assert record.leader in state.last_known_elr

    @staticmethod
    def loses_all(record: PartitionChanged, state: PartitionState) -> bool:
        """Whether the record removes all replicas that have everything committed."""
        return not set(record.isr or ()) & {*state.isr, *state.elr} and not record.elr

    def unclean(self, topic_id: TopicId) -> bool:
        name = self.world.image.topics[topic_id].name
        own = self.world.image.configs_of(ResourceType.TOPIC, name)
        return self.elected_uncleanly or own["unclean.leader.election.enable"] == "true"

    @initialize(at_once=st.sampled_from([1, 2, LEFT_AT_ONCE]))
    def leave_in_steps(self, at_once: int) -> None:
        brokers.LEFT_AT_ONCE = partitions.LOOKED_AT_ONCE = leaders.MOVES_AT_ONCE = at_once

    def teardown(self) -> None:
        brokers.LEFT_AT_ONCE = LEFT_AT_ONCE
        partitions.LOOKED_AT_ONCE = LOOKED_AT_ONCE
        leaders.MOVES_AT_ONCE = MOVES_AT_ONCE

    @rule(broker_id=BROKERS, kept=st.booleans(), known=st.booleans(), clean=st.booleans())
    def restart(self, broker_id: int, kept: bool, known: bool, clean: bool) -> None:
        self.openings += 1
        asked = self.world.registration(
            broker_id,
            incarnation=f"i{self.openings}",
            kept_running=kept,
            clean_shutdown=clean,
            previous_broker_epoch=self.world.epochs[broker_id] if known else -1,
        )
        while True:
            decision = self.world.machine.brokers.register(asked, self.world.now_ms)
            self.carry(decision.records)
            if not decision.more:
                break
        self.world.epochs[broker_id] = decision.response

    @rule(broker_id=BROKERS, leave=st.booleans(), caught_up=st.booleans())
    def beat(self, broker_id: int, leave: bool, caught_up: bool) -> None:
        epoch = self.world.epochs[broker_id]
        asked = BrokerHeartbeat(broker_id, epoch, epoch + caught_up, leave)
        while True:
            decision = self.world.machine.brokers.heartbeat(asked, self.world.now_ms)
            self.carry(decision.records)
            if not decision.more:
                break

    @rule(broker_id=BROKERS)
    def come_back_in_part(self, broker_id: int) -> None:
        """Let a controller end in the middle of a broker's return, and its successor continue."""
        epoch = self.world.epochs[broker_id]
        asked = BrokerHeartbeat(broker_id, epoch, epoch + 1)
        decision = self.world.machine.brokers.heartbeat(asked, self.world.now_ms)
        self.carry(decision.records)
        for settled in self.world.machine.settle():
            self.carry(settled)

    @rule(elapsed_ms=st.integers(0, 3_000))
    def wait(self, elapsed_ms: int) -> None:
        self.world.now_ms += elapsed_ms
        while records := self.world.machine.brokers.expire(self.world.now_ms).records:
            self.carry(records)
        while records := self.world.machine.leaders.balance(self.world.now_ms).records:
            self.carry(records)

    @rule(name=NAMES, count=st.integers(1, 3), unclean=st.booleans(), min_isr=st.integers(1, 3))
    def create(self, name: str, count: int, unclean: bool, min_isr: int) -> None:
        configs: dict[str, str | None] = {
            "unclean.leader.election.enable": str(unclean).lower(),
            "min.insync.replicas": str(min_isr),
        }
        asked = CreateTopics([NewTopic(name, count, configs=configs)])
        self.carry(self.world.machine.topics.create(asked).records)

    @rule(name=NAMES, count=st.integers(1, 5))
    def grow(self, name: str, count: int) -> None:
        asked = CreatePartitions([MorePartitions(name, count)])
        self.carry(self.world.machine.topics.create_partitions(asked).records)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self.carry(self.world.machine.topics.delete(DeleteTopics([name])).records)

    @rule(name=NAMES, min_isr=st.integers(1, 3))
    def set_min_isr(self, name: str, min_isr: int) -> None:
        op = ConfigOp("min.insync.replicas", AlterOp.SET, str(min_isr))
        asked = AlterConfigs([ConfigAlteration(ResourceType.TOPIC, name, [op])])
        self.carry(self.world.machine.alter_configs(asked).records)

    @rule(level=st.integers(0, 1))
    def set_elr(self, level: int) -> None:
        now = self.world.image.features.get(ELIGIBLE_LEADERS, 0)
        kind = FeatureUpgradeType.UPGRADE if level >= now else FeatureUpgradeType.SAFE_DOWNGRADE
        asked = UpdateFeatures([FeatureUpdate(ELIGIBLE_LEADERS, level, kind)])
        self.carry(self.world.machine.update_features(asked).records)

    @rule(name=NAMES, index=st.integers(0, 2), members=st.sets(BROKERS))
    def alter(self, name: str, index: int, members: set[int]) -> None:
        """Let a leader change its in-sync replicas."""
        topic = self.world.image.topic(name)
        if topic is None or index >= len(topic.partitions):
            return
        state = topic.partitions[index]
        if state.leader == NO_LEADER:
            return
        isr = tuple((one, state.incarnations.get(one, "")) for one in sorted(members))
        epochs = (state.leader_epoch, state.partition_epoch)
        change = IsrChange(topic.topic_id, index, *epochs, isr)
        asked = AlterPartitions(state.leader, self.world.epochs[state.leader], [change])
        self.carry(self.world.machine.alter_partitions(asked).records)

    @rule(name=NAMES, index=st.integers(0, 2), unclean=st.booleans())
    def elect(self, name: str, index: int, unclean: bool) -> None:
        asked = ElectLeaders(unclean, [(name, index)], 0)
        self.elected_uncleanly = unclean
        self.carry(self.world.machine.leaders.elect(asked).records)
        self.elected_uncleanly = False

    @rule(
        name=NAMES,
        index=st.integers(0, 2),
        replicas=st.none() | st.lists(BROKERS, min_size=1, max_size=4, unique=True),
    )
    def reassign(self, name: str, index: int, replicas: list[int] | None) -> None:
        target = None if replicas is None else tuple(replicas)
        asked = AlterReassignments([ReassignPartition(name, index, target)])
        self.carry(self.world.machine.reassignments.alter(asked).records)

    @rule(broker_id=BROKERS)
    def open(self, broker_id: int) -> None:
        self.openings += 1
        replicas = [
            OpenedReplica(topic_id, index, f"o{self.openings}")
            for topic_id, index, _ in self.world.image.partitions_on(broker_id)
        ]
        asked = PartitionsOpened(broker_id, self.world.epochs[broker_id], replicas)
        self.carry(self.world.machine.partitions_opened(asked).records)
        assert self.world.machine.partitions_opened(asked).records == []

    @rule(broker_id=BROKERS)
    def lose(self, broker_id: int) -> None:
        keys = [(topic, index) for topic, index, _ in self.world.image.partitions_on(broker_id)]
        asked = ReplicasLost(broker_id, self.world.epochs[broker_id], keys)
        self.carry(self.world.machine.replicas_lost(asked).records)

    def states(self) -> list[tuple[TopicId, int, PartitionState]]:
        return [
            (topic.topic_id, index, state)
            for topic in self.world.image.topics.values()
            for index, state in enumerate(topic.partitions)
        ]

    @invariant()
    def replicas_in_sync_and_eligible_ones_are_disjoint_parts_of_the_assigned(self) -> None:
        uses_elr = self.world.image.features[ELIGIBLE_LEADERS] > 0
        for _, _, state in self.states():
            replicas, isr, elr = set(state.replicas), set(state.isr), set(state.elr)
            assert replicas
            assert len(replicas) == len(state.replicas)
            assert isr | elr | set(state.incarnations) <= replicas
            assert len(isr) + len(elr) == len(state.isr) + len(state.elr) == len(isr | elr)
            assert isr or elr or set(state.last_known_elr) & replicas
            assert uses_elr or (isr and not elr)
            assert set(state.adding_replicas) | set(state.removing_replicas) <= replicas

    @invariant()
    def every_leader_is_live_and_in_sync(self) -> None:
        for _, _, state in self.states():
            if state.leader != NO_LEADER:
                assert state.leader in state.isr
                assert self.world.image.brokers[state.leader].is_live

    @invariant()
    def a_partition_without_a_leader_has_nobody_who_could_lead(self) -> None:
        for _, _, state in self.states():
            if state.leader == NO_LEADER:
                brokers = [self.world.image.brokers[one] for one in state.isr or state.elr]
                assert not any(broker.is_live for broker in brokers)

    @invariant()
    def a_reassignment_is_over_when_all_that_stay_are_in_sync(self) -> None:
        for _, _, state in self.states():
            if state.is_reassigned:
                assert not set(state.replicas) - set(state.removing_replicas) <= set(state.isr)

    @invariant()
    def an_epoch_has_one_leader(self) -> None:
        for topic_id, index, state in self.states():
            key = (topic_id, index, state.leader_epoch)
            assert self.leaders.setdefault(key, state.leader) == state.leader

    @invariant()
    def epochs_never_go_back(self) -> None:
        for topic in self.world.image.topics.values():
            for index, partition in enumerate(topic.partitions):
                key = (topic.topic_id, index)
                now = (partition.leader_epoch, partition.partition_epoch)
                before = self.epochs.get(key, (0, 0))
                assert now[0] >= before[0]
                assert now[1] >= before[1]
                self.epochs[key] = now

    @invariant()
    def the_log_adds_up_to_the_same_image(self) -> None:
        self.shadow.controller_epoch = self.world.image.controller_epoch
        assert self.shadow == self.world.image

    @invariant()
    def a_snapshot_stays_as_it_was_taken(self) -> None:
        for snapshot, was in self.taken:
            copy = MetadataImage()
            copy.apply_update(-1, snapshot.offset, snapshot)
            assert copy == was
        was = deepcopy(self.world.image)
        self.taken = [*self.taken[-3:], (self.world.image.snapshot(), was)]

    @invariant()
    def a_snapshot_is_the_image(self) -> None:
        copy = MetadataImage()
        copy.apply_update(-1, self.world.image.offset, self.world.image.snapshot())
        assert copy == self.world.image
        assert isinstance(next(iter(self.world.image.snapshot())), LeaderChanged)


TestControllerHistory = ControllerHistory.TestCase
TestControllerHistory.settings = settings(stateful_step_count=40)
