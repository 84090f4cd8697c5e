"""DescribeCluster, DescribeTopicPartitions, DescribeLogDirs, UpdateFeatures, ApiVersions."""

from __future__ import annotations

import pytest

from raylog.actors.common_messages import LogDirStatus, PartitionStatus
from raylog.actors.controller.messages import (
    FeatureOutcome,
    FeatureUpdate,
    FeatureUpgradeType,
    UpdateFeatures,
)
from raylog.actors.gateway.connection import UNKNOWN_SOFTWARE
from raylog.actors.gateway.handlers.api_versions import SOFTWARE_MAX
from raylog.actors.metadata.records import FeatureChanged, PartitionChanged
from raylog.actors.names import broker_name
from raylog.client.channel import api_versions_request
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.api_versions import ApiVersionsRequest
from raylog.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from raylog.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from raylog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from raylog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from raylog.wire.schema import INT32_MIN
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import CLUSTER, World, never, run, topic_id

KAFKA = {
    0: (0, 13),
    1: (4, 18),
    2: (1, 11),
    3: (0, 13),
    8: (2, 10),
    9: (1, 10),
    10: (0, 6),
    11: (0, 9),
    12: (0, 4),
    13: (0, 5),
    14: (0, 5),
    15: (0, 6),
    16: (0, 5),
    17: (0, 1),
    18: (0, 4),
    19: (2, 7),
    20: (1, 6),
    21: (0, 2),
    22: (0, 5),
    23: (2, 4),
    24: (0, 5),
    25: (0, 4),
    26: (0, 5),
    27: (1, 2),
    28: (0, 5),
    29: (1, 3),
    30: (1, 3),
    31: (1, 3),
    32: (1, 4),
    33: (0, 2),
    34: (1, 2),
    35: (1, 5),
    36: (0, 2),
    37: (0, 3),
    38: (1, 3),
    39: (1, 2),
    40: (1, 2),
    41: (1, 3),
    42: (0, 2),
    43: (0, 2),
    44: (0, 1),
    45: (0, 1),
    46: (0, 0),
    47: (0, 0),
    48: (0, 1),
    49: (0, 1),
    50: (0, 0),
    51: (0, 0),
    55: (0, 2),
    57: (0, 2),
    60: (0, 2),
    61: (0, 0),
    64: (0, 0),
    65: (0, 0),
    66: (0, 2),
    68: (0, 1),
    69: (0, 1),
    74: (0, 1),
    75: (0, 0),
    76: (1, 1),
    77: (1, 1),
    78: (1, 2),
    79: (1, 2),
    80: (0, 1),
    81: (0, 0),
    83: (0, 0),
    84: (0, 0),
    85: (0, 1),
    86: (0, 0),
    87: (0, 1),
    88: (0, 0),
    89: (0, 0),
    90: (0, 1),
    91: (0, 0),
    92: (0, 0),
}
"""What Apache Kafka 4.3.1 announces to clients: API key to lowest and highest version."""
OTHERS = set(range(83, 90))
"""Between share coordinators and brokers (83 to 87), and groups of Kafka Streams (88 and 89)."""

# ---- DescribeCluster -------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
@in_world(run)
async def test_describe_cluster(world: World, *, version: int) -> None:
    await world.brokers(2, 1, fenced=[2])
    answer = await world.client().ask(DescribeClusterRequest(), version)
    one = DescribeClusterBroker(broker_id=1, host="host1", port=9001, rack="r1")
    assert answer == DescribeClusterResponse(
        cluster_id=CLUSTER,
        controller_id=1,
        brokers=[one],
        cluster_authorized_operations=INT32_MIN,
    )


@in_world(run)
async def test_describe_cluster_with_all_that_may_be_asked(world: World) -> None:
    await world.brokers(2, 1, fenced=[2])
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=True, include_fenced_brokers=True
    )
    answer = await world.client().ask(request, 2)
    assert [(b.broker_id, b.is_fenced) for b in answer.brokers] == [(1, False), (2, True)]
    assert answer.cluster_authorized_operations == 8096


@pytest.mark.parametrize(
    ("endpoint_type", "expected"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
@in_world(run)
async def test_controllers_are_no_endpoints(
    world: World, *, endpoint_type: int, expected: ErrorCode
) -> None:
    request = DescribeClusterRequest(endpoint_type=endpoint_type)
    answer = await world.client().ask(request, 1)
    assert (answer.error_code, answer.brokers) == (expected, [])
    assert "endpoint" in answer.error_message


# ---- DescribeTopicPartitions -----------------------------------------------------------------


def page(
    *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


Described = tuple[dict[str | None, list[int]], tuple[str, int] | None]


def described(answer: DescribeTopicPartitionsResponse) -> Described:
    cursor = answer.next_cursor
    partitions = {t.name: [part.partition_index for part in t.partitions] for t in answer.topics}
    return partitions, None if cursor is None else (cursor.topic_name, cursor.partition_index)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (page("a"), ({"a": [0, 1]}, None)),
        (page("b", "a", limit=3), ({"a": [0, 1], "b": [0]}, ("b", 1))),
        (page("b", "a", limit=2), ({"a": [0, 1]}, ("b", 0))),
        (page(limit=3, cursor=("b", 1)), ({"b": [1, 2, 3]}, ("c", 0))),
        (page("a", "b", limit=3, cursor=("b", 4)), ({"b": []}, None)),
        (page("a", "b", limit=3, cursor=("a", 5)), ({"a": [], "b": [0, 1, 2]}, ("b", 3))),
        (page("a", limit=0), ({"a": [0]}, ("a", 1))),
        (page("a", limit=-1), ({"a": [0]}, ("a", 1))),
        (page(limit=3, cursor=("aa", 1)), ({"b": [0, 1, 2]}, ("b", 3))),
        (page("a", "a"), ({"a": [0, 1]}, None)),
        (page("a", "none", limit=2), ({"a": [0, 1]}, ("none", 0))),
        (page(), ({"a": [0, 1], "b": [0, 1, 2, 3], "c": [0]}, None)),
    ],
)
@in_world(run)
async def test_pages_as_apache_kafka_cuts_them(
    world: World, *, request_: DescribeTopicPartitionsRequest, expected: Described
) -> None:
    for name, count in (("b", 4), ("c", 1), ("a", 2)):
        await world.topic(name, count)
    assert described(await world.client().ask(request_, 0)) == expected


@pytest.mark.parametrize("cursor", [("zz", 0), ("a", -1), ("aa", 1)])
@in_world(run)
async def test_invalid_cursor_is_refused(world: World, *, cursor: tuple[str, int]) -> None:
    await world.topic("a")
    answer = await world.client().ask(page("a", cursor=cursor), 0)
    assert [(t.name, t.error_code) for t in answer.topics] == [("a", ErrorCode.INVALID_REQUEST)]


@in_world(run)
async def test_topic_description_lists_errors_and_partition_state(world: World) -> None:
    await world.brokers(1, 2)
    await world.topic("t", 2, replicas=(1, 2, 3))
    await world.apply(
        PartitionChanged(topic_id("t"), 1, leader=-1, isr=(2,), elr=(3, 1), last_known_elr=(2,))
    )
    answer = await world.client().ask(page("t", "none", "bad name", "__consumer_offsets"), 0)
    internal, illegal, missing, known = answer.topics
    assert illegal.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert (internal.error_code, internal.is_internal) == (3, True)
    assert (missing.error_code, missing.topic_authorized_operations) == (3, 3576)
    assert (known.topic_id, known.error_code) == (topic_id("t"), 0)
    led, orphan = known.partitions
    assert (led.leader_id, led.leader_epoch, led.isr_nodes) == (1, 0, [1, 2, 3])
    assert (led.offline_replicas, led.eligible_leader_replicas) == ([3], [])
    assert (orphan.error_code, orphan.leader_id) == (ErrorCode.NONE, -1)
    assert orphan.isr_nodes == [2]
    assert (orphan.eligible_leader_replicas, orphan.last_known_elr) == ([3, 1], [2])


@in_world(run, max_request_partition_size_limit="2")
async def test_the_brokers_own_limit_on_a_page(world: World) -> None:
    await world.topic("a", 5)
    assert described(await world.client().ask(page(), 0)) == ({"a": [0, 1]}, ("a", 2))


# ---- DescribeLogDirs -------------------------------------------------------------------------


class FakeBroker:
    """A Broker actor with one data directory."""

    def __init__(self, *, offline: bool = False, log_end_offset: int = 9) -> None:
        self.offline = offline
        self.log_end_offset = log_end_offset

    async def describe_log_dirs(self) -> list[LogDirStatus]:
        partitions = [self.status("b", 0), self.status("a", 1), self.status("a", 0)]
        return [LogDirStatus("/data", 1000, 400, partitions, self.offline)]

    def status(self, topic: str, partition: int) -> PartitionStatus:
        return PartitionStatus(
            topic_id(topic),
            topic,
            partition,
            leader_epoch=0,
            is_leader=True,
            log_start_offset=0,
            high_watermark=7,
            log_end_offset=self.log_end_offset,
            size_bytes=100 + partition,
            segments=1,
        )


@pytest.mark.parametrize("version", range(1, 6))
@pytest.mark.parametrize("narrowed", [False, True])
@in_world(run)
async def test_describe_log_dirs(world: World, *, version: int, narrowed: bool) -> None:
    world.runtime.peers[broker_name(CLUSTER, 1)] = FakeBroker()
    topics = [
        DescribableLogDirTopic(topic="a", partitions=[1, 9]),
        DescribableLogDirTopic(topic="none", partitions=[0]),
    ]
    request = DescribeLogDirsRequest(topics=topics if narrowed else None)
    answer = await world.client().ask(request, version)
    every = {"a": [0, 1], "b": [0]}
    expected = {"a": [1]} if narrowed else every
    assert answer.results == [
        DescribeLogDirsResult(
            log_dir="/data",
            topics=[
                DescribeLogDirsTopic(
                    name=name,
                    partitions=[
                        DescribeLogDirsPartition(
                            partition_index=index, partition_size=100 + index, offset_lag=0
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in expected.items()
            ],
            total_bytes=1000 if version >= 4 else -1,
            usable_bytes=400 if version >= 4 else -1,
        )
    ]


@pytest.mark.parametrize(("log_end_offset", "lag"), [(5, 2), (6, 1), (7, 0), (8, 0)])
@in_world(run)
async def test_the_lag_of_a_log_is_what_it_lacks_of_what_is_committed(
    world: World, *, log_end_offset: int, lag: int
) -> None:
    """A replica that was cut may know a high watermark beyond its end for a moment."""

    world.runtime.peers[broker_name(CLUSTER, 1)] = FakeBroker(log_end_offset=log_end_offset)
    answer = await world.client().ask(DescribeLogDirsRequest(topics=None), 5)
    (result,) = answer.results
    assert {one.offset_lag for topic in result.topics for one in topic.partitions} == {lag}


@in_world(run)
async def test_a_failed_disk_is_reported(world: World) -> None:
    world.runtime.peers[broker_name(CLUSTER, 1)] = FakeBroker(offline=True)
    answer = await world.client().ask(DescribeLogDirsRequest(topics=[]), 5)
    (result,) = answer.results
    assert (result.error_code, result.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])


@in_world(run)
async def test_a_broker_that_restarts(world: World) -> None:
    answer = await world.client().ask(DescribeLogDirsRequest(topics=None), 3)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    client = world.client()
    client.send(DescribeLogDirsRequest(topics=None), 2)
    await world.runtime.advance(0)
    assert client.transport.closed


# ---- UpdateFeatures, ApiVersions -------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "key", "kind"),
    [
        (0, FeatureUpdateKey(feature="f", max_version_level=2), FeatureUpgradeType.UPGRADE),
        (
            0,
            FeatureUpdateKey(feature="f", max_version_level=2, allow_downgrade=True),
            FeatureUpgradeType.SAFE_DOWNGRADE,
        ),
        (
            1,
            FeatureUpdateKey(feature="f", max_version_level=2, upgrade_type=3),
            FeatureUpgradeType.UNSAFE_DOWNGRADE,
        ),
        (
            2,
            FeatureUpdateKey(feature="f", max_version_level=2, upgrade_type=2),
            FeatureUpgradeType.SAFE_DOWNGRADE,
        ),
    ],
)
@in_world(run)
async def test_update_features(
    world: World, *, version: int, key: FeatureUpdateKey, kind: FeatureUpgradeType
) -> None:
    world.controller.script["update_features"] = lambda _asked: [FeatureOutcome("f")]
    request = UpdateFeaturesRequest(feature_updates=[key], validate_only=version >= 1)
    answer = await world.client().ask(request, version)
    asked = UpdateFeatures([FeatureUpdate("f", 2, kind)], validate_only=version >= 1)
    assert world.controller.asked == [("update_features", asked)]
    assert answer.error_code == 0
    assert [one.feature for one in answer.results] == (["f"] if version < 2 else [])


@in_world(run)
async def test_one_refused_feature_fails_the_update(world: World) -> None:
    world.controller.script["update_features"] = lambda _asked: [
        FeatureOutcome("f"),
        FeatureOutcome("g", ErrorCode.INVALID_UPDATE_VERSION, "g has no level 9"),
    ]
    keys = [FeatureUpdateKey(feature=name, max_version_level=9) for name in "fg"]
    answer = await world.client().ask(UpdateFeaturesRequest(feature_updates=keys), 1)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert answer.error_message.endswith("g has no level 9")
    assert answer.results == []


@in_world(run)
async def test_an_unknown_upgrade_type_and_a_late_controller(world: World) -> None:
    world.controller.script["update_features"] = never
    client = world.client()
    odd = FeatureUpdateKey(feature="f", max_version_level=1, upgrade_type=5)
    answer = await client.ask(UpdateFeaturesRequest(feature_updates=[odd]), 1)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    sound = FeatureUpdateKey(feature="f", max_version_level=1)
    answer = await client.ask(UpdateFeaturesRequest(feature_updates=[sound]), 1)
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize(
    ("name", "version", "is_valid"),
    [
        ("apache-kafka-java", "4.3.1", True),
        ("c", "0", True),
        ("", "1", False),
        ("client", "", False),
        ("my client", "1", False),
        ("client\n", "1", False),
        ("client", "1.0-", False),
        (".client", "1", False),
        ("cliént", "1", False),
        ("client", "1_0", False),
    ],
)
@in_world(run)
async def test_client_names_its_software_in_letters_and_digits(
    world: World, *, name: str, version: str, is_valid: bool
) -> None:
    """As in Kafka (KIP-511)."""
    client = world.client()
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    answer = await client.ask(request, 3)
    assert answer.error_code == (ErrorCode.NONE if is_valid else ErrorCode.INVALID_REQUEST)
    assert bool(answer.api_keys) == is_valid
    assert client.connection.software == ((name, version) if is_valid else UNKNOWN_SOFTWARE)
    assert not (await client.ask(request, 2)).error_code, "version 2 names none"


@in_world(run)
async def test_only_the_beginning_of_a_long_software_name_is_kept(world: World) -> None:
    client = world.client()
    long = "x" * 32_000
    request = ApiVersionsRequest(client_software_name=long, client_software_version=long)
    assert not (await client.ask(request, 3)).error_code
    assert client.connection.software == (long[:SOFTWARE_MAX], long[:SOFTWARE_MAX])


@in_world(run)
async def test_apis_are_announced_as_by_apache_kafka(world: World) -> None:
    answer = await world.client().ask(api_versions_request(), 4)
    announced = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    assert announced == {key: KAFKA[key] for key in KAFKA if key not in OTHERS}


@pytest.mark.parametrize("version", range(5))
@in_world(run)
async def test_api_versions_tells_apis_and_features(world: World, *, version: int) -> None:
    await world.apply(FeatureChanged("metadata.version", 30, 4))
    answer = await world.client().ask(api_versions_request(), version)
    served = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    assert served[0] == (0, 13)  # announced for librdkafka's sake, served from 3
    assert served[3] == (0, 13)
    assert served[22] == (0, 5)  # version 6 is not announced, as in Apache Kafka
    features = [(f.name, f.max_version_level) for f in answer.finalized_features]
    fixed = [("group.version", 1), ("kraft.version", 1)]
    assert sorted(features) == ([*fixed, ("metadata.version", 30)] if version >= 3 else [])
    assert answer.finalized_features_epoch == (4 if version >= 3 else -1)
