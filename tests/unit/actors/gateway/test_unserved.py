"""Requests that are only refused: client quotas, logger levels, other directories, credentials."""

from __future__ import annotations

import pytest

from raylog.actors.common_messages import LogDirStatus, PartitionStatus
from raylog.actors.names import broker_name
from raylog.wire.errors import ErrorCode
from raylog.wire.messages import alter_client_quotas as altering
from raylog.wire.messages import alter_user_scram_credentials as scram
from raylog.wire.messages import describe_user_scram_credentials as describing_scram
from raylog.wire.messages import incremental_alter_configs as incremental
from raylog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from raylog.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from raylog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import CLUSTER, World, run, topic_id

LOGGER = 8
NONE, INVALID, VERSION = (
    ErrorCode.NONE,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNSUPPORTED_VERSION,
)
EXACT, DEFAULT, ANY = range(3)

# ---- client quotas ---------------------------------------------------------------------------


def component(kind: str, match_type: int = ANY, match: str | None = None) -> ComponentData:
    return ComponentData(entity_type=kind, match_type=match_type, match=match)


@pytest.mark.parametrize(
    ("components", "code", "message"),
    [
        ([], NONE, ""),
        ([component("user")], NONE, ""),
        ([component("user", EXACT, "u"), component("client-id", DEFAULT)], NONE, ""),
        ([component("ip", EXACT, "127.0.0.1")], NONE, ""),
        ([component("user", EXACT, "")], NONE, ""),
        ([component("user"), component("user")], INVALID, "user cannot appear more than once"),
        ([component("")], INVALID, "empty entity type"),
        ([component("topic")], VERSION, "Unsupported entity type topic"),
        ([component("user", 3)], INVALID, "Unknown match type 3"),
        ([component("user", -1)], INVALID, "Unknown match type -1"),
        ([component("user", EXACT)], INVALID, "set match string to null"),
        ([component("user", DEFAULT, "u")], INVALID, "MATCH_TYPE_DEFAULT, but also"),
        ([component("user", ANY, "u")], INVALID, "MATCH_TYPE_SPECIFIED, but also"),
        ([component("ip"), component("user")], INVALID, "IP filter component"),
        ([component("client-id"), component("ip")], INVALID, "IP filter component"),
    ],
)
@pytest.mark.parametrize("version", [0, 1])
@in_world(run)
async def test_filters_of_quotas(
    world: World, *, components: list[ComponentData], code: ErrorCode, message: str, version: int
) -> None:
    request = DescribeClientQuotasRequest(components=components)
    answer = await world.client().ask(request, version)
    assert answer.error_code == code
    assert message in answer.error_message
    assert answer.entries == (None if code else [])


@in_world(run)
async def test_quotas_cannot_be_set(world: World) -> None:
    names = [("user", "u"), ("client-id", None)]
    entity = [altering.EntityData(entity_type=kind, entity_name=name) for kind, name in names]
    entries = [altering.EntryData(entity=entity), altering.EntryData(entity=entity[:1])]
    request = altering.AlterClientQuotasRequest(entries=entries)
    answer = await world.client().ask(request, 1)
    assert [one.error_code for one in answer.entries] == [VERSION, VERSION]
    assert [one.entity for one in answer.entries] == [entity, entity[:1]]


# ---- loggers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("1", NONE, ""),
        ("", INVALID, "must not be empty"),
        ("x", INVALID, "must be an integer, but it is: x"),
        ("2", INVALID, "expected 1 but received 2"),
    ],
)
@in_world(run)
async def test_loggers_are_described_of_this_broker(
    world: World, *, name: str, code: ErrorCode, message: str
) -> None:
    asked = DescribeConfigsResource(
        resource_type=LOGGER, resource_name=name, configuration_keys=["root"]
    )
    answer = await world.client().ask(DescribeConfigsRequest(resources=[asked]), 4)
    (result,) = answer.results
    assert (result.error_code, result.resource_name) == (code, name)
    assert message in result.error_message
    assert [one.name for one in result.configs] == ([] if code else ["root"])


SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.mark.parametrize(
    ("name", "change", "code", "message"),
    [
        ("", ("root", SET, "INFO"), INVALID, "must be an integer"),
        ("x", ("root", SET, "INFO"), INVALID, "must be an integer"),
        ("2", ("root", SET, "INFO"), INVALID, "Expected 1, but received 2"),
        ("1", ("root", APPEND, "INFO"), INVALID, "APPEND operation is not allowed"),
        ("1", ("root", SUBTRACT, "INFO"), INVALID, "SUBTRACT operation is not allowed"),
        ("1", ("root", 9, "INFO"), INVALID, "9 operation is not allowed"),
        ("1", ("none", SET, "INFO"), ErrorCode.INVALID_CONFIG, "none does not exist"),
        ("1", ("none", DELETE, None), ErrorCode.INVALID_CONFIG, "none does not exist"),
        ("1", ("root", DELETE, None), INVALID, "of the root logger is not allowed"),
        ("1", ("root", SET, "LOUD"), ErrorCode.INVALID_CONFIG, "LOUD as it is not a supported"),
        ("1", ("root", SET, "INFO"), VERSION, "cannot be changed"),
        ("1", ("raylog.actors.gateway.connection", DELETE, None), VERSION, "cannot be changed"),
    ],
)
@in_world(run)
async def test_invalid_logger_changes_are_refused(
    world: World, *, name: str, change: tuple[str, int, str | None], code: ErrorCode, message: str
) -> None:
    logger, operation, level = change
    config = incremental.AlterableConfig(name=logger, config_operation=operation, value=level)
    resource = incremental.AlterConfigsResource(
        resource_type=LOGGER, resource_name=name, configs=[config]
    )
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = (await world.client().ask(request, 1)).responses
    assert (answer.error_code, answer.resource_type) == (code, LOGGER)
    assert answer.resource_name == name
    assert message in answer.error_message
    assert world.controller.asked == []


# ---- directories -----------------------------------------------------------------------------


class Broker:
    """A Broker actor whose directory holds partition 0 of topic `t`."""

    async def describe_log_dirs(self) -> list[LogDirStatus]:
        status = PartitionStatus(topic_id("t"), "t", 0, 0, True, 0, 7, 9, 100, 1)
        return [LogDirStatus("/data", 1000, 400, [status], offline=False)]


def wish(path: str, topic: str, *partitions: int) -> AlterReplicaLogDir:
    topics = [AlterReplicaLogDirTopic(name=topic, partitions=list(partitions))]
    return AlterReplicaLogDir(path=path, topics=topics)


@pytest.mark.parametrize("version", [1, 2])
@in_world(run)
async def test_a_partition_is_where_it_shall_be_or_cannot_be_moved(
    world: World, *, version: int
) -> None:
    world.runtime.peers[broker_name(CLUSTER, 1)] = Broker()
    wishes = [wish("/data", "t", 0, 1), wish("/none", "u", 0), wish("/data", "u", 3)]
    request = AlterReplicaLogDirsRequest(dirs=wishes)
    answer = await world.client().ask(request, version)
    answers = [
        (topic.topic_name, one.partition_index, ErrorCode(one.error_code).name)
        for topic in answer.results
        for one in topic.partitions
    ]
    assert answers == [
        ("t", 0, "NONE"),
        ("t", 1, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("u", 0, "LOG_DIR_NOT_FOUND"),
        ("u", 3, "UNKNOWN_TOPIC_OR_PARTITION"),
    ]


@pytest.mark.parametrize(
    ("paths", "code"), [("/none /data", "NONE"), ("/data /none", "LOG_DIR_NOT_FOUND")]
)
@in_world(run)
async def test_the_last_wish_for_a_partition_counts(world: World, *, paths: str, code: str) -> None:
    world.runtime.peers[broker_name(CLUSTER, 1)] = Broker()
    request = AlterReplicaLogDirsRequest(dirs=[wish(path, "t", 0) for path in paths.split()])
    ((partition,),) = [topic.partitions for topic in (await world.client().ask(request, 2)).results]
    assert ErrorCode(partition.error_code).name == code


# ---- credentials -----------------------------------------------------------------------------


@in_world(run)
async def test_nobody_has_scram_credentials(world: World) -> None:
    users = [describing_scram.UserName(name=name) for name in ("b", "a", "b")]
    request = describing_scram.DescribeUserScramCredentialsRequest(users=users)
    answer = await world.client().ask(request, 0)
    assert [(one.user, ErrorCode(one.error_code).name) for one in answer.results] == [
        ("a", "RESOURCE_NOT_FOUND"),
        ("b", "DUPLICATE_RESOURCE"),
    ]
    everybody = describing_scram.DescribeUserScramCredentialsRequest(users=None)
    assert (await world.client().ask(everybody, 0)).results == []


@pytest.mark.parametrize(
    ("user", "mechanism", "upsertion", "deletion"),
    [
        ("u", 1, "UNSUPPORTED_VERSION", "RESOURCE_NOT_FOUND"),
        ("u", 2, "UNSUPPORTED_VERSION", "RESOURCE_NOT_FOUND"),
        ("u", 0, "UNSUPPORTED_SASL_MECHANISM", "UNSUPPORTED_SASL_MECHANISM"),
        ("u", 3, "UNSUPPORTED_SASL_MECHANISM", "UNSUPPORTED_SASL_MECHANISM"),
        ("", 1, "UNACCEPTABLE_CREDENTIAL", "UNACCEPTABLE_CREDENTIAL"),
    ],
)
@in_world(run)
async def test_scram_credentials_cannot_be_changed(
    world: World, *, user: str, mechanism: int, upsertion: str, deletion: str
) -> None:
    upserted = scram.ScramCredentialUpsertion(name=user, mechanism=mechanism)
    deleted = scram.ScramCredentialDeletion(name=user, mechanism=mechanism)
    for request, expected in (
        (scram.AlterUserScramCredentialsRequest(upsertions=[upserted]), upsertion),
        (scram.AlterUserScramCredentialsRequest(deletions=[deleted]), deletion),
    ):
        (result,) = (await world.client().ask(request, 0)).results
        assert (result.user, ErrorCode(result.error_code).name) == (user, expected)
        assert result.error_message
