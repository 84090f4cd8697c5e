"""CreateTopics, API key 19.

v2 returns the throttle time.
v4 accepts -1 for the default number of partitions and replicas (KIP-464).
v5 is flexible and returns the new topic's configuration (KIP-525).
v6 may return THROTTLING_QUOTA_EXCEEDED (KIP-599).
v7 returns the topic id (KIP-516).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import BOOL, INT8, INT16, INT32, STRING, UUID, array, message, struct, wire


@struct
class CreatableReplicaAssignment:
    """The brokers of one partition. The first one leads."""

    partition_index: int = wire(INT32)
    broker_ids: list[int] = wire(array(INT32))


@struct
class CreatableTopicConfig:
    """One setting of the new topic."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable="0+")


@struct
class CreatableTopic:
    """One topic to create."""

    name: str = wire(STRING)
    num_partitions: int = wire(INT32)  # -1: the broker's default, or from the assignments
    replication_factor: int = wire(INT16)  # -1: the broker's default, or from the assignments
    assignments: list[CreatableReplicaAssignment] = wire(array(CreatableReplicaAssignment))
    configs: list[CreatableTopicConfig] = wire(array(CreatableTopicConfig))


@message(ApiKey.CREATE_TOPICS, versions="2-7", flexible="5+")
class CreateTopicsRequest:
    """The topics to create. Each succeeds or fails on its own."""

    topics: list[CreatableTopic] = wire(array(CreatableTopic))
    timeout_ms: int = wire(INT32, default=60000)  # how long to wait for them
    validate_only: bool = wire(BOOL)  # check, create nothing


@struct
class CreatableTopicConfigs:
    """A setting of the new topic."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable="0+")
    read_only: bool = wire(BOOL)
    config_source: int = wire(INT8, default=-1, ignorable=True)  # as in DescribeConfigs
    is_sensitive: bool = wire(BOOL)


@struct
class CreatableTopicResult:
    """The outcome for one topic."""

    name: str = wire(STRING)
    topic_id: bytes = wire(UUID, "7+", ignorable=True)  # KIP-516
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    # why configs is None, if it is (KIP-525)
    topic_config_error_code: int = wire(INT16, "5+", tag=0, ignorable=True)
    num_partitions: int = wire(INT32, "5+", default=-1, ignorable=True)  # KIP-525
    replication_factor: int = wire(INT16, "5+", default=-1, ignorable=True)  # KIP-525
    # KIP-525
    configs: list[CreatableTopicConfigs] | None = wire(
        array(CreatableTopicConfigs), "5+", nullable="0+", ignorable=True
    )


@message(ApiKey.CREATE_TOPICS, versions="2-7", flexible="5+")
class CreateTopicsResponse:
    """The outcomes."""

    throttle_time_ms: int = wire(INT32)
    topics: list[CreatableTopicResult] = wire(array(CreatableTopicResult))
