"""Sensible values for fields by their names, around one scene: a member, a producer, a topic.

A field that is not named here gets the default of its schema, a list one to three elements.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from raylog.wire.compression import Codec
from raylog.wire.internal.blobs import encode_value
from raylog.wire.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from raylog.wire.records import (
    BATCH_OVERHEAD,
    Record,
    assemble,
    encode_batch,
    read_header,
)
from tests.fuzz.values import ENDS
from tests.fuzz.world import (
    SCRATCH,
    SCRATCH_COUNT,
    Member,
    Producer,
    Session,
    Topic,
    World,
    pick,
)

NOW_MS = 1_700_000_000_000
HEADERS_BYTES_MAX = 1 << 20
"""About the bytes of a record's headers: more than a log takes, and no frame of 100 MB."""
TOPIC, BROKER, GROUP = 2, 4, 32
"""Types of configuration resources."""

_HEADER_KINDS = {
    "base_offset": "int64",
    "partition_leader_epoch": "int32",
    "magic": "int8",
    "attributes": "int16",
    "last_offset_delta": "int32",
    "base_timestamp": "int64",
    "max_timestamp": "int64",
    "producer_id": "int64",
    "producer_epoch": "int16",
    "base_sequence": "int32",
    "record_count": "int32",
}
_GROUP_SETTINGS = [
    ("consumer.session.timeout.ms", "45000"),
    ("consumer.heartbeat.interval.ms", "5000"),
]


class Scene:
    """What one request is about. `topic` changes with each topic struct that is made."""

    def __init__(self, rng: Random, world: World) -> None:
        self.rng = rng
        self.world = world
        self.member = Member("")
        self.producer = Producer(None)
        self.session = Session(0, -1)
        self.topic = world.cluster.base[0]
        self.chosen = 0
        """The partition that was chosen last: that of the batch that is made next."""
        self.resource_type = TOPIC
        self.is_transactional = False

    def begin(self, request: str) -> None:
        """Choose the scene of a new request, by the name of its class."""
        rng, world = self.rng, self.world
        is_consumer = request.startswith("ConsumerGroup")
        group = rng.choice(world.consumer_groups if is_consumer else world.classic_groups)
        if not is_consumer and rng.random() < 0.1:
            group = rng.choice(world.consumer_groups)
        members = [m for m in world.members if m.is_classic != is_consumer or rng.random() < 0.1]
        # Another member's join makes a group wait for those that do not come back: seldom.
        self.member = pick(rng, members, Member(group, is_classic=not is_consumer), 0.93)
        wants_id = request in _TRANSACTIONAL or rng.random() < 0.4
        producers = [p for p in world.producers if (p.transactional_id is not None) == wants_id]
        name = rng.choice(world.transactional_ids) if wants_id else None
        self.producer = pick(rng, producers, Producer(name), 0.95)
        self.is_transactional = self.producer.transactional_id is not None
        kind = rng.random()
        blank = Session(0, -1 if kind < 0.6 else 0)
        self.session = pick(rng, world.sessions, blank, 0.6)
        self.resource_type = rng.choice([TOPIC, TOPIC, TOPIC, BROKER, GROUP])
        self.next_topic()

    def next_topic(self) -> None:
        """Choose the topic of the struct that begins."""
        rng, world = self.rng, self.world
        scratch = list(world.scratch.values())
        if scratch and rng.random() < 0.2:
            self.topic = rng.choice(scratch)
        elif rng.random() < 0.03:
            self.topic = Topic("unknown", b"\x07" * 16, 1)
        else:
            self.topic = rng.choice(world.cluster.base)

    def scratch_name(self) -> str:
        """The name of a topic that requests may make and delete."""
        return f"{SCRATCH}{self.rng.randrange(SCRATCH_COUNT)}"

    def partition(self) -> int:
        """A partition of the topic at hand, or nearly so."""
        rng, count = self.rng, self.topic.partitions
        self.chosen = rng.randrange(count) if rng.random() < 0.97 else count
        return self.chosen

    def partitions(self) -> list[int]:
        """Some of its partitions, each once."""
        count = self.topic.partitions
        return self.rng.sample(range(count), self.rng.randint(1, count))

    def offset(self) -> int:
        """An offset that the partition may have."""
        end = max(self.topic.ends.values(), default=0)
        return self.rng.choice([0, end, end // 2, max(0, end - 1), end + 1])

    def setting(self) -> tuple[str, str]:
        """A configuration key of the resource at hand, and a value that it takes."""
        known = (
            _GROUP_SETTINGS if self.resource_type == GROUP else self.world.cluster.topic_settings
        )
        return self.rng.choice(known or [("retention.ms", "1000")])

    def resource(self) -> str:
        """The name of a configuration resource of the type at hand."""
        if self.resource_type == TOPIC:
            return self.scratch_name() if self.rng.random() < 0.6 else self.topic.name
        if self.resource_type == GROUP:
            return self.rng.choice(self.world.consumer_groups)
        return str(self.rng.choice(["", *self.world.cluster.broker_ids]))

    def subscription(self) -> bytes:
        """What a classic consumer sends when it joins."""
        owned = [TopicPartition(topic=self.topic.name, partitions=self.partitions())]
        wants = ConsumerProtocolSubscription(
            topics=[topic.name for topic in self.world.cluster.base[:2]], owned_partitions=owned
        )
        return encode_value(wants, self.rng.randrange(4))

    def assignment(self) -> bytes:
        """What a classic leader deals out."""
        part = TopicPartition(topic=self.topic.name, partitions=self.partitions())
        return encode_value(ConsumerProtocolAssignment(assigned_partitions=[part]), 0)

    def records(self, *, spoil: bool = False) -> bytes:
        """A batch of the producer at hand; with `spoil` some field of its header is extreme."""
        rng, producer = self.rng, self.producer
        count = rng.choice([1, 1, 2, 5])
        records = [
            Record(0, NOW_MS + n, b"k%d" % rng.randrange(8), b"v" * rng.choice([0, 3, 90]), [])
            for n in range(count)
        ]
        if spoil and rng.random() < 0.3:
            records = [self._strange_record() for _ in range(count)]
        at = (self.topic.name, self.chosen)
        has_id = producer.producer_id >= 0
        sequence = producer.sequences.get(at, 0) if has_id else -1
        if has_id:
            producer.sequences[at] = sequence + count
        batch = encode_batch(
            records,
            codec=rng.choice([Codec.NONE, Codec.NONE, *Codec]),
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
            is_transactional=has_id and self.is_transactional,
        )
        if not spoil:
            return batch
        if rng.random() < 0.1:
            return batch * rng.choice([2, 3])
        header = read_header(batch)
        name = rng.choice(list(_HEADER_KINDS))
        changed = header._replace(**{name: rng.choice(ENDS[_HEADER_KINDS[name]])})
        return assemble(changed, batch[BATCH_OVERHEAD:])

    def _strange_record(self) -> Record:
        rng = self.rng
        texts = [(text, rng.choice([None, b"", b"h"])) for text in rng.sample(ENDS["string"], 3)]
        often = min(
            200, 1 + HEADERS_BYTES_MAX // (1 + sum(len(text.encode()) for text, _ in texts))
        )
        return Record(
            0,
            rng.choice([NOW_MS, NOW_MS, 0, -1, 2**62]),
            rng.choice([None, b"", b"k" * 40_000]),
            rng.choice([None, b"", b"v" * 200_000, b"{}", b"[" * 5_000]),
            texts * rng.choice([0, 1, often]),
        )


Choice = Callable[[Scene], Any]


def _leader_epoch(scene: Scene) -> int:
    return scene.rng.choice([-1, -1, -1, 0, 1])


def _small_wait(scene: Scene) -> int:
    return scene.rng.choice([0, 1, 5])


def _member_or_new(scene: Scene) -> str:
    """The member at hand; a KIP-848 member names itself."""
    member = scene.member
    if member.member_id or member.is_classic:
        return member.member_id
    return f"{member.group_id}-member-{scene.rng.randrange(3)}"


def _instance(scene: Scene) -> str | None:
    """That of the member at hand; some of those that are new are static."""
    if scene.member.member_id:
        return scene.member.instance_id
    return scene.rng.choice([None, None, *scene.world.instance_ids])


def _joins(scene: Scene) -> bool:
    return scene.member.epoch <= 0


def _rebalance_timeout(scene: Scene) -> int:
    if not scene.member.is_classic and not _joins(scene):
        return -1  # KIP-848: as before
    return scene.rng.choice([100, 300, 1_000, 3_000])


FIELD_VALUES: dict[str, Choice] = {
    # topics and partitions
    "topic_id": lambda s: s.topic.topic_id,
    "name": lambda s: s.topic.name,
    "topic": lambda s: s.topic.name,
    "topic_name": lambda s: s.topic.name,
    "topic_names": lambda s: [s.scratch_name()],
    "RequestTopicData.topic_name": lambda _: "__cluster_metadata",
    "RequestPartitionData.partition_index": lambda _: 0,
    "partition": Scene.partition,
    "partition_index": Scene.partition,
    "index": Scene.partition,
    "partitions": Scene.partitions,
    "partition_indexes": Scene.partitions,
    "MetadataRequestTopic.topic_id": lambda s: s.rng.choice([bytes(16), s.topic.topic_id]),
    "MetadataRequest.allow_auto_topic_creation": lambda _: False,
    "CreatableTopic.name": Scene.scratch_name,
    "CreatableTopic.num_partitions": lambda s: s.rng.choice([-1, 1, 2, 3]),
    "CreatableTopic.replication_factor": lambda s: s.rng.choice([-1, 1]),
    "CreatableTopic.assignments": lambda _: [],
    "DeleteTopicState.name": Scene.scratch_name,
    "DeleteTopicState.topic_id": lambda _: bytes(16),
    "CreatePartitionsTopic.name": Scene.scratch_name,
    "CreatePartitionsTopic.count": lambda s: s.rng.randint(2, 8),
    "CreatePartitionsTopic.assignments": lambda _: None,
    "DeleteRecordsPartition.offset": lambda s: s.rng.choice([0, -1, s.offset()]),
    "replicas": lambda s: s.rng.choice([[0], None, [0, 1]]),
    "broker_ids": lambda s: s.world.cluster.broker_ids[:1],
    "broker_id": lambda s: s.rng.choice([*s.world.cluster.broker_ids, 77]),
    "timestamp": lambda s: s.rng.choice([-1, -2, -1, -2, -3, -4, -5, -6, NOW_MS]),
    "current_leader_epoch": _leader_epoch,
    "committed_leader_epoch": _leader_epoch,
    "last_fetched_epoch": _leader_epoch,
    "leader_epoch": lambda s: s.rng.choice([0, 1]),
    "timeout_ms": lambda s: s.rng.choice([1_000, 5_000]),
    # produce and fetch
    "ProduceRequest.transactional_id": lambda s: s.producer.transactional_id,
    "ProduceRequest.acks": lambda s: s.rng.choice([-1, -1, 1, 1, 1, -1, 1, -1, 0]),
    "records": Scene.records,
    "replica_id": lambda _: -1,
    "FetchRequest.replica_state": lambda _: None,
    "max_wait_ms": _small_wait,
    "min_bytes": lambda s: s.rng.choice([0, 1]),
    "max_bytes": lambda s: s.rng.choice([1, 65_536, 1 << 20]),
    "partition_max_bytes": lambda s: s.rng.choice([1, 4_096, 65_536]),
    "isolation_level": lambda s: s.rng.choice([0, 1]),
    "session_id": lambda s: s.session.session_id,
    "session_epoch": lambda s: s.session.epoch,
    "fetch_offset": Scene.offset,
    "FetchRequest.forgotten_topics_data": lambda _: [],
    # groups
    "group_id": lambda s: s.member.group_id,
    "groups_names": lambda s: [s.member.group_id],
    "group_ids": lambda s: [s.member.group_id],
    "DescribeGroupsRequest.groups": lambda s: [s.member.group_id],
    "member_id": _member_or_new,
    "generation_id": lambda s: s.member.epoch,
    "generation_id_or_member_epoch": lambda s: s.member.epoch,
    "member_epoch": lambda s: max(0, s.member.epoch) if s.rng.random() < 0.9 else -1,
    "group_instance_id": lambda s: s.member.instance_id,
    "instance_id": lambda s: s.member.instance_id,
    "JoinGroupRequest.group_instance_id": _instance,
    "session_timeout_ms": lambda s: s.rng.choice([6_000, 6_000, 10_000]),
    "rebalance_timeout_ms": _rebalance_timeout,
    "protocol_type": lambda _: "consumer",
    "protocol_name": lambda _: "range",
    "JoinGroupRequestProtocol.name": lambda s: "range" if s.rng.random() < 0.9 else "roundrobin",
    "JoinGroupRequestProtocol.metadata": Scene.subscription,
    "assignment": Scene.assignment,
    "SyncGroupRequestAssignment.member_id": lambda s: s.member.member_id,
    "subscribed_topic_names": lambda s: (
        [topic.name for topic in s.world.cluster.base[:2]] if _joins(s) else None
    ),
    "subscribed_topic_regex": lambda s: s.rng.choice([None, None, None, "base-.*"]),
    "server_assignor": lambda s: s.rng.choice([None, "uniform", "range"]),
    "ConsumerGroupHeartbeatRequest.topic_partitions": lambda s: [] if _joins(s) else None,
    "committed_offset": Scene.offset,
    "committed_metadata": lambda s: s.rng.choice(["", "m"]),
    "states_filter": lambda s: s.rng.choice([[], ["Stable"], ["Empty", "Dead"]]),
    "types_filter": lambda s: s.rng.choice([[], ["classic"], ["consumer"]]),
    # transactions
    "key": lambda s: s.member.group_id,
    "coordinator_keys": lambda s: [s.member.group_id],
    "transactional_id": lambda s: s.producer.transactional_id,
    "transactional_ids": lambda s: [s.producer.transactional_id or ""],
    "transaction_timeout_ms": lambda s: s.rng.choice([1_000, 5_000, 60_000]),
    "producer_id": lambda s: s.producer.producer_id,
    "producer_epoch": lambda s: s.producer.producer_epoch,
    "v3_and_below_transactional_id": lambda s: s.producer.transactional_id,
    "v3_and_below_producer_id": lambda s: s.producer.producer_id,
    "v3_and_below_producer_epoch": lambda s: s.producer.producer_epoch,
    "verify_only": lambda s: s.rng.random() < 0.2,
    "committed": lambda s: s.rng.random() < 0.5,
    "coordinator_epoch": lambda s: s.rng.choice([0, 1]),
    "state_filters": lambda s: s.rng.choice([[], ["Ongoing"], ["Empty"]]),
    "producer_id_filters": lambda s: s.rng.choice([[], [s.producer.producer_id]]),
    # configurations, cluster
    "resource_type": lambda s: s.resource_type,
    "resource_name": Scene.resource,
    "configuration_keys": lambda s: s.rng.choice([None, [s.setting()[0]]]),
    "CreatableTopic.configs": lambda s: [],
    "AlterableConfig.name": lambda s: s.setting()[0],
    "AlterableConfig.value": lambda s: s.setting()[1],
    "config_operation": lambda s: s.rng.choice([0, 0, 1, 2, 3]),
    "feature": lambda s: s.rng.choice(s.world.cluster.features or [("none", 0)])[0],
    "max_version_level": lambda s: s.rng.choice(s.world.cluster.features or [("none", 0)])[1],
    "cluster_id": lambda s: s.rng.choice([None, s.world.cluster.cluster_id]),
    "voter_id": lambda s: s.rng.choice([*s.world.cluster.broker_ids, 77]),
    "voter_directory_id": lambda s: s.rng.choice(s.world.cluster.directory_ids or [bytes(16)]),
    "response_partition_limit": lambda s: s.rng.choice([1, 2_000]),
    "DescribeTopicPartitionsRequest.cursor": lambda _: None,
    "client_software_name": lambda _: "fuzz",
    "client_software_version": lambda _: "1.0",
}
"""`Class.field`, or `field` that holds no structs -> its value. None becomes the default
where the version has no null."""

_TRANSACTIONAL = {
    "AddPartitionsToTxnRequest",
    "AddOffsetsToTxnRequest",
    "EndTxnRequest",
    "TxnOffsetCommitRequest",
    "DescribeTransactionsRequest",
}
