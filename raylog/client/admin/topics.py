"""Operations on topics, partitions, configurations, records, log directories and the cluster.

Changes are not retried once they were sent, unless the broker said that it did not carry them out.
A lost answer raises ConnectionLost or RequestTimedOut, and the outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeVar

from raylog.client.admin.base import Operations, items_in, member_of, names_in
from raylog.client.admin.brokers import ask_broker, reached_broker
from raylog.client.cluster import ClusterView, TopicPartition, TopicView, by_topic
from raylog.client.errors import NotSupported
from raylog.client.matching import answers_among, answers_to, distinct_answers, named
from raylog.client.offsets import Answers, FoundOffset, ask_leaders, list_offsets
from raylog.client.refusals import check, refusal
from raylog.wire.api import ApiKey
from raylog.wire.errors import KafkaError, LeaderNotAvailable
from raylog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from raylog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from raylog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from raylog.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from raylog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from raylog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from raylog.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from raylog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from raylog.wire.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

C = TypeVar("C", AlterConfigsResourceResponse, DescribeConfigsResult)

DEFAULT = -1
"""The broker chooses the number of partitions or replicas (KIP-464)."""
HIGH_WATERMARK = -1
"""As an offset for DeleteRecords: delete all records."""


class ResourceType(IntEnum):
    """Types of resources that can be configured."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a value comes from."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created."""

    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Broker ids by partition, leader first; replaces the two numbers."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A configured resource: a topic by name, a broker by id ("" for all brokers)."""

    type: ResourceType
    name: str


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting of a resource."""

    name: str
    value: str | None
    """None if the broker keeps it secret."""
    source: ConfigSource
    is_sensitive: bool
    read_only: bool
    documentation: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerView:
    """One broker, as reported by DescribeCluster."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster's id, controller and brokers."""

    cluster_id: str
    controller_id: int
    brokers: list[BrokerView]


@dataclass(frozen=True, slots=True)
class LogDirPartition:
    """One replica's files."""

    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    is_future: bool = False
    """Whether it is a copy in progress, which will replace the one in another directory."""


@dataclass(frozen=True, slots=True)
class LogDir:
    """One data directory of one broker; sizes in bytes, -1 if unknown."""

    broker_id: int
    path: str
    total_bytes: int
    usable_bytes: int
    partitions: list[LogDirPartition]
    failure: KafkaError | None = None


class TopicAdmin(Operations):
    """The operations; the blocking and the asyncio client offer each as one call."""

    # -- topics --------------------------------------------------------------------------------

    async def metadata(self, topics: Iterable[str] | None = None) -> ClusterView:
        """Return current metadata: brokers and topics (None: all topics)."""
        names = None if topics is None else names_in(topics, "topics")
        await self._core.repeat(lambda: self._core.refresh(names))
        return self._core.cluster

    async def describe_topic(self, topic: str) -> TopicView:
        """Return a topic's metadata; raises UnknownTopicOrPartition."""
        await self.metadata([topic])
        return self._core.cluster.topic(topic)

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> None:
        """Create topics and wait until they have leaders; raises the first error."""
        topics = items_in(topics, NewTopic)
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in topics],
            timeout_ms=self._core.settings.request_timeout_ms,
            validate_only=validate_only,
        )
        response = await self._core.ask_controller(request, CreateTopicsResponse)
        answers = ((result.name, result) for result in response.topics)
        for name, result in answers_to((topic.name for topic in topics), answers, _topic).items():
            check(result.error_code, _topic(name), result.error_message)
        if not validate_only:
            await self._led([topic.name for topic in topics])

    async def delete_topics(self, topics: Sequence[str]) -> None:
        """Delete topics by name; raises the first error."""
        topics = names_in(topics, "topics")
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in topics],
            topic_names=topics,
            timeout_ms=self._core.settings.request_timeout_ms,
        )
        response = await self._core.ask_controller(request, DeleteTopicsResponse)
        self._core.cluster.forget(topics)
        answers = ((result.name, result) for result in response.responses)
        for name, result in answers_to(topics, answers, _topic).items():
            check(result.error_code, _topic(name), result.error_message)

    async def create_partitions(self, topic: str, count: int) -> None:
        """Increase a topic's number of partitions to `count`. This cannot be undone."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=count, assignments=None)],
            timeout_ms=self._core.settings.request_timeout_ms,
        )
        response = await self._core.ask_controller(request, CreatePartitionsResponse)
        answers = ((result.name, result) for result in response.results)
        result = answers_to([topic], answers, _topic)[topic]
        check(result.error_code, _topic(topic), result.error_message)
        await self._led([topic], count)

    # -- configuration -------------------------------------------------------------------------

    async def describe_configs(
        self, resource: Resource, *, documentation: bool = False
    ) -> list[ConfigEntry]:
        """Return all settings of a resource."""
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configuration_keys=None,
                )
            ],
            include_documentation=documentation,
        )

        async def attempt() -> DescribeConfigsResponse:
            return await self._core.ask(
                await self._node_of(resource), request, DescribeConfigsResponse
            )

        response = await self._core.look(attempt)
        (result,) = _about(resource, response.results)
        check(result.error_code, _name(resource.type, resource.name), result.error_message)
        return [
            ConfigEntry(
                config.name,
                config.value,
                member_of(ConfigSource, config.config_source, ConfigSource.UNKNOWN),
                config.is_sensitive,
                config.read_only,
                config.documentation,
            )
            for config in result.configs
        ]

    async def alter_configs(
        self,
        resource: Resource,
        changes: Mapping[str, str | None] | None = None,
        *,
        append: Mapping[str, str] | None = None,
        subtract: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Set values, or reset them to the default with None; other settings stay (KIP-339).

        `append` adds comma-separated values to settings that are lists; `subtract` removes values.
        """
        asked = [
            (name, _DELETE if value is None else _SET, value)
            for name, value in (changes or {}).items()
        ]
        asked += [(name, _APPEND, value) for name, value in (append or {}).items()]
        asked += [(name, _SUBTRACT, value) for name, value in (subtract or {}).items()]
        configs = [
            AlterableConfig(name=name, config_operation=operation, value=value)
            for name, operation, value in asked
        ]
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=resource.type, resource_name=resource.name, configs=configs
                )
            ],
            validate_only=validate_only,
        )
        response = await self._core.ask(
            await self._node_of(resource), request, IncrementalAlterConfigsResponse
        )
        (result,) = _about(resource, response.responses)
        check(result.error_code, _name(resource.type, resource.name), result.error_message)

    async def list_config_resources(self, types: Iterable[ResourceType] = ()) -> list[Resource]:
        """Return the resources that can be configured, of some types (none: of all types).

        Raises NotSupported if the broker is too old to list types other than CLIENT_METRICS (before
        Kafka 4.1).
        """
        wanted = list(types)

        async def attempt() -> ListConfigResourcesResponse:
            node_id = await self._core.any_node()
            version = await self._core.version_on(node_id, ApiKey.LIST_CONFIG_RESOURCES)
            if version < _ALL_RESOURCES_SINCE and wanted != [ResourceType.CLIENT_METRICS]:
                raise NotSupported("the broker lists resources of type CLIENT_METRICS only")
            request = ListConfigResourcesRequest()
            if version >= _ALL_RESOURCES_SINCE:
                request.resource_types = [int(kind) for kind in wanted]
            return await self._core.ask(node_id, request, ListConfigResourcesResponse)

        response = await self._core.look(attempt)
        check(response.error_code, "config resources")
        known = set(ResourceType)
        return [
            Resource(ResourceType(found.resource_type), found.resource_name)
            for found in response.config_resources
            if found.resource_type in known
        ]

    # -- records -------------------------------------------------------------------------------

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, FoundOffset]:
        """Return offsets by timestamp in ms, EARLIEST, LATEST or MAX_TIMESTAMP."""
        return await list_offsets(self._core, wanted, read_committed=read_committed)

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Delete records below an offset (HIGH_WATERMARK: all); return the new first offsets."""

        def request(keys: list[TopicPartition]) -> DeleteRecordsRequest:
            return DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name=topic,
                        partitions=[
                            DeleteRecordsPartition(
                                partition_index=key.partition, offset=before[key]
                            )
                            for key in of_topic
                        ],
                    )
                    for topic, of_topic in by_topic(keys).items()
                ],
                timeout_ms=self._core.settings.request_timeout_ms,
            )

        def answers(response: DeleteRecordsResponse) -> Answers[int]:
            for topic in response.topics:
                for answer in topic.partitions:
                    key = TopicPartition(topic.name, answer.partition_index)
                    yield key, refusal(answer.error_code, key) or answer.low_watermark

        return await ask_leaders(self._core, before, request, DeleteRecordsResponse, answers)

    # -- cluster -------------------------------------------------------------------------------

    async def describe_cluster(self) -> ClusterDescription:
        """Return cluster id, controller and brokers; from Kafka 4.0 on also fenced brokers."""

        async def attempt() -> DescribeClusterResponse:
            request = DescribeClusterRequest()
            node_id = await self._core.any_node()
            if await self._core.version_on(node_id, _DESCRIBE_CLUSTER) >= _FENCED_SINCE:
                request.include_fenced_brokers = True
            return await self._core.ask(node_id, request, DescribeClusterResponse)

        response = await self._core.look(attempt)
        check(response.error_code, "cluster", response.error_message)
        return ClusterDescription(
            response.cluster_id,
            response.controller_id,
            [
                BrokerView(
                    broker.broker_id, broker.host, broker.port, broker.rack, broker.is_fenced
                )
                for broker in response.brokers
            ],
        )

    async def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        *,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> list[LogDir]:
        """Return the data directories of brokers (None: of all) and the sizes of their replicas.

        With `partitions`, list only replicas of these; if it is empty, only the directories.
        """
        if brokers is None:
            brokers = sorted((await self.metadata([])).nodes)
        keys = None if partitions is None else list(partitions)
        topics = None
        if keys is not None:
            topics = [
                DescribableLogDirTopic(topic=topic, partitions=[key.partition for key in of_topic])
                for topic, of_topic in by_topic(keys).items()
            ]
        request = DescribeLogDirsRequest(topics=topics)
        found: list[LogDir] = []
        for broker_id in brokers:
            response = await ask_broker(self._core, broker_id, request, DescribeLogDirsResponse)
            check(response.error_code, f"broker {broker_id}")
            answers = ((result.log_dir, result) for result in response.results)
            found += (
                _log_dir(broker_id, result, keys)
                for result in distinct_answers(answers, named("log directory")).values()
            )
        return found

    # -- inside --------------------------------------------------------------------------------

    async def _led(self, topics: Sequence[str], partitions: int = 1) -> None:
        """Wait until topics have at least that many partitions, all with leaders."""

        async def attempt() -> None:
            await self._core.refresh(topics)
            for name in topics:
                views = self._core.cluster.topic(name).partitions
                led = sum(view.leader >= 0 for view in views.values())
                if led < max(partitions, len(views)):
                    raise LeaderNotAvailable(f"{led} of {len(views)} partitions of {name!r} lead")

        await self._core.repeat(attempt)

    async def _node_of(self, resource: Resource) -> int:
        """Return the broker to ask about a resource: a broker itself, else any broker."""
        if resource.type not in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
            return await self._core.any_node()
        if not resource.name:
            return await self._core.any_node()
        return await reached_broker(self._core, resource.name)


_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
"""Kafka's `AlterConfigOp.OpType`."""
_BOTH = (False, True)
"""A replica, and a copy that will replace one in another directory."""
_topic = named("topic")
_DESCRIBE_CLUSTER = ApiKey.DESCRIBE_CLUSTER
_FENCED_SINCE = 2
"""First DescribeCluster version that can report fenced brokers (KIP-1073)."""
_ALL_RESOURCES_SINCE = 1
"""First ListConfigResources version that can list all types (KIP-1142)."""


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=DEFAULT if topic.assignments else topic.partitions,
        replication_factor=DEFAULT if topic.assignments else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
            for partition, brokers in topic.assignments.items()
        ],
        configs=[
            CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
        ],
    )


def _name(kind: int, name: str) -> str:
    """Format a resource for messages."""
    if kind not in set(ResourceType):
        return f"resource {name!r} of type {kind}"
    if kind == ResourceType.CLIENT_METRICS:
        return f"client metrics subscription {repr(name) if name else 'with an empty name'}"
    known = ResourceType(kind).name.lower().replace("_", " ")
    return f"{known} {name!r}" if name else f"all {known}s"


def _about(resource: Resource, results: Iterable[C]) -> Iterable[C]:
    """Return the single result about a resource."""
    asked = [(int(resource.type), resource.name)]
    answers = (((result.resource_type, result.resource_name), result) for result in results)
    return answers_to(asked, answers, lambda key: _name(*key)).values()


def _log_dir(
    broker_id: int, result: DescribeLogDirsResult, asked: Iterable[TopicPartition] | None
) -> LogDir:
    replicas = [
        LogDirPartition(
            topic.name, at.partition_index, at.partition_size, at.offset_lag, at.is_future_key
        )
        for topic in result.topics
        for at in topic.partitions
    ]
    answers = (((TopicPartition(at.topic, at.partition), at.is_future), None) for at in replicas)
    expected = None if asked is None else {(key, future) for key in asked for future in _BOTH}
    answers_among(expected, answers, lambda key: str(key[0]))
    failure = refusal(result.error_code, result.log_dir)
    return LogDir(
        broker_id, result.log_dir, result.total_bytes, result.usable_bytes, replicas, failure
    )
