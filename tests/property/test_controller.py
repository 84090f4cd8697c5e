"""The controller's machine under any sequence of events keeps its promises."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from raylog.actors.controller.api import (
    BrokerHeartbeat,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    NewTopic,
    OpenedReplica,
    PartitionsOpened,
    ReplicasLost,
)
from raylog.actors.controller.decision import Decision
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import (
    NO_LEADER,
    LeaderChanged,
    Record,
    decode_record,
    encode_record,
)
from raylog.actors.ports import TopicId
from tests.support.controllers import Controlled

BROKERS = st.integers(0, 3)
NAMES = st.sampled_from(["a", "b", "c"])


class ControllerHistory(RuleBasedStateMachine):
    """Registers, fences, creates, opens, loses, deletes; checks after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.world = Controlled(brokers=4, settings={"default.replication.factor": "2"})
        self.openings = 0
        self.epochs: dict[tuple[TopicId, int], tuple[int, int]] = {}
        self.shadow = MetadataImage()
        self.shadow.apply_update(-1, self.world.image.offset, self.world.image.snapshot())

    def carry(self, records: list[Record]) -> None:
        self.world.carry(Decision(records, None))
        self.shadow.apply_all(decode_record(encode_record(record)) for record in records)

    @rule(broker_id=BROKERS, kept=st.booleans(), known=st.booleans())
    def restart(self, broker_id: int, kept: bool, known: bool) -> None:
        self.openings += 1
        asked = self.world.registration(
            broker_id,
            incarnation=f"i{self.openings}",
            kept_running=kept,
            previous_broker_epoch=self.world.epochs[broker_id] if known else -1,
        )
        decision = self.world.machine.brokers.register(asked, self.world.now_ms)
        self.world.epochs[broker_id] = decision.response
        self.carry(decision.records)

    @rule(broker_id=BROKERS, leave=st.booleans(), caught_up=st.booleans())
    def beat(self, broker_id: int, leave: bool, caught_up: bool) -> None:
        epoch = self.world.epochs[broker_id]
        asked = BrokerHeartbeat(broker_id, epoch, epoch + caught_up, leave)
        decision = self.world.machine.brokers.heartbeat(asked, self.world.now_ms, 0)
        self.carry(decision.records)

    @rule(elapsed_ms=st.integers(0, 3_000))
    def wait(self, elapsed_ms: int) -> None:
        self.world.now_ms += elapsed_ms
        while records := self.world.machine.brokers.expire(self.world.now_ms).records:
            self.carry(records)

    @rule(name=NAMES, count=st.integers(1, 3), unclean=st.booleans())
    def create(self, name: str, count: int, unclean: bool) -> None:
        configs: dict[str, str | None] = {"unclean.leader.election.enable": str(unclean).lower()}
        asked = CreateTopics([NewTopic(name, count, configs=configs)])
        self.carry(self.world.machine.topics.create(asked).records)

    @rule(name=NAMES, count=st.integers(1, 5))
    def grow(self, name: str, count: int) -> None:
        asked = CreatePartitions([MorePartitions(name, count)])
        self.carry(self.world.machine.topics.create_partitions(asked).records)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self.carry(self.world.machine.topics.delete(DeleteTopics([name])).records)

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

    @invariant()
    def every_leader_is_live_and_in_sync(self) -> None:
        for topic in self.world.image.topics.values():
            for partition in topic.partitions:
                assert partition.isr
                assert set(partition.isr) <= set(partition.replicas)
                assert len(set(partition.replicas)) == len(partition.replicas)
                if partition.leader != NO_LEADER:
                    assert partition.leader in partition.isr
                    broker = self.world.image.brokers[partition.leader]
                    assert not broker.fenced

    @invariant()
    def a_partition_without_a_leader_has_nobody_who_could_lead(self) -> None:
        for topic in self.world.image.topics.values():
            for partition in topic.partitions:
                if partition.leader == NO_LEADER:
                    brokers = [self.world.image.brokers[one] for one in partition.isr]
                    assert not any(broker.is_live for broker in brokers)

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
    def a_snapshot_is_the_image(self) -> None:
        copy = MetadataImage()
        copy.apply_update(-1, self.world.image.offset, self.world.image.snapshot())
        assert copy == self.world.image
        assert isinstance(self.world.image.snapshot()[0], LeaderChanged)


TestControllerHistory = ControllerHistory.TestCase
TestControllerHistory.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
