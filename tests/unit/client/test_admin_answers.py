"""Responses that omit what was asked for, repeat it, or contain what was not asked for."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from raylog.client import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclResourceType,
    NewTopic,
    NotKafka,
    QuotaEntity,
    Resource,
    ResourcePattern,
    ResourceType,
    ScramDeletion,
    ScramMechanism,
    TopicPartition,
)
from raylog.client.admin.acls import AclAdmin
from raylog.client.admin.features import FeatureAdmin
from raylog.client.admin.groups import GroupAdmin
from raylog.client.admin.quotas import QuotaAdmin
from raylog.client.admin.replicas import METADATA_LOG, ReplicaAdmin
from raylog.client.admin.topics import TopicAdmin
from raylog.client.admin.transactions import TransactionAdmin, transactions_on
from raylog.client.admin.users import UserAdmin
from raylog.client.core import Core
from raylog.client.io import run_blocking
from raylog.wire.api import ApiKey
from raylog.wire.messages import alter_client_quotas as altered_quotas
from raylog.wire.messages import alter_partition_reassignments as reassigned
from raylog.wire.messages import alter_replica_log_dirs as moved
from raylog.wire.messages import alter_user_scram_credentials as altered_users
from raylog.wire.messages import consumer_group_describe as consumer_groups
from raylog.wire.messages import create_acls as created_acls
from raylog.wire.messages import create_partitions as grown
from raylog.wire.messages import create_topics as created
from raylog.wire.messages import delete_acls as deleted_acls
from raylog.wire.messages import delete_groups as deleted_groups
from raylog.wire.messages import delete_records as deleted_records
from raylog.wire.messages import delete_topics as deleted
from raylog.wire.messages import describe_client_quotas as described_quotas
from raylog.wire.messages import describe_configs as described_configs
from raylog.wire.messages import describe_groups as classic_groups
from raylog.wire.messages import describe_log_dirs as log_dirs
from raylog.wire.messages import describe_producers as producers
from raylog.wire.messages import describe_quorum as quorum
from raylog.wire.messages import describe_topic_partitions as described_topics
from raylog.wire.messages import describe_transactions as described_transactions
from raylog.wire.messages import describe_user_scram_credentials as described_users
from raylog.wire.messages import elect_leaders as elected
from raylog.wire.messages import incremental_alter_configs as altered_configs
from raylog.wire.messages import leave_group as left_group
from raylog.wire.messages import list_partition_reassignments as listed_moves
from raylog.wire.messages import offset_commit as committed
from raylog.wire.messages import offset_delete as deleted_offsets
from raylog.wire.messages import offset_fetch as fetched
from raylog.wire.messages import update_features as features
from raylog.wire.messages import write_txn_markers as markers
from raylog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from raylog.wire.messages.metadata import MetadataRequest
from tests.worlds.client.cluster import FakeCluster, core_of

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOPIC = Resource(ResourceType.TOPIC, "t")
ANN = QuotaEntity(user="ann")
READ = AclBinding(ResourcePattern(AclResourceType.TOPIC, "t"), "User:ann", AclOperation.READ)

MISSING = "expected an answer about {asked}, found none"
DOUBLED = "expected one answer about {asked}, found two"
UNASKED = "expected no answer about {other}, found one"
COUNT = {
    "missing": "expected 1 answers, found 0",
    "doubled": "expected 1 answers, found 2",
    "unasked": "expected 1 answers, found 2",
}
"""Of answers that say by their places alone what they are about."""


@dataclass(frozen=True)
class Case:
    """One operation on one item."""

    key: ApiKey
    call: Callable[[Core], Coroutine[object, object, object]]
    answer: Callable[[list[Any]], object]
    """The response that is about these things."""
    asked: Any
    other: Any
    """What nobody asked for."""
    name: Callable[[Any], str] = str
    """How messages call it."""
    says: dict[str, str] = field(
        default_factory=lambda: {"missing": MISSING, "doubled": DOUBLED, "unasked": UNASKED}
    )
    newest: int | None = None


def named(what: str) -> Callable[[Any], str]:
    return lambda key: f"{what} {key!r}"


def by_name(key: ApiKey, call: Any, answer: Any, what: str, **more: Any) -> Case:
    return Case(key, call, answer, "t", "u", named(what), **more)


def by_partition(key: ApiKey, call: Any, answer: Any, **more: Any) -> Case:
    return Case(key, call, answer, P0, P1, **more)


def of_topic(topic: type, result: type, keys: list[TopicPartition], **names: str) -> list[Any]:
    """Results by partition in a topic; `names` are those of the three fields."""
    inside = [
        result(**{names.get("index", "partition_index"): one.partition, **OFFSET.get(result, {})})
        for one in keys
    ]
    name, partitions = names.get("name", "name"), names.get("partitions", "partitions")
    return [topic(**{name: "t", partitions: inside})] if keys else []


OFFSET: dict[type, dict[str, int]] = {
    fetched.OffsetFetchResponsePartitions: {"committed_offset": 7},
    fetched.OffsetFetchResponsePartition: {"committed_offset": 7},
}


def offsets_of_group(keys: list[TopicPartition]) -> fetched.OffsetFetchResponse:
    topic, result = fetched.OffsetFetchResponseTopics, fetched.OffsetFetchResponsePartitions
    group = fetched.OffsetFetchResponseGroup(group_id="g", topics=of_topic(topic, result, keys))
    return fetched.OffsetFetchResponse(groups=[group])


def offsets_of_one_group(keys: list[TopicPartition]) -> fetched.OffsetFetchResponse:
    topic, result = fetched.OffsetFetchResponseTopic, fetched.OffsetFetchResponsePartition
    return fetched.OffsetFetchResponse(topics=of_topic(topic, result, keys))


def directories(keys: list[TopicPartition]) -> log_dirs.DescribeLogDirsResponse:
    topics = of_topic(log_dirs.DescribeLogDirsTopic, log_dirs.DescribeLogDirsPartition, keys)
    return log_dirs.DescribeLogDirsResponse(
        results=[log_dirs.DescribeLogDirsResult(log_dir="/a", topics=topics)]
    )


CASES = {
    "create_topics": by_name(
        ApiKey.CREATE_TOPICS,
        lambda core: TopicAdmin(core).create_topics([NewTopic("t")]),
        lambda names: created.CreateTopicsResponse(
            topics=[created.CreatableTopicResult(name=one) for one in names]
        ),
        "topic",
    ),
    "delete_topics": by_name(
        ApiKey.DELETE_TOPICS,
        lambda core: TopicAdmin(core).delete_topics(["t"]),
        lambda names: deleted.DeleteTopicsResponse(
            responses=[deleted.DeletableTopicResult(name=one) for one in names]
        ),
        "topic",
    ),
    "create_partitions": by_name(
        ApiKey.CREATE_PARTITIONS,
        lambda core: TopicAdmin(core).create_partitions("t", 2),
        lambda names: grown.CreatePartitionsResponse(
            results=[grown.CreatePartitionsTopicResult(name=one) for one in names]
        ),
        "topic",
    ),
    "describe_configs": by_name(
        ApiKey.DESCRIBE_CONFIGS,
        lambda core: TopicAdmin(core).describe_configs(TOPIC),
        lambda names: described_configs.DescribeConfigsResponse(
            results=[
                described_configs.DescribeConfigsResult(resource_type=2, resource_name=one)
                for one in names
            ]
        ),
        "topic",
    ),
    "describe_configs of another type": Case(
        ApiKey.DESCRIBE_CONFIGS,
        lambda core: TopicAdmin(core).describe_configs(TOPIC),
        lambda types: described_configs.DescribeConfigsResponse(
            results=[
                described_configs.DescribeConfigsResult(resource_type=one, resource_name="t")
                for one in types
            ]
        ),
        2,
        99,
        lambda type_: "topic 't'" if type_ == 2 else "resource 't' of type 99",
    ),
    "alter_configs": by_name(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        lambda core: TopicAdmin(core).alter_configs(TOPIC, {"retention.ms": "1"}),
        lambda names: altered_configs.IncrementalAlterConfigsResponse(
            responses=[
                altered_configs.AlterConfigsResourceResponse(resource_type=2, resource_name=one)
                for one in names
            ]
        ),
        "topic",
    ),
    "delete_records": by_partition(
        ApiKey.DELETE_RECORDS,
        lambda core: TopicAdmin(core).delete_records({P0: 5}),
        lambda keys: deleted_records.DeleteRecordsResponse(
            topics=of_topic(
                deleted_records.DeleteRecordsTopicResult,
                deleted_records.DeleteRecordsPartitionResult,
                keys,
            )
        ),
        says={"missing": MISSING},
    ),
    "describe_log_dirs": by_partition(
        ApiKey.DESCRIBE_LOG_DIRS,
        lambda core: TopicAdmin(core).describe_log_dirs([1], partitions=[P0]),
        directories,
        says={"unasked": UNASKED},
    ),
    "describe_log_dirs of all": Case(
        ApiKey.DESCRIBE_LOG_DIRS,
        lambda core: TopicAdmin(core).describe_log_dirs([1]),
        lambda paths: log_dirs.DescribeLogDirsResponse(
            results=[log_dirs.DescribeLogDirsResult(log_dir=one) for one in paths]
        ),
        "/a",
        "/b",
        named("log directory"),
        says={"doubled": DOUBLED},
    ),
    "create_acls": Case(
        ApiKey.CREATE_ACLS,
        lambda core: AclAdmin(core).create_acls([READ]),
        lambda which: created_acls.CreateAclsResponse(
            results=[created_acls.AclCreationResult() for _ in which]
        ),
        0,
        1,
        says=COUNT,
    ),
    "delete_acls": Case(
        ApiKey.DELETE_ACLS,
        lambda core: AclAdmin(core).delete_acls([AclFilter()]),
        lambda which: deleted_acls.DeleteAclsResponse(
            filter_results=[deleted_acls.DeleteAclsFilterResult() for _ in which]
        ),
        0,
        1,
        says=COUNT,
    ),
    "describe_client_quotas": Case(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        lambda core: QuotaAdmin(core).describe_client_quotas(),
        lambda users: described_quotas.DescribeClientQuotasResponse(
            entries=[
                described_quotas.EntryData(
                    entity=[described_quotas.EntityData(entity_type="user", entity_name=one)]
                )
                for one in users
            ]
        ),
        "ann",
        "bob",
        lambda user: f"quotas of user {user!r}",
        says={"doubled": DOUBLED},
    ),
    "alter_client_quotas": Case(
        ApiKey.ALTER_CLIENT_QUOTAS,
        lambda core: QuotaAdmin(core).alter_client_quotas({ANN: {"producer_byte_rate": 1.0}}),
        lambda users: altered_quotas.AlterClientQuotasResponse(
            entries=[
                altered_quotas.ResponseEntryData(
                    entity=[altered_quotas.EntityData(entity_type="user", entity_name=one)]
                )
                for one in users
            ]
        ),
        "ann",
        "bob",
        lambda user: f"quotas of user {user!r}",
    ),
    "describe_user_scram_credentials": by_name(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        lambda core: UserAdmin(core).describe_user_scram_credentials(["t"]),
        lambda users: described_users.DescribeUserScramCredentialsResponse(
            results=[described_users.DescribeUserScramCredentialsResult(user=one) for one in users]
        ),
        "user",
    ),
    "describe_user_scram_credentials of all": by_name(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        lambda core: UserAdmin(core).describe_user_scram_credentials(),
        lambda users: described_users.DescribeUserScramCredentialsResponse(
            results=[described_users.DescribeUserScramCredentialsResult(user=one) for one in users]
        ),
        "user",
        says={"doubled": DOUBLED},
    ),
    "alter_user_scram_credentials": by_name(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        lambda core: UserAdmin(core).alter_user_scram_credentials(
            [ScramDeletion("t", ScramMechanism.SCRAM_SHA_256)]
        ),
        lambda users: altered_users.AlterUserScramCredentialsResponse(
            results=[altered_users.AlterUserScramCredentialsResult(user=one) for one in users]
        ),
        "user",
    ),
    "update_features": by_name(
        ApiKey.UPDATE_FEATURES,
        lambda core: FeatureAdmin(core).update_features({"t": 1}),
        lambda names: features.UpdateFeaturesResponse(
            results=[features.UpdatableFeatureResult(feature=one) for one in names]
        ),
        "feature",
        newest=1,
    ),
    "describe_partitions": by_name(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        lambda core: ReplicaAdmin(core).describe_partitions(["t"]),
        lambda names: described_topics.DescribeTopicPartitionsResponse(
            topics=[
                described_topics.DescribeTopicPartitionsResponseTopic(name=one) for one in names
            ]
        ),
        "topic",
        says={"missing": MISSING, "unasked": UNASKED},
    ),
    "describe_partitions of all": by_partition(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        lambda core: ReplicaAdmin(core).describe_partitions(),
        lambda keys: described_topics.DescribeTopicPartitionsResponse(
            topics=of_topic(
                described_topics.DescribeTopicPartitionsResponseTopic,
                described_topics.DescribeTopicPartitionsResponsePartition,
                keys,
            )
        ),
        says={"doubled": DOUBLED},
    ),
    "elect_leaders": by_partition(
        ApiKey.ELECT_LEADERS,
        lambda core: ReplicaAdmin(core).elect_leaders([P0]),
        lambda keys: elected.ElectLeadersResponse(
            replica_election_results=of_topic(
                elected.ReplicaElectionResult,
                elected.PartitionResult,
                keys,
                name="topic",
                partitions="partition_result",
                index="partition_id",
            )
        ),
    ),
    "alter_reassignments": by_partition(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        lambda core: ReplicaAdmin(core).alter_reassignments({P0: [1]}),
        lambda keys: reassigned.AlterPartitionReassignmentsResponse(
            responses=of_topic(
                reassigned.ReassignableTopicResponse, reassigned.ReassignablePartitionResponse, keys
            )
        ),
    ),
    "list_reassignments": by_partition(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        lambda core: ReplicaAdmin(core).list_reassignments([P0]),
        lambda keys: listed_moves.ListPartitionReassignmentsResponse(
            topics=of_topic(
                listed_moves.OngoingTopicReassignment,
                listed_moves.OngoingPartitionReassignment,
                keys,
            )
        ),
        says={"doubled": DOUBLED, "unasked": UNASKED},
    ),
    "alter_replica_log_dirs": by_partition(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        lambda core: ReplicaAdmin(core).alter_replica_log_dirs(1, {P0: "/a"}),
        lambda keys: moved.AlterReplicaLogDirsResponse(
            results=of_topic(
                moved.AlterReplicaLogDirTopicResult,
                moved.AlterReplicaLogDirPartitionResult,
                keys,
                name="topic_name",
            )
        ),
    ),
    "describe_quorum": Case(
        ApiKey.DESCRIBE_QUORUM,
        lambda core: ReplicaAdmin(core).describe_quorum(),
        lambda names: quorum.DescribeQuorumResponse(
            topics=[
                quorum.TopicData(topic_name=one, partitions=[quorum.PartitionData()])
                for one in names
            ]
        ),
        METADATA_LOG,
        "t",
        lambda name: f"{name}-0",
    ),
    "describe_groups": by_name(
        ApiKey.DESCRIBE_GROUPS,
        lambda core: GroupAdmin(core).describe_groups(["t"]),
        lambda groups: classic_groups.DescribeGroupsResponse(
            groups=[classic_groups.DescribedGroup(group_id=one) for one in groups]
        ),
        "group",
    ),
    "describe_groups of consumers": by_name(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        lambda core: GroupAdmin(core).describe_groups(["t"]),
        lambda groups: consumer_groups.ConsumerGroupDescribeResponse(
            groups=[consumer_groups.DescribedGroup(group_id=one) for one in groups]
        ),
        "group",
    ),
    "delete_groups": by_name(
        ApiKey.DELETE_GROUPS,
        lambda core: GroupAdmin(core).delete_groups(["t"]),
        lambda groups: deleted_groups.DeleteGroupsResponse(
            results=[deleted_groups.DeletableGroupResult(group_id=one) for one in groups]
        ),
        "group",
    ),
    "group_offsets": by_partition(
        ApiKey.OFFSET_FETCH,
        lambda core: GroupAdmin(core).group_offsets("g", [P0]),
        offsets_of_group,
    ),
    "group_offsets of all": by_partition(
        ApiKey.OFFSET_FETCH,
        lambda core: GroupAdmin(core).group_offsets("g"),
        offsets_of_group,
        says={"doubled": DOUBLED},
    ),
    "group_offsets of an older broker": by_partition(
        ApiKey.OFFSET_FETCH,
        lambda core: GroupAdmin(core).group_offsets("g", [P0]),
        offsets_of_one_group,
        newest=7,
    ),
    "commit_group_offsets": by_partition(
        ApiKey.OFFSET_COMMIT,
        lambda core: GroupAdmin(core).commit_group_offsets("g", {P0: 5}),
        lambda keys: committed.OffsetCommitResponse(
            topics=of_topic(
                committed.OffsetCommitResponseTopic, committed.OffsetCommitResponsePartition, keys
            )
        ),
    ),
    "delete_group_offsets": by_partition(
        ApiKey.OFFSET_DELETE,
        lambda core: GroupAdmin(core).delete_group_offsets("g", [P0, P0]),
        lambda keys: deleted_offsets.OffsetDeleteResponse(
            topics=of_topic(
                deleted_offsets.OffsetDeleteResponseTopic,
                deleted_offsets.OffsetDeleteResponsePartition,
                keys,
            )
        ),
    ),
    "remove_group_members": by_name(
        ApiKey.LEAVE_GROUP,
        lambda core: GroupAdmin(core).remove_group_members("g", ["t"]),
        lambda ids: left_group.LeaveGroupResponse(
            members=[left_group.MemberResponse(member_id="", group_instance_id=one) for one in ids]
        ),
        "member",
    ),
    "describe_producers": by_partition(
        ApiKey.DESCRIBE_PRODUCERS,
        lambda core: TransactionAdmin(core).describe_producers([P0]),
        lambda keys: producers.DescribeProducersResponse(
            topics=of_topic(producers.TopicResponse, producers.PartitionResponse, keys)
        ),
        says={"missing": MISSING},
    ),
    "describe_producers of a broker": by_partition(
        ApiKey.DESCRIBE_PRODUCERS,
        lambda core: TransactionAdmin(core).describe_producers([P0], broker_id=1),
        lambda keys: producers.DescribeProducersResponse(
            topics=of_topic(producers.TopicResponse, producers.PartitionResponse, keys)
        ),
    ),
    "transactions_on": by_name(
        ApiKey.DESCRIBE_TRANSACTIONS,
        lambda core: transactions_on(core, 1, ["t"]),
        lambda ids: described_transactions.DescribeTransactionsResponse(
            transaction_states=[
                described_transactions.TransactionState(transactional_id=one) for one in ids
            ]
        ),
        "transactional id",
    ),
    "abort_in_partition": by_partition(
        ApiKey.WRITE_TXN_MARKERS,
        lambda core: TransactionAdmin(core).abort_in_partition(P0, 7, 0, 0),
        lambda keys: markers.WriteTxnMarkersResponse(
            markers=[
                markers.WritableTxnMarkerResult(
                    producer_id=7,
                    topics=of_topic(
                        markers.WritableTxnMarkerTopicResult,
                        markers.WritableTxnMarkerPartitionResult,
                        keys,
                    ),
                )
            ]
        ),
    ),
    "metadata": by_name(
        ApiKey.METADATA,
        lambda core: TopicAdmin(core).describe_topic("t"),
        lambda names: with_topics(names),
        "topic",
        says={"missing": MISSING},
    ),
}


def with_topics(names: list[str]) -> object:
    """Metadata of topics with two partitions each."""
    cluster = FakeCluster(topics={one: {0: 1, 1: 1} for one in names})
    return cluster.metadata(MetadataRequest(topics=None))


def coordinators(_: int, request: object) -> FindCoordinatorResponse:
    assert isinstance(request, FindCoordinatorRequest)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=1, host="fake", port=9001)
            for key in request.coordinator_keys
        ]
    )


def core_for(case: Case, *keys: object) -> Core:
    """A client of a broker whose answer is about some things, after it has seen the metadata."""
    cluster = FakeCluster(topics={"t": {0: 1, 1: 1}})
    cluster.handlers[ApiKey.FIND_COORDINATOR] = coordinators
    if case.key is not ApiKey.CONSUMER_GROUP_DESCRIBE:
        cluster.newest[ApiKey.CONSUMER_GROUP_DESCRIBE] = -1
    if case.newest is not None:
        cluster.newest[case.key] = case.newest
    core = core_of(cluster)
    run_blocking(core.refresh(["t"]))
    cluster.handlers[case.key] = lambda *_: case.answer(list(keys))
    return core


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_an_answer_about_what_was_asked_is_taken(case: Case) -> None:
    run_blocking(case.call(core_for(case, case.asked)))


@pytest.mark.parametrize(
    ("case", "fault"),
    [
        pytest.param(case, fault, id=f"{name}-{fault}")
        for name, case in CASES.items()
        for fault in case.says
    ],
)
def test_an_answer_that_does_not_fit_is_refused(case: Case, fault: str) -> None:
    answers = {
        "missing": [],
        "doubled": [case.asked, case.asked],
        "unasked": [case.asked, case.other],
    }[fault]
    with pytest.raises(NotKafka) as refused:
        run_blocking(case.call(core_for(case, *answers)))
    names = {"asked": case.name(case.asked), "other": case.name(case.other)}
    assert str(refused.value) == case.says[fault].format(**names)


def test_pages_that_do_not_go_on_are_refused() -> None:
    page = described_topics.DescribeTopicPartitionsResponse(
        topics=[],
        next_cursor=described_topics.Cursor(topic_name="t", partition_index=0),
    )
    cluster = FakeCluster(handlers={ApiKey.DESCRIBE_TOPIC_PARTITIONS: lambda *_: page})
    with pytest.raises(
        NotKafka, match="expected a page that ends after t-0, found one that ends at t-0"
    ):
        run_blocking(ReplicaAdmin(core_of(cluster)).describe_partitions())
    assert len(cluster.requests(described_topics.DescribeTopicPartitionsRequest)) == 2
