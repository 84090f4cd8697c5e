"""What brokers and gateways ask the Controller, and what it answers.

Every request is safe to repeat: a call may fail after it took effect. A Controller that does not
serve (yet, or any more) raises NotController, which is retriable.

| method                 | argument              | answer                       |
|------------------------|-----------------------|------------------------------|
| register_broker        | RegisterBroker        | broker epoch (int)           |
| heartbeat              | BrokerHeartbeat       | BrokerHeartbeatAnswer        |
| follow                 | Follow                | MetadataUpdate (long poll)   |
| partitions_opened      | PartitionsOpened      | None                         |
| replicas_lost          | ReplicasLost          | None                         |
| alter_partitions       | AlterPartitions       | list of IsrOutcome           |
| elect_leaders          | ElectLeaders          | list of ElectOutcome         |
| alter_reassignments    | AlterReassignments    | list of ReassignOutcome      |
| create_topics          | CreateTopics          | list of TopicOutcome         |
| delete_topics          | DeleteTopics          | list of TopicOutcome         |
| create_partitions      | CreatePartitions      | list of TopicOutcome         |
| alter_configs          | AlterConfigs          | list of ConfigOutcome        |
| update_features        | UpdateFeatures        | list of FeatureOutcome       |
| allocate_producer_ids  | AllocateProducerIds   | ProducerIdBlock              |
| unregister_broker      | broker id (int)       | None                         |
| want_brokers           | list of BrokerWanted, BrokerUnwanted | None          |
| replace_broker         | broker id, id of the directory that is given up | None |
| wanted_brokers         | nothing               | WantedBrokers                |
| add_voter              | AddVoter              | None                         |
| remove_voter           | RemoveVoter           | None                         |
| describe_quorum        | nothing               | QuorumDescription            |
| ping                   | nothing               | dict                         |

The answers to changes leave once the change is committed. Heartbeats may also come over a link:
kind `heartbeat`, header and answer the fields of the two classes in order.

The classes are named tuples (`actors.plain`) where their fields allow it: a tuple has a `count`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from raylog.actors.config import DescribedConfig
from raylog.actors.endpoints import Endpoints
from raylog.actors.metadata.followed import Followed
from raylog.actors.metadata.records import BrokerWanted, Record, Voters
from raylog.actors.plain import distinct, message
from raylog.actors.ports import TopicId
from raylog.wire.errors import ErrorCode
from raylog.wire.uuids import ZERO_UUID

NO_TOPIC = TopicId(ZERO_UUID)
PARTITIONS_PER_REQUEST_MAX = 10_000
"""Apache Kafka's controller takes no request that makes more records."""
TOPICS_PER_REQUEST_MAX = PARTITIONS_PER_REQUEST_MAX // 2
"""Each is two records at least: itself and a partition."""
HEARTBEAT = "heartbeat"


@distinct
class RegisterBroker(NamedTuple):
    """A broker process started and wants a broker epoch."""

    broker_id: int
    cluster_id: str
    directory_id: str
    incarnation: str
    """Unique for each process start; a repeat with the same one gets the same epoch."""
    host: str
    port: int
    """Of the first endpoint: older builds know one."""
    rack: str | None = None
    build: str = ""
    node_id: str = ""
    previous_broker_epoch: int = -1
    """Of the last process on this directory, -1 if none."""
    kept_running: bool = False
    """Whether only the broker's own process ended: same kernel boot, so what the page cache held
    is still there."""
    clean_shutdown: bool = False
    """Whether that last process shut down cleanly."""
    unanswered: tuple[str, ...] = ()
    """Incarnations of later processes on this directory that lost nothing either, and ended before
    they knew whether they were registered."""
    followed: Followed = Followed()
    """Which metadata was followed on this directory, and how far: other metadata is refused."""
    endpoints: Endpoints = ()
    """What clients are told to connect to, for each listener; empty where an older build asks."""


@distinct
class BrokerHeartbeat(NamedTuple):
    """A sign of life."""

    broker_id: int
    broker_epoch: int
    offset: int
    """Metadata applied so far (exclusive)."""
    wants_shutdown: bool = False
    promised_epoch: int = -1
    """Of the metadata log that the broker holds; -1 if it is no voter."""
    heard_ms: float = -1
    """`sent_ms` of the last answer of the controller of that epoch."""


@distinct
class BrokerHeartbeatAnswer(NamedTuple):
    """What the controller thinks of the broker."""

    fenced: bool
    should_shut_down: bool
    offset: int
    """Committed end of the metadata log."""
    controller_epoch: int = -1
    sent_ms: float = -1
    """When this was sent, on the controller's own clock: a voter's next heartbeat returns it."""


@distinct
class WantedBrokers(NamedTuple):
    """Which brokers shall run where, as the metadata has it."""

    offset: int
    """Of the metadata that says so (exclusive)."""
    voters: Voters
    brokers: tuple[BrokerWanted, ...]


@distinct
class Follow(NamedTuple):
    """Ask for metadata from `offset` on; answered when there is some, or after `max_wait_ms`."""

    broker_id: int
    offset: int
    max_wait_ms: int
    controller_epoch: int = -1
    """The highest that the broker knows: a controller of a lower one is not to be followed. That of
    the record before `offset`, unless that is 0."""
    metadata_id: str = ""
    """Of the metadata followed so far."""
    nonce: int = 0
    """Of that controller epoch."""
    followed_offset: int = 0
    """Up to where the broker has followed it; `offset` is 0 after a restart. A snapshot that ends
    before it could not be told from metadata that has lost records."""


@distinct
class MetadataUpdate(NamedTuple):
    """Committed records that take an image from one offset to the next.

    A `from_offset` of -1 is a snapshot that replaces the image. Nothing new: both are equal.
    """

    from_offset: int
    to_offset: int
    records: list[Record]
    parts: tuple[bytes, ...] = ()
    """A snapshot's records instead, encoded (`metadata.snapshots`)."""


@distinct
class OpenedReplica(NamedTuple):
    """A partition replica whose log is open."""

    topic_id: TopicId
    partition: int
    incarnation: str
    whole: bool = True
    """False if it lacks records that it held before it was damaged, or lost."""


@distinct
class PartitionsOpened(NamedTuple):
    """Logs were opened, each as a new incarnation that may lead only under a new leader epoch."""

    broker_id: int
    broker_epoch: int
    opened: list[OpenedReplica]


@distinct
class ReplicasLost(NamedTuple):
    """A Replica process ended: its partitions should be led by others, where there are any."""

    broker_id: int
    broker_epoch: int
    lost: list[tuple[TopicId, int]]


@distinct
class IsrChange(NamedTuple):
    """A leader asks for other in-sync replicas of one partition (KIP-497)."""

    topic_id: TopicId
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, str], ...]
    """(broker id, incarnation the leader saw it fetch as) of each member, the leader included."""


@distinct
class AlterPartitions(NamedTuple):
    """A broker's leaders ask for other in-sync replicas, each on its own."""

    broker_id: int
    broker_epoch: int
    changes: list[IsrChange]


@distinct
class IsrOutcome(NamedTuple):
    """What became of one IsrChange, and how the partition stands now."""

    topic_id: TopicId
    partition: int
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    leader: int = -1
    leader_epoch: int = -1
    partition_epoch: int = -1
    """-1, as the epochs before it: the partition does not exist."""
    isr: tuple[int, ...] = ()


@distinct
class NewTopic(NamedTuple):
    """A topic to be made."""

    name: str
    num_partitions: int = -1
    """-1: num.partitions."""
    replication_factor: int = -1
    """-1: default.replication.factor."""
    assignments: Mapping[int, tuple[int, ...]] = {}
    """Partition to broker ids, if not left to the controller; then both counts must be -1."""
    configs: Mapping[str, str | None] = {}


@distinct
class CreateTopics(NamedTuple):
    """Make topics, each on its own: one that fails does not keep the others."""

    topics: list[NewTopic]
    validate_only: bool = False
    room: int = PARTITIONS_PER_REQUEST_MAX
    """Partitions that may be made in all."""


@message
@dataclass(frozen=True, slots=True)
class DeleteTopics:
    """Delete topics by name or by id."""

    names: list[str] = field(default_factory=list)
    topic_ids: list[TopicId] = field(default_factory=list)


@message
@dataclass(frozen=True, slots=True)
class MorePartitions:
    """A topic that is to have more partitions."""

    name: str
    count: int
    """The new total."""
    assignments: list[tuple[int, ...]] | None = None
    """Broker ids of each new partition, if not left to the controller."""


@distinct
class CreatePartitions(NamedTuple):
    """Add partitions to topics, each on its own."""

    topics: list[MorePartitions]
    validate_only: bool = False
    room: int = PARTITIONS_PER_REQUEST_MAX
    """Partitions that may be made in all."""


@distinct
class TopicOutcome(NamedTuple):
    """What became of one topic of a request."""

    name: str | None
    topic_id: TopicId = NO_TOPIC
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Sequence[DescribedConfig] = ()


class AlterOp(IntEnum):
    """How a setting changes, numbered as in IncrementalAlterConfigs (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@distinct
class ConfigOp(NamedTuple):
    """One change of one setting."""

    name: str
    op: AlterOp
    value: str | None = None


@distinct
class ConfigAlteration(NamedTuple):
    """Changes of one resource."""

    resource_type: int
    resource_name: str
    ops: list[ConfigOp]
    replaces: bool = False
    """Whether settings that are not named go back to their default (the older AlterConfigs)."""


@distinct
class AlterConfigs(NamedTuple):
    """Change settings, each resource on its own."""

    alterations: list[ConfigAlteration]
    validate_only: bool = False


@distinct
class ConfigOutcome(NamedTuple):
    """What became of one resource of a request."""

    resource_type: int
    resource_name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    offset: int = -1
    """Where the metadata log has the change behind it; -1 if nothing was changed."""


class FeatureUpgradeType(IntEnum):
    """How a feature level may move, numbered as in UpdateFeatures (KIP-584)."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@distinct
class FeatureUpdate(NamedTuple):
    """A feature level to be finalized; 0 removes the feature."""

    name: str
    level: int
    upgrade_type: FeatureUpgradeType = FeatureUpgradeType.UPGRADE


@distinct
class UpdateFeatures(NamedTuple):
    """Change finalized feature levels: all of them or none."""

    updates: list[FeatureUpdate]
    validate_only: bool = False


@distinct
class FeatureOutcome(NamedTuple):
    """What became of one feature of a request."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@distinct
class ElectLeaders(NamedTuple):
    """Elect leaders by hand (KIP-460): the preferred ones, or any live ones where none leads."""

    unclean: bool
    partitions: list[tuple[str, int]] | None
    """(topic, partition); None: all, those that need no election left out of the answer."""
    timeout_ms: int


@distinct
class ElectOutcome(NamedTuple):
    """What became of one election."""

    name: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@distinct
class ReassignPartition(NamedTuple):
    """A partition that is to be held by other brokers (KIP-455)."""

    name: str
    partition: int
    replicas: tuple[int, ...] | None
    """Broker ids, the preferred leader first; None calls off the move under way."""


@distinct
class AlterReassignments(NamedTuple):
    """Begin or call off moves of partitions, each on its own."""

    partitions: list[ReassignPartition]
    allow_replication_factor_change: bool = True
    """Whether a partition may get another number of replicas (KIP-860)."""


@distinct
class ReassignOutcome(NamedTuple):
    """What became of one ReassignPartition."""

    name: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@distinct
class AllocateProducerIds(NamedTuple):
    """A broker has used up its block of producer ids."""

    broker_id: int
    broker_epoch: int


@message
@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """Producer ids for one broker to give out."""

    first: int
    count: int


@distinct
class AddVoter(NamedTuple):
    """A broker's copy of the metadata log is to vote (KIP-853)."""

    broker_id: int
    directory_id: str
    timeout_ms: int
    """How long it may take to bring the copy level."""
    ack_when_committed: bool = True
    """Whether the answer waits until the new set of voters is committed."""


@distinct
class RemoveVoter(NamedTuple):
    """A copy of the metadata log is to vote no more (KIP-853)."""

    broker_id: int
    directory_id: str


@distinct
class QuorumReplica(NamedTuple):
    """A copy of the metadata log."""

    broker_id: int
    directory_id: str
    log_end_offset: int
    last_contact_ms: int
    """Wall-clock time, -1 unknown."""
    caught_up_ms: int = -1
    """Wall-clock time at which it held all there was, -1 never seen so."""


@distinct
class QuorumDescription(NamedTuple):
    """Who holds the metadata log, and how far (DescribeQuorum)."""

    leader_id: int
    """A voter: the broker that holds the log nearest to the controller."""
    leader_epoch: int
    """The controller epoch."""
    high_watermark: int
    voters: list[QuorumReplica]
    observers: list[QuorumReplica]
