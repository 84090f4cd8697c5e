"""What a broker announces and has, and the topics that requests are aimed at."""

from __future__ import annotations

from typing import Any

from raylog.client.channel import api_versions_request
from raylog.wire.api import ApiKey
from raylog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from raylog.wire.messages.describe_cluster import DescribeClusterRequest
from raylog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from raylog.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
)
from tests.fuzz.field_values import TOPIC
from tests.fuzz.world import BASE, Cluster, Topic
from tests.support.wire_client import WireClient

AIMS: dict[str, dict[str, str]] = {
    "plain": {},
    "zstd": {"compression.type": "zstd"},
    "compact": {"cleanup.policy": "compact"},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
}
"""Topics aimed at, and their configurations beside the bounds of size."""

BOUNDS = {"segment.bytes": "1048576", "retention.bytes": "4194304"}
PARTITIONS = 2
STRANGE_SETTINGS = [
    ("cleanup.policy", "compact"),
    ("retention.ms", "1000"),
    ("segment.bytes", "16384"),
    ("min.insync.replicas", "2"),
    ("compression.type", "gzip"),
    ("max.message.bytes", "100"),
    ("raylog.interceptors", "json-schema"),
    ("flush.messages", "1"),
]
"""Given to topics that requests make, beside the defaults."""


def survey(host: str, port: int) -> tuple[dict[int, range], Cluster]:
    """The APIs and versions that the broker announces; what it has, with new topics to aim at."""
    with WireClient(host, port) as client:
        announced = client.ask(api_versions_request(), 4)
        served = {
            one.api_key: _versions(one.api_key, one.min_version, one.max_version)
            for one in announced.api_keys
        }
        described = client.ask(DescribeClusterRequest(), 0)
        cluster = Cluster(
            base=_make_topics(client),
            cluster_id=described.cluster_id,
            broker_ids=[broker.broker_id for broker in described.brokers],
            directory_ids=_directory_ids(client),
            features=[
                (feature.name, feature.max_version_level)
                for feature in announced.finalized_features
            ],
        )
        cluster.topic_settings = [*_settings(client, cluster.base[0].name), *STRANGE_SETTINGS]
    return served, cluster


def _versions(api_key: int, first: int, last: int) -> range:
    """Those announced that exist: Produce is announced from version 0, as Apache Kafka does."""
    known = ApiKey(api_key)
    return range(max(first, known.first_version), min(last, known.last_version) + 1)


def make_topic(client: WireClient, name: str, partitions: int, configs: dict[str, str]) -> Any:
    """Make a topic and return what the answer says of it."""
    asked = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=-1,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    (answer,) = client.ask(CreateTopicsRequest(topics=[asked], timeout_ms=30_000), 7).topics
    assert answer.error_code == 0, answer
    return answer


def _make_topics(client: WireClient) -> list[Topic]:
    made = []
    for aim, configs in AIMS.items():
        answer = make_topic(client, BASE + aim, PARTITIONS, configs | BOUNDS)
        made.append(Topic(answer.name, answer.topic_id, PARTITIONS))
    return made


def _settings(client: WireClient, topic: str) -> list[tuple[str, str]]:
    asked = DescribeConfigsResource(
        resource_type=TOPIC, resource_name=topic, configuration_keys=None
    )
    (found,) = client.ask(DescribeConfigsRequest(resources=[asked]), 4).results
    return [(one.name, one.value) for one in found.configs if one.value is not None]


def _directory_ids(client: WireClient) -> list[bytes]:
    asked = RequestTopicData(
        topic_name="__cluster_metadata", partitions=[RequestPartitionData(partition_index=0)]
    )
    answer = client.ask(DescribeQuorumRequest(topics=[asked]), 2)
    voters = answer.topics[0].partitions[0].current_voters if answer.error_code == 0 else []
    return [voter.replica_directory_id for voter in voters]
