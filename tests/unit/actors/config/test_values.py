"""Spellings of settings that Apache Kafka 4.3.1 accepted, refused and described (1,340 of them)."""

import pytest

from raylog.actors.config import (
    BROKER_KEYS,
    GROUP_KEYS,
    TOPIC_KEYS,
    BrokerConfigs,
    BrokerSettings,
    ConfigKey,
    ResourceType,
    canonical,
    judged,
    parse,
    usable,
)
from raylog.wire.errors import InvalidConfig
from tests.support.cpu_time import cpu_s

BOOLEAN = TOPIC_KEYS["unclean.leader.election.enable"]
INT = TOPIC_KEYS["max.message.bytes"]
LONG = TOPIC_KEYS["retention.ms"]
DOUBLE = TOPIC_KEYS["min.cleanable.dirty.ratio"]
CHOICE = TOPIC_KEYS["compression.type"]
CHOICES = TOPIC_KEYS["cleanup.policy"]
LONGEST = 32_000
REPLICAS = TOPIC_KEYS["leader.replication.throttled.replicas"]


@pytest.mark.parametrize(
    ("key", "text", "described"),
    [
        (BOOLEAN, "TRUE", "true"),
        (BOOLEAN, " true ", "true"),
        (BOOLEAN, "tRuE\t", "true"),
        (BOOLEAN, "false\n", "false"),
        (INT, " 7 ", "7"),
        (INT, "+7", "7"),
        (INT, "-0", "0"),
        (INT, "007", "7"),
        (INT, "\u0663\u0664", "34"),  # Arabic digits
        (INT, "\uff19", "9"),  # a wide one
        (LONG, "-1", "-1"),
        (DOUBLE, ".5", "0.5"),
        (DOUBLE, "5e-1", "0.5"),
        (DOUBLE, "0.5f", "0.5"),
        (DOUBLE, "0x1p-1", "0.5"),
        (DOUBLE, "1", "1.0"),
        (DOUBLE, "1e-5", "1.0E-5"),
        (DOUBLE, "0.001", "0.001"),
        (DOUBLE, "-0.0", "-0.0"),
        (CHOICE, " zstd ", "zstd"),
        (CHOICES, "compact , delete", "compact,delete"),
        (CHOICES, "delete,compact", "delete,compact"),
        (CHOICES, "compact,compact", "compact"),
        (CHOICES, "", ""),
        (REPLICAS, " 0:1 ,\t1:1 ", "0:1,1:1"),
        (REPLICAS, "*", "*"),
    ],
)
def test_a_value_is_stored_as_kafka_describes_it(key: ConfigKey, text: str, described: str) -> None:
    assert canonical(key, text) == described


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        (BOOLEAN, "yes", "Expected value to be either true or false"),
        (BOOLEAN, "1", "Expected value to be either true or false"),
        (BOOLEAN, "", "Expected value to be either true or false"),
        (BOOLEAN, "\u00a0true", "Expected value to be either true or false"),
        (INT, "7.0", "Not a number of type INT"),
        (INT, "1_000", "Not a number of type INT"),
        (INT, "0x10", "Not a number of type INT"),
        (INT, "7L", "Not a number of type INT"),
        (INT, "", "Not a number of type INT"),
        (INT, "\U0001d7d5", "Not a number of type INT"),
        (INT, "9" * 5_000, "9... for configuration max.message.bytes: Not a number of type INT"),
        (INT, "2147483648", "Not a number of type INT"),
        (LONG, "-9223372036854775808", "Value must be at least -1"),
        (DOUBLE, "1_0", "Not a number of type DOUBLE"),
        (DOUBLE, "nan", "Not a number of type DOUBLE"),
        (DOUBLE, "0x.8", "Not a number of type DOUBLE"),
        (CHOICE, "ZSTD", "String must be one of"),
        (CHOICES, "compact,", "Configuration 'cleanup.policy' values must not be empty."),
        (CHOICES, "COMPACT", "String must be one of: compact, delete"),
        (REPLICAS, "*,0:1", "must be the literal '*' or a list of replicas"),
        (REPLICAS, "0:-1", "must be the literal '*' or a list of replicas"),
    ],
)
def test_a_value_that_kafka_refuses_is_refused_in_its_words(
    key: ConfigKey, text: str, said: str
) -> None:
    with pytest.raises(InvalidConfig, match=r"^(Invalid value|Configuration)") as refused:
        canonical(key, text)
    assert said in refused.value.message


def test_defaults_are_written_as_values_are() -> None:
    for key in (*TOPIC_KEYS.values(), *BROKER_KEYS.values(), *GROUP_KEYS.values()):
        if key.default is not None:
            assert canonical(key, key.default) == key.default, key.name


def test_stored_values_are_normalized_or_ignored_if_invalid() -> None:
    assert judged(ResourceType.TOPIC, "preallocate", "TRUE ")[0] == "true"
    assert judged(ResourceType.BROKER, "log.preallocate", " False")[0] == "false"
    assert judged(ResourceType.TOPIC, "preallocate", "maybe")[0] is None
    assert judged(ResourceType.TOPIC, "of.a.later.build", " x ")[0] is None
    assert judged(ResourceType.BROKER, "max.connections", "0")[0] is None
    assert judged(ResourceType.BROKER_LOGGER, "root", " 1 ")[0] == " 1 "
    assert judged(99, "preallocate", "TRUE")[0] == "TRUE"


def test_why_a_stored_setting_is_ignored() -> None:
    assert judged(ResourceType.BROKER, "max.connections", "1")[1] is None
    assert judged(ResourceType.BROKER_LOGGER, "root", "1")[1] is None
    assert judged(99, "preallocate", "maybe")[1] is None
    why = judged(ResourceType.BROKER, "max.connections", "0")[1]
    assert why == "Invalid value 0 for configuration max.connections: Value must be at least 1"
    unknown = judged(ResourceType.TOPIC, "of.a.later.build", "x")[1]
    assert unknown == "Unknown configuration key 'of.a.later.build'"


def test_noted_start_up_settings_that_are_refused_are_left_out() -> None:
    taken, why = usable({"num.partitions": "3", "max.connections": "0", "of.a.later.build": "x"})
    assert taken == {"num.partitions": "3"}
    assert ["max.connections" in why[0], "of.a.later.build" in why[1], len(why)] == [True, True, 2]
    BrokerSettings(taken)


def test_start_up_settings_act_in_any_spelling() -> None:
    settings = BrokerSettings({"auto.create.topics.enable": "FALSE\t", "num.partitions": " +3 "})
    assert settings.flag("auto.create.topics.enable") is False
    assert settings.raw("num.partitions") == "3"
    assert BrokerConfigs(settings).flag("auto.create.topics.enable") is False


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cleanup.policy", "x" + " " * LONGEST + "x"),
        ("cleanup.policy", "x" + "\t\n" * (LONGEST // 2) + "x"),
        ("min.cleanable.dirty.ratio", "1" * LONGEST + "x"),
        ("min.cleanable.dirty.ratio", "0x" + "a" * LONGEST + "x"),
        ("retention.ms", "1" * LONGEST + "x"),
        ("leader.replication.throttled.replicas", "1:" * (LONGEST // 2)),
    ],
)
def test_the_longest_value_is_refused_soon(name: str, text: str) -> None:
    def parsing() -> None:
        with pytest.raises(InvalidConfig):
            parse(TOPIC_KEYS[name], text)

    assert cpu_s(parsing, 0.1) < 0.1
