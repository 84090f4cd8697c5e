"""Requests of brokers and gateways to the Controller, and its responses.

Every request is safe to repeat, because a call may fail after it has taken effect. A Controller
that does not serve raises NotController, which is retriable.

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
| replace_broker         | broker id, id of the directory to give up | None     |
| wanted_brokers         | nothing               | WantedBrokers                |
| add_voter              | AddVoter              | None                         |
| remove_voter           | RemoveVoter           | None                         |
| describe_quorum        | nothing               | QuorumDescription            |
| ping                   | nothing               | dict                         |

Changes are answered once they are committed. Heartbeats may also come over a link, as requests of
the kind `heartbeat`; header and response are then the fields of the two classes, in order.

The classes are named tuples (`actors.message`), except those with a field called `count`, which is
a method of tuples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from raylog.actors.common_messages import TopicId
from raylog.actors.config import DescribedConfig
from raylog.actors.endpoints import Endpoints
from raylog.actors.message import distinct, keeps_place, message
from raylog.actors.metadata.followed import Followed
from raylog.actors.metadata.records import BrokerWanted, Record, Voters
from raylog.wire.errors import ErrorCode
from raylog.wire.uuids import ZERO_UUID

NO_TOPIC = TopicId(ZERO_UUID)
PARTITIONS_PER_REQUEST_MAX = 10_000
"""Maximum number of records that Apache Kafka's controller accepts for one request."""
TOPICS_PER_REQUEST_MAX = PARTITIONS_PER_REQUEST_MAX // 2
"""Each topic takes at least two records: its own, and one per partition."""
HEARTBEAT = "heartbeat"


@distinct
class RegisterBroker(NamedTuple):
    """Requests a broker epoch for a broker process that has started."""

    broker_id: int
    cluster_id: str
    directory_id: str
    incarnation: str
    """Unique for each start of the process. A repeated request with the same value gets the same
    epoch."""
    host: str
    port: int
    """Port of the first endpoint; older builds know no other."""
    rack: str | None = None
    build: str = ""
    node_id: str = ""
    previous_broker_epoch: int = -1
    """Epoch of the last process on this directory; -1 if none."""
    kept_running: bool = False
    """Whether only the broker's process has ended since, under the same kernel boot, so that the
    page cache is intact."""
    clean_shutdown: bool = False
    """Whether that last process shut down cleanly."""
    unanswered: tuple[str, ...] = ()
    """Incarnations of later processes on this directory that lost nothing either, and that ended
    before they knew whether they were registered."""
    followed: Followed = Followed()
    """The metadata that was followed on this directory, and up to where. Metadata that contradicts
    it is refused."""
    endpoints: Endpoints = ()
    """The advertised endpoint of each listener; empty from older builds."""


@distinct
class BrokerHeartbeat(NamedTuple):
    """Extends a broker's session."""

    broker_id: int
    broker_epoch: int
    offset: int
    """The end (exclusive) of the metadata that the broker has applied."""
    wants_shutdown: bool = False
    promised_epoch: int = -1
    """Epoch that the broker's copy of the metadata log has promised; -1 if it is not a voter."""
    heard_ms: float = -1
    """The `sent_ms` of the last answer from the controller of that epoch."""


@distinct
class BrokerHeartbeatAnswer(NamedTuple):
    """The broker's state according to the controller."""

    fenced: bool
    should_shut_down: bool
    offset: int = -1
    """The end (exclusive) of the metadata log, committed or not, after the heartbeat. Builds before
    `lease_ms` sent the committed end."""
    controller_epoch: int = -1
    sent_ms: float = -1
    """When this was sent, by the controller's clock. A voter's next heartbeat returns the value."""
    lease_ms: int = 2_500
    """For how long from when the heartbeat was sent no controller fences the broker for silence,
    neither this one nor a successor."""


@distinct
class WantedBrokers(NamedTuple):
    """The brokers that should run, and where, according to the metadata."""

    offset: int
    """The end (exclusive) of the metadata on which this is based."""
    voters: Voters
    brokers: tuple[BrokerWanted, ...]


@distinct
class Follow(NamedTuple):
    """Requests metadata from `offset` on; answered when there is some, or after `max_wait_ms`."""

    broker_id: int
    offset: int
    max_wait_ms: int
    controller_epoch: int = -1
    """The highest controller epoch that the broker knows; lower epochs must not be followed. If
    `offset` is not 0, the epoch of the record before it."""
    metadata_id: str = ""
    """Id of the metadata that was followed so far."""
    nonce: int = 0
    """Nonce of that controller epoch."""
    followed_offset: int = 0
    """Up to where the broker has followed the metadata; `offset` is 0 after a restart. A snapshot
    that ends before this could not be distinguished from metadata that has lost records."""


@distinct
class MetadataUpdate(NamedTuple):
    """Committed records that update an image from one offset to another.

    A `from_offset` of -1 means a snapshot that replaces the image. Equal offsets mean that there is
    nothing new.
    """

    from_offset: int
    to_offset: int
    records: list[Record]
    parts: tuple[bytes, ...] = ()
    """The encoded records of a snapshot (`peers.metadata_copies`), in place of `records`."""


@distinct
class OpenedReplica(NamedTuple):
    """A partition replica whose log was opened."""

    topic_id: TopicId
    partition: int
    incarnation: str
    whole: bool = True
    """False if it lacks records that it once held, because of damage or loss."""


@distinct
class PartitionsOpened(NamedTuple):
    """Reports opened logs, each a new incarnation that may lead only under a new leader epoch."""

    broker_id: int
    broker_epoch: int
    opened: list[OpenedReplica]


@distinct
class ReplicasLost(NamedTuple):
    """Reports the end of a Replica process: its replicas leave the ISR, and others can lead."""

    broker_id: int
    broker_epoch: int
    lost: list[tuple[TopicId, int]]


@distinct
class IsrChange(NamedTuple):
    """A leader's proposal of another ISR for one partition (KIP-497)."""

    topic_id: TopicId
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, str], ...]
    """(broker id, incarnation under which the leader saw it fetch) of each member, including the
    leader."""


@distinct
class AlterPartitions(NamedTuple):
    """Proposals of a broker's leaders, each handled independently."""

    broker_id: int
    broker_epoch: int
    changes: list[IsrChange]


@distinct
class IsrOutcome(NamedTuple):
    """The outcome of an IsrChange, and the state of the partition now."""

    topic_id: TopicId
    partition: int
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    leader: int = -1
    leader_epoch: int = -1
    partition_epoch: int = -1
    """Like the epochs above, -1 if the partition does not exist."""
    isr: tuple[int, ...] = ()


@distinct
class NewTopic(NamedTuple):
    """A topic to create."""

    name: str
    num_partitions: int = -1
    """If -1, num.partitions applies."""
    replication_factor: int = -1
    """If -1, default.replication.factor applies."""
    assignments: Mapping[int, tuple[int, ...]] = {}
    """Partition to broker ids, for a manual assignment; then both counts must be -1."""
    configs: Mapping[str, str | None] = {}


@distinct
class CreateTopics(NamedTuple):
    """Creates topics independently: one that fails does not affect the others."""

    topics: list[NewTopic]
    validate_only: bool = False
    room: int = PARTITIONS_PER_REQUEST_MAX
    """Maximum number of partitions that may be created in total."""


@message
@dataclass(frozen=True, slots=True)
class DeleteTopics:
    """Deletes topics by name or by id."""

    names: list[str] = field(default_factory=list)
    topic_ids: list[TopicId] = field(default_factory=list)


@message
@dataclass(frozen=True, slots=True)
class MorePartitions:
    """A topic that gets more partitions."""

    name: str
    count: int
    """The new total."""
    assignments: list[tuple[int, ...]] | None = None
    """Broker ids for each new partition, for a manual assignment."""


@distinct
class CreatePartitions(NamedTuple):
    """Adds partitions to topics; each topic succeeds or fails independently."""

    topics: list[MorePartitions]
    validate_only: bool = False
    room: int = PARTITIONS_PER_REQUEST_MAX
    """Maximum number of partitions that may be created in total."""


@distinct
class TopicOutcome(NamedTuple):
    """The outcome of one topic of a request."""

    name: str | None
    topic_id: TopicId = NO_TOPIC
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Sequence[DescribedConfig] = ()


@keeps_place
class AlterOp(IntEnum):
    """The way a setting changes; the numbers are those of IncrementalAlterConfigs (KIP-339)."""

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
    """Changes to one resource."""

    resource_type: int
    resource_name: str
    ops: list[ConfigOp]
    replaces: bool = False
    """Whether settings that are not listed return to their defaults, as in AlterConfigs."""


@distinct
class AlterConfigs(NamedTuple):
    """Changes settings, each resource independently."""

    alterations: list[ConfigAlteration]
    validate_only: bool = False


@distinct
class ConfigOutcome(NamedTuple):
    """The outcome of one resource of a request."""

    resource_type: int
    resource_name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    offset: int = -1
    """The end of the metadata log that includes the change; -1 if nothing changed."""


@keeps_place
class FeatureUpgradeType(IntEnum):
    """The allowed change of a feature level; the numbers are those of UpdateFeatures (KIP-584)."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@distinct
class FeatureUpdate(NamedTuple):
    """A feature level to finalize; 0 removes the feature."""

    name: str
    level: int
    upgrade_type: FeatureUpgradeType = FeatureUpgradeType.UPGRADE


@distinct
class UpdateFeatures(NamedTuple):
    """Changes finalized feature levels: all of them or none."""

    updates: list[FeatureUpdate]
    validate_only: bool = False


@distinct
class FeatureOutcome(NamedTuple):
    """The outcome of one feature of a request."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@distinct
class ElectLeaders(NamedTuple):
    """Elects leaders (KIP-460): the preferred ones, or any live replica if nobody leads."""

    unclean: bool
    partitions: list[tuple[str, int]] | None
    """(topic, partition) pairs. None means all partitions; those that need no election are then not
    reported."""
    timeout_ms: int


@distinct
class ElectOutcome(NamedTuple):
    """The outcome of one election."""

    name: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@distinct
class ReassignPartition(NamedTuple):
    """A partition that moves to other brokers (KIP-455)."""

    name: str
    partition: int
    replicas: tuple[int, ...] | None
    """Broker ids, the preferred leader first; None cancels the reassignment in progress."""


@distinct
class AlterReassignments(NamedTuple):
    """Starts or cancels reassignments; each succeeds or fails independently."""

    partitions: list[ReassignPartition]
    allow_replication_factor_change: bool = True
    """Whether the number of replicas may change (KIP-860)."""


@distinct
class ReassignOutcome(NamedTuple):
    """The outcome of one ReassignPartition."""

    name: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@distinct
class AllocateProducerIds(NamedTuple):
    """Requests the next block of producer ids for a broker."""

    broker_id: int
    broker_epoch: int


@message
@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """Producer ids that one broker may hand out."""

    first: int
    count: int


@distinct
class AddVoter(NamedTuple):
    """Makes a broker's copy of the metadata log a voter (KIP-853)."""

    broker_id: int
    directory_id: str
    timeout_ms: int
    """How long the copy may take to catch up."""
    ack_when_committed: bool = True
    """Whether the answer waits until the new voter set is committed."""


@distinct
class RemoveVoter(NamedTuple):
    """Removes a copy of the metadata log from the voters (KIP-853)."""

    broker_id: int
    directory_id: str


@distinct
class QuorumReplica(NamedTuple):
    """A copy of the metadata log."""

    broker_id: int
    directory_id: str
    log_end_offset: int
    last_contact_ms: int
    """Wall-clock time; -1 if unknown."""
    caught_up_ms: int = -1
    """Wall-clock time at which it last held the whole log; -1 if never."""


@distinct
class QuorumDescription(NamedTuple):
    """The copies of the metadata log, and how far each has got (DescribeQuorum)."""

    leader_id: int
    """The voter whose broker has the copy closest to the controller's."""
    leader_epoch: int
    """The controller epoch."""
    high_watermark: int
    voters: list[QuorumReplica]
    observers: list[QuorumReplica]
