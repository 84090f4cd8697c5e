"""Changing settings."""

import pytest

from raylog.actors.config import (
    BrokerConfigs,
    BrokerSettings,
    ResourceType,
    describe_dynamic_default,
    resolve_topic,
)
from raylog.actors.config.keys import INT_MAX
from raylog.actors.controller.messages import (
    AlterConfigs,
    AlterOp,
    ConfigAlteration,
    ConfigOp,
    ConfigOutcome,
)
from raylog.actors.metadata.configs import broker_configs
from raylog.actors.metadata.records import ConfigChanged, Record
from raylog.wire.errors import ErrorCode
from tests.support.cpu_time import cpu_s
from tests.worlds.controller.machine import Controlled

SET, DELETE, APPEND, SUBTRACT = AlterOp.SET, AlterOp.DELETE, AlterOp.APPEND, AlterOp.SUBTRACT
TOPIC, BROKER, GROUP = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP


@pytest.fixture
def world() -> Controlled:
    world = Controlled(1, {"log.cleanup.policy": "compact"})
    world.topic("t", (0,), configs={"retention.ms": "5", "segment.ms": "7"})
    return world


def alter(
    world: Controlled, kind: int, name: str, *ops: ConfigOp, replaces: bool = False
) -> tuple[list[Record], ConfigOutcome]:
    asked = AlterConfigs([ConfigAlteration(kind, name, list(ops), replaces)])
    decision = world.machine.configs.alter(asked)
    (outcome,) = decision.response
    return decision.records, outcome


def test_settings_are_set_and_removed(world: Controlled) -> None:
    records, outcome = alter(
        world,
        TOPIC,
        "t",
        ConfigOp("retention.ms", DELETE),
        ConfigOp("retention.bytes", SET, "9"),
        ConfigOp("segment.ms", SET, "7"),  # as it is: no record
        ConfigOp("flush.ms", DELETE),  # not set: no record
    )
    assert records == [
        ConfigChanged(TOPIC, "t", "retention.bytes", "9"),
        ConfigChanged(TOPIC, "t", "retention.ms", None),
    ]
    end = world.machine.image.offset + len(records)
    assert outcome == ConfigOutcome(TOPIC, "t", offset=end)


def test_the_older_request_replaces_what_it_does_not_name(world: Controlled) -> None:
    records, _ = alter(world, TOPIC, "t", ConfigOp("retention.ms", SET, "6"), replaces=True)
    assert records == [
        ConfigChanged(TOPIC, "t", "retention.ms", "6"),
        ConfigChanged(TOPIC, "t", "segment.ms", None),
    ]


def test_lists_are_appended_to_and_subtracted_from(world: Controlled) -> None:
    records, _ = alter(world, TOPIC, "t", ConfigOp("cleanup.policy", APPEND, "delete,compact"))
    assert records == [ConfigChanged(TOPIC, "t", "cleanup.policy", "compact,delete")]
    world.machine.replay(records)
    records, _ = alter(world, TOPIC, "t", ConfigOp("cleanup.policy", SUBTRACT, "compact,x"))
    assert records == [ConfigChanged(TOPIC, "t", "cleanup.policy", "delete")]
    records, _ = alter(
        world, TOPIC, "t", ConfigOp("leader.replication.throttled.replicas", APPEND, "0:1")
    )
    assert records == [ConfigChanged(TOPIC, "t", "leader.replication.throttled.replicas", "0:1")]


def test_a_list_does_not_grow_beyond_what_can_be_reported(world: Controlled) -> None:
    """In the words of Apache Kafka 4.3.1."""
    name = "leader.replication.throttled.replicas"
    most = ",".join(f"{i:04d}:1" for i in range(32_768 // 7))
    more = [ConfigOp(name, APPEND, "1:1,2:2,3:3,4:4")]
    world.machine.replay(alter(world, TOPIC, "t", ConfigOp(name, SET, most))[0])
    decision = world.machine.configs.alter(AlterConfigs([ConfigAlteration(TOPIC, "t", more)]))
    [outcome] = decision.response
    assert not decision.records
    assert (outcome.error, outcome.message) == (
        ErrorCode.INVALID_CONFIG,
        "The configuration value cannot be added because it exceeds the maximum value size of "
        "32767 bytes.",
    )


def test_long_lists_are_changed_in_linear_time(world: Controlled) -> None:
    name = "leader.replication.throttled.replicas"
    old, new = ([f"{start + i}:1" for i in range(2_000)] for start in (0, 5_000))
    world.machine.replay(alter(world, TOPIC, "t", ConfigOp(name, SET, ",".join(old)))[0])
    more: list[Record] = []
    less: list[Record] = []

    def altering() -> None:
        more[:], _ = alter(world, TOPIC, "t", ConfigOp(name, APPEND, ",".join([*new, *old])))
        less[:], _ = alter(world, TOPIC, "t", ConfigOp(name, SUBTRACT, ",".join(old[:0:-1])))

    assert cpu_s(altering, 0.1) < 0.1
    assert more == [ConfigChanged(TOPIC, "t", name, ",".join([*old, *new]))]
    assert less == [ConfigChanged(TOPIC, "t", name, "0:1")]


def test_only_to_see_changes_nothing(world: Controlled) -> None:
    alteration = ConfigAlteration(TOPIC, "t", [ConfigOp("retention.ms", SET, "6")])
    decision = world.machine.configs.alter(AlterConfigs([alteration], validate_only=True))
    assert (decision.records, decision.response) == ([], [ConfigOutcome(TOPIC, "t")])


@pytest.mark.parametrize(
    ("name", "ops", "code", "said"),
    [
        ("u", [], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "'u' does not exist"),
        (
            "t",
            [ConfigOp("retention.ms", SET, "1"), ConfigOp("retention.ms", DELETE)],
            ErrorCode.INVALID_REQUEST,
            "duplicate config keys: retention.ms",
        ),
        (
            "t",
            [ConfigOp("retention.ms", SET, None)],
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : retention.ms",
        ),
        (
            "t",
            [ConfigOp("retention.ms", APPEND, "1")],
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            "t",
            [ConfigOp("retention", SET, "1")],
            ErrorCode.INVALID_CONFIG,
            "did you mean retention.ms?",
        ),
        (
            "t",
            [ConfigOp("retention.ms", SET, "-7")],
            ErrorCode.INVALID_CONFIG,
            "Value must be at least -1",
        ),
        (
            "t",
            [ConfigOp("cleanup.policy", APPEND, "shred")],
            ErrorCode.INVALID_CONFIG,
            "must be one of",
        ),
    ],
)
def test_impossible_changes_of_a_topic_are_refused(
    world: Controlled, name: str, ops: list[ConfigOp], code: ErrorCode, said: str
) -> None:
    records, outcome = alter(world, TOPIC, name, *ops)
    assert records == []
    assert outcome.error is code
    assert said in str(outcome.message)


def test_each_resource_is_decided_on_its_own_and_only_once(world: Controlled) -> None:
    world.topic("u", (0,))
    op = ConfigOp("retention.ms", SET, "6")
    decision = world.machine.configs.alter(
        AlterConfigs(
            [
                ConfigAlteration(TOPIC, "t", [op]),
                ConfigAlteration(TOPIC, "u", [op]),
                ConfigAlteration(TOPIC, "t", [op]),
                ConfigAlteration(TOPIC, "v", [op]),
            ]
        )
    )
    assert decision.records == [ConfigChanged(TOPIC, "u", "retention.ms", "6")]
    assert [outcome.error for outcome in decision.response] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


@pytest.mark.parametrize("name", ["", "0"])
def test_dynamic_settings_of_brokers_are_set(world: Controlled, name: str) -> None:
    records, outcome = alter(world, BROKER, name, ConfigOp("log.retention.ms", SET, "9"))
    assert records == [ConfigChanged(BROKER, name, "log.retention.ms", "9")]
    assert outcome.error == 0


@pytest.mark.parametrize(
    ("kind", "name", "op", "code", "said"),
    [
        (
            BROKER,
            "0",
            ConfigOp("num.partitions", SET, "2"),
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: num.partitions",
        ),
        (
            BROKER,
            "9",
            ConfigOp("max.connections", SET, "2"),
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            "No node with id 9 found.",
        ),
        (
            BROKER,
            "-1",
            ConfigOp("max.connections", SET, "2"),
            ErrorCode.INVALID_REQUEST,
            "Unable to parse broker name",
        ),
        (
            BROKER,
            "0",
            ConfigOp("max.connections", SET, "-2"),
            ErrorCode.INVALID_REQUEST,
            "Value must be at least 1",
        ),
        (
            GROUP,
            "",
            ConfigOp("consumer.session.timeout.ms", SET, "50000"),
            ErrorCode.INVALID_REQUEST,
            "Default group resources",
        ),
        (
            GROUP,
            "g",
            ConfigOp("consumer.session.timeout.ms", SET, "5"),
            ErrorCode.INVALID_CONFIG,
            "between 45000 and 60000, not 5",
        ),
        (
            ResourceType.BROKER_LOGGER,
            "0",
            ConfigOp("x", SET, "y"),
            ErrorCode.INVALID_REQUEST,
            "Unknown resource type 8",
        ),
    ],
)
def test_impossible_changes_elsewhere_are_refused(
    world: Controlled, kind: ResourceType, name: str, op: ConfigOp, code: ErrorCode, said: str
) -> None:
    records, outcome = alter(world, kind, name, op)
    assert records == []
    assert outcome.error is code
    assert said in str(outcome.message)


NO_CONNECTIONS = ConfigOp("max.connections.per.ip", SET, "0")
ONE_HOST = ConfigOp("max.connections.per.ip.overrides", SET, "127.0.0.1:100")
REQUIREMENT = (
    "requirement failed: max.connections.per.ip can be set to zero only if "
    "max.connections.per.ip.overrides property is set."
)


@pytest.mark.parametrize("name", ["", "0"])
def test_zero_connections_per_ip_requires_an_override(world: Controlled, name: str) -> None:
    """As Apache Kafka has it: none may connect only if there are others that may."""
    records, outcome = alter(world, BROKER, name, NO_CONNECTIONS)
    assert (records, outcome.error) == ([], ErrorCode.INVALID_REQUEST)
    assert outcome.message == REQUIREMENT
    records, outcome = alter(world, BROKER, name, NO_CONNECTIONS, ONE_HOST)
    assert not outcome.error
    world.machine.replay(records)
    _, outcome = alter(world, BROKER, name, ConfigOp(ONE_HOST.name, DELETE))
    assert (outcome.error, outcome.message) == (ErrorCode.INVALID_REQUEST, REQUIREMENT)


def test_cluster_default_overrides_count_for_each_broker(world: Controlled) -> None:
    records, _ = alter(world, BROKER, "", ONE_HOST)
    world.machine.replay(records)
    records, outcome = alter(world, BROKER, "0", NO_CONNECTIONS)
    assert not outcome.error
    world.machine.replay(records)
    _, outcome = alter(world, BROKER, "", ConfigOp(ONE_HOST.name, DELETE))
    assert outcome.message == REQUIREMENT, "broker 0 would take no connection"


def test_a_groups_settings_lie_within_the_brokers_bounds(world: Controlled) -> None:
    records, _ = alter(world, GROUP, "g", ConfigOp("consumer.session.timeout.ms", SET, "50000"))
    assert records == [ConfigChanged(GROUP, "g", "consumer.session.timeout.ms", "50000")]


def test_topic_defaults_follow_the_clusters_dynamic_settings(world: Controlled) -> None:
    records, _ = alter(world, BROKER, "", ConfigOp("log.cleaner.max.compaction.lag.ms", SET, "5"))
    world.machine.replay(records)
    refused, outcome = alter(world, TOPIC, "t", ConfigOp("min.compaction.lag.ms", SET, "6"))
    assert (refused, outcome.error) == ([], ErrorCode.INVALID_CONFIG)


def test_subscriptions_to_clients_metrics_are_kept(world: Controlled) -> None:
    kind = ResourceType.CLIENT_METRICS
    records, _ = alter(world, kind, "m", ConfigOp("match", SET, "client_id=a.*, client_id=b"))
    assert records == [ConfigChanged(kind, "m", "match", "client_id=a.*,client_id=b")]
    for wrong in ("client_id=" + "(" * 10_000, "client_id=" + "a{1000}" * 1_000, "client_id=(?=a)"):
        records, outcome = alter(world, kind, "m", ConfigOp("match", SET, wrong))
        assert (records, outcome.error) == ([], ErrorCode.INVALID_CONFIG)


@pytest.mark.parametrize(
    ("name", "key", "said"),
    [
        ("", "match", "Subscription name can't be empty"),
        ("m", "matches", "Unknown client metrics configuration: matches"),
    ],
)
def test_impossible_subscriptions_to_clients_metrics_are_refused(
    world: Controlled, name: str, key: str, said: str
) -> None:
    op = ConfigOp(key, SET, "client_id=a")
    records, outcome = alter(world, ResourceType.CLIENT_METRICS, name, op)
    assert records == []
    assert (outcome.error, outcome.message) == (ErrorCode.INVALID_REQUEST, said)


@pytest.mark.parametrize("name", ["", "0"])
def test_some_connection_stays_possible(world: Controlled, name: str) -> None:
    """Nobody could take it back: it is kept over restarts."""
    records, outcome = alter(world, BROKER, name, ConfigOp("max.connections", SET, "0"))
    assert (records, outcome.error) == ([], ErrorCode.INVALID_REQUEST)
    assert "max.connections: Value must be at least 1" in str(outcome.message)


# ---- what another build has stored, and this one refuses -------------------------------------


def older(world: Controlled) -> None:
    """Settings that an older build has taken."""
    world.machine.image.apply_all(
        [
            ConfigChanged(BROKER, "", "max.connections", "0"),
            ConfigChanged(BROKER, "", "of.another.build", "x"),
            ConfigChanged(TOPIC, "t", "retention.ms", "-7"),
        ]
    )


def test_a_stored_setting_that_is_refused_is_ignored(world: Controlled) -> None:
    older(world)
    image = world.machine.image
    assert broker_configs(image, BrokerSettings()).effective("max.connections") == str(INT_MAX)
    assert [one.name for one in describe_dynamic_default(image.configs_of(BROKER, ""))] == []
    assert resolve_topic(image.configs_of(TOPIC, "t"), BrokerConfigs())["retention.ms"] != "-7"


def test_invalid_stored_setting_does_not_block_other_changes(world: Controlled) -> None:
    older(world)
    records, outcome = alter(world, TOPIC, "t", ConfigOp("retention.bytes", SET, "9"))
    assert not outcome.error
    assert records == [ConfigChanged(TOPIC, "t", "retention.bytes", "9")]
    records, outcome = alter(world, BROKER, "", ConfigOp("max.connections.per.ip", SET, "9"))
    assert not outcome.error
    assert records == [ConfigChanged(BROKER, "", "max.connections.per.ip", "9")]


def test_invalid_stored_setting_can_be_deleted(world: Controlled) -> None:
    older(world)
    names = ["max.connections", "of.another.build"]
    records, outcome = alter(world, BROKER, "", *(ConfigOp(one, DELETE) for one in names))
    assert not outcome.error
    assert records == [ConfigChanged(BROKER, "", one, None) for one in names]
    world.machine.image.apply_all(records)
    assert world.machine.image.refused.keys() == {(TOPIC, "t")}
    records, outcome = alter(world, TOPIC, "t", ConfigOp("retention.ms", SET, "8"), replaces=True)
    assert records == [
        ConfigChanged(TOPIC, "t", "retention.ms", "8"),
        ConfigChanged(TOPIC, "t", "segment.ms", None),
    ]
    world.machine.image.apply_all(records)
    assert world.machine.image.refused == {}


def test_the_older_request_takes_back_what_it_does_not_name(world: Controlled) -> None:
    older(world)
    records, _ = alter(world, TOPIC, "t", ConfigOp("segment.ms", SET, "7"), replaces=True)
    assert records == [ConfigChanged(TOPIC, "t", "retention.ms", None)]
