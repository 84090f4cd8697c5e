"""Features, log directories, config resources and group members, with brokers in memory."""

from __future__ import annotations

import inspect

import pytest

from raylog.client import (
    Admin,
    AsyncAdmin,
    Features,
    NotSupported,
    Resource,
    ResourceType,
    TopicPartition,
    UpgradeType,
)
from raylog.client.admin.acls import AclAdmin
from raylog.client.admin.features import FeatureAdmin
from raylog.client.admin.groups import GroupAdmin
from raylog.client.admin.quotas import QuotaAdmin
from raylog.client.admin.replicas import ReplicaAdmin
from raylog.client.admin.tokens import TokenAdmin
from raylog.client.admin.topics import TopicAdmin
from raylog.client.admin.transactions import TransactionAdmin
from raylog.client.admin.users import UserAdmin
from raylog.client.io import run_blocking
from raylog.wire.api import ApiKey
from raylog.wire.errors import InvalidUpdateVersion, LogDirNotFound
from raylog.wire.messages import alter_replica_log_dirs as log_dirs
from raylog.wire.messages import describe_log_dirs as dirs
from raylog.wire.messages import list_config_resources as resources
from raylog.wire.messages import update_features as features
from tests.worlds.client.cluster import FakeCluster, core_of

OPERATIONS = (
    TopicAdmin,
    GroupAdmin,
    ReplicaAdmin,
    TransactionAdmin,
    AclAdmin,
    QuotaAdmin,
    UserAdmin,
    TokenAdmin,
    FeatureAdmin,
)


@pytest.mark.parametrize("kind", OPERATIONS)
def test_both_clients_have_every_operation_with_the_same_parameters(kind: type) -> None:
    for name, operation in vars(kind).items():
        if not name.startswith("_"):
            parameters = dict(inspect.signature(operation).parameters)
            blocking = dict(inspect.signature(getattr(Admin, name)).parameters)
            assert list(blocking) == list(parameters), name
            assert getattr(AsyncAdmin, name) is operation


def test_features_are_described() -> None:
    cluster = FakeCluster(features={"transaction.version": 2})
    found = run_blocking(FeatureAdmin(core_of(cluster)).describe_features())
    assert found == Features(supported={}, finalized={"transaction.version": 2}, epoch=1)


@pytest.mark.parametrize("newest", [0, 1, 2])
def test_features_are_updated(newest: int) -> None:
    results = [features.UpdatableFeatureResult(feature="a")]
    cluster = FakeCluster(
        newest={ApiKey.UPDATE_FEATURES: newest},
        handlers={
            ApiKey.UPDATE_FEATURES: lambda *_: features.UpdateFeaturesResponse(results=results)
        },
    )
    admin = FeatureAdmin(core_of(cluster))
    run_blocking(admin.update_features({"a": 3}))
    run_blocking(admin.update_features({"a": 1}, upgrade_type=UpgradeType.SAFE_DOWNGRADE))
    up, down = cluster.requests(features.UpdateFeaturesRequest)
    assert isinstance(up, features.UpdateFeaturesRequest)
    assert isinstance(down, features.UpdateFeaturesRequest)
    key = features.FeatureUpdateKey
    if newest:
        assert up.feature_updates == [key(feature="a", max_version_level=3, upgrade_type=1)]
        assert down.feature_updates == [key(feature="a", max_version_level=1, upgrade_type=2)]
    else:
        assert up.feature_updates == [key(feature="a", max_version_level=3)]
        assert down.feature_updates == [key(feature="a", max_version_level=1, allow_downgrade=True)]
    if not newest:
        with pytest.raises(NotSupported, match="too old for validate_only"):
            run_blocking(admin.update_features({"a": 3}, validate_only=True))
        unsafe = UpgradeType.UNSAFE_DOWNGRADE
        with pytest.raises(NotSupported, match="too old for UNSAFE_DOWNGRADE"):
            run_blocking(admin.update_features({"a": 3}, upgrade_type=unsafe))


def test_an_update_that_is_refused() -> None:
    result = features.UpdatableFeatureResult(feature="a", error_code=95, error_message="too new")
    answers = [
        features.UpdateFeaturesResponse(results=[result]),
        features.UpdateFeaturesResponse(error_code=95, error_message="all of it"),
    ]
    cluster = FakeCluster(
        newest={ApiKey.UPDATE_FEATURES: 1},
        handlers={ApiKey.UPDATE_FEATURES: lambda *_: answers.pop(0)},
    )
    admin = FeatureAdmin(core_of(cluster))
    with pytest.raises(InvalidUpdateVersion, match="feature 'a': too new"):
        run_blocking(admin.update_features({"a": 3}))
    with pytest.raises(InvalidUpdateVersion, match="features: all of it"):
        run_blocking(admin.update_features({"a": 3}))


def test_replicas_move_to_other_directories() -> None:
    def alter(broker: int, request: object) -> log_dirs.AlterReplicaLogDirsResponse:
        assert broker == 2
        assert isinstance(request, log_dirs.AlterReplicaLogDirsRequest)
        result = log_dirs.AlterReplicaLogDirPartitionResult
        return log_dirs.AlterReplicaLogDirsResponse(
            results=[
                log_dirs.AlterReplicaLogDirTopicResult(
                    topic_name=topic.name,
                    partitions=[
                        result(partition_index=one, error_code=57 * (moved.path == "/nope"))
                        for one in topic.partitions
                    ],
                )
                for moved in request.dirs
                for topic in moved.topics
            ]
        )

    cluster = FakeCluster(2, handlers={ApiKey.ALTER_REPLICA_LOG_DIRS: alter})
    moves = {TopicPartition("t", 0): "/b", TopicPartition("t", 1): "/b"}
    nowhere = TopicPartition("t", 2)
    admin = ReplicaAdmin(core_of(cluster))
    outcomes = run_blocking(admin.alter_replica_log_dirs(2, {**moves, nowhere: "/nope"}))
    failure = outcomes.pop(nowhere)
    assert isinstance(failure, LogDirNotFound)
    assert str(failure) == "t-2 at broker 2"
    assert outcomes == dict.fromkeys(moves)
    (request,) = cluster.requests(log_dirs.AlterReplicaLogDirsRequest)
    assert isinstance(request, log_dirs.AlterReplicaLogDirsRequest)
    assert [one.path for one in request.dirs] == ["/b", "/nope"]


def test_config_resources_are_listed() -> None:
    found = resources.ConfigResource
    answer = resources.ListConfigResourcesResponse(
        config_resources=[
            found(resource_name="1", resource_type=4),
            found(resource_name="g", resource_type=32),
            found(resource_name="?", resource_type=99),
        ]
    )
    cluster = FakeCluster(handlers={ApiKey.LIST_CONFIG_RESOURCES: lambda *_: answer})
    admin = TopicAdmin(core_of(cluster))
    assert run_blocking(admin.list_config_resources([ResourceType.BROKER, ResourceType.GROUP])) == [
        Resource(ResourceType.BROKER, "1"),
        Resource(ResourceType.GROUP, "g"),
    ]
    (request,) = cluster.requests(resources.ListConfigResourcesRequest)
    assert isinstance(request, resources.ListConfigResourcesRequest)
    assert request.resource_types == [4, 32]


def test_an_older_broker_lists_client_metrics_only() -> None:
    answer = resources.ListConfigResourcesResponse(
        config_resources=[resources.ConfigResource(resource_name="m")]
    )
    cluster = FakeCluster(
        newest={ApiKey.LIST_CONFIG_RESOURCES: 0},
        handlers={ApiKey.LIST_CONFIG_RESOURCES: lambda *_: answer},
    )
    admin = TopicAdmin(core_of(cluster))
    found = run_blocking(admin.list_config_resources([ResourceType.CLIENT_METRICS]))
    assert found == [Resource(ResourceType.CLIENT_METRICS, "m")]
    with pytest.raises(NotSupported, match="CLIENT_METRICS only"):
        run_blocking(admin.list_config_resources())


def test_directories_without_the_replicas_in_them() -> None:
    def described(_: int, request: object) -> dirs.DescribeLogDirsResponse:
        result = dirs.DescribeLogDirsResult(log_dir="/a", total_bytes=10, usable_bytes=4)
        return dirs.DescribeLogDirsResponse(results=[result])

    cluster = FakeCluster(handlers={ApiKey.DESCRIBE_LOG_DIRS: described})
    core = core_of(cluster)
    run_blocking(core.refresh([]))
    admin = TopicAdmin(core)
    asked: list[list[TopicPartition] | None] = [None, [], [TopicPartition("t", 1)]]
    for partitions in asked:
        (one,) = run_blocking(admin.describe_log_dirs([1], partitions=partitions))
        assert (one.path, one.total_bytes, one.usable_bytes) == ("/a", 10, 4)
    requests = cluster.requests(dirs.DescribeLogDirsRequest)
    assert [one.topics for one in requests if isinstance(one, dirs.DescribeLogDirsRequest)] == [
        None,
        [],
        [dirs.DescribableLogDirTopic(topic="t", partitions=[1])],
    ]
