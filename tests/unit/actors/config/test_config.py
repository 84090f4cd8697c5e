"""Reading, resolving and describing settings."""

import pytest

from raylog.actors.config import (
    BROKER_KEYS,
    TOPIC_KEYS,
    BrokerConfigs,
    BrokerSettings,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    DescribedConfig,
    ResourceType,
    canonical_all,
    check_topic,
    describe_broker,
    describe_dynamic_default,
    describe_group,
    describe_topic,
    find_key,
    parse,
    resolve_topic,
)
from raylog.wire.errors import InvalidConfig
from tests.support.cpu_time import cpu_s


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", "-1", -1),
        ("retention.ms", " 42 ", 42),
        ("preallocate", "TRUE", True),
        ("cleanup.policy", "compact, delete", ("compact", "delete")),
        ("cleanup.policy", "", ()),
        ("min.cleanable.dirty.ratio", "0.25", 0.25),
        ("compression.type", "zstd", "zstd"),
        ("compression.gzip.level", "-1", -1),
        ("compression.gzip.level", "9", 9),
        ("internal.segment.bytes", "", ""),
        ("internal.segment.bytes", "100", 100),
    ],
)
def test_values_are_read_by_the_type_of_their_key(name: str, text: str, value: object) -> None:
    assert parse(TOPIC_KEYS[name], text) == value


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("retention.ms", "-2", "Value must be at least -1"),
        ("retention.ms", "soon", "Not a number of type LONG"),
        ("retention.ms", "1_000", "of type LONG"),
        ("retention.ms", "9" * 50, "Not a number of type LONG"),
        ("min.cleanable.dirty.ratio", "0_1", "of type DOUBLE"),
        ("max.message.bytes", "2147483648", "Not a number of type INT"),
        ("preallocate", "yes", "Expected value to be either true or false"),
        ("cleanup.policy", "shred", "String must be one of: compact, delete"),
        ("compression.type", "lzma", "one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("compression.gzip.level", "0", "must be between 1 and 9 or equal to -1"),
        ("min.cleanable.dirty.ratio", "1.5", "Value must be no more than 1"),
        ("min.insync.replicas", "0", "Value must be at least 1"),
    ],
)
def test_a_wrong_value_is_refused_with_what_was_expected(name: str, text: str, said: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse(TOPIC_KEYS[name], text)
    assert f"Invalid value {text} for configuration {name}" in str(refused.value)
    assert said in str(refused.value)


@pytest.mark.parametrize("side", ["leader", "follower"])
@pytest.mark.parametrize("text", ["", "*", " * ", "0:1", "0:1, 12:30", "0:1,,1:2", "7:99"])
def test_throttled_replicas_are_pairs_or_every_one(side: str, text: str) -> None:
    parse(TOPIC_KEYS[f"{side}.replication.throttled.replicas"], text)


@pytest.mark.parametrize("text", ["x", "0", "0:1,*", "*,*", "-1:2", "0:1:2", "0:", "a:b"])
def test_throttled_replicas_are_refused_in_apache_kafkas_words(text: str) -> None:
    """Recorded from Apache Kafka 4.3.1."""
    name = "leader.replication.throttled.replicas"
    with pytest.raises(InvalidConfig) as refused:
        parse(TOPIC_KEYS[name], text)
    assert str(refused.value) == (
        f"Invalid value [{text.replace(',', ', ')}] for configuration {name}: {name} must be the "
        "literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )


def test_an_unknown_key_is_refused_and_the_nearest_named() -> None:
    with pytest.raises(InvalidConfig, match=r"'retention.msec'; did you mean retention.ms\?"):
        find_key(TOPIC_KEYS, "retention.msec")
    with pytest.raises(InvalidConfig, match=r"Unknown configuration key 'zzz'$"):
        find_key(TOPIC_KEYS, "zzz")
    with pytest.raises(InvalidConfig, match=r"did you mean log.message.timestamp.after.max.ms\?"):
        find_key(BROKER_KEYS, "log.message.timestamps.after.max")


@pytest.mark.parametrize("name", ["log.message.timestamp.difference.maxi.mz", "aeimnorst.lg" * 3])
def test_unknown_keys_are_refused_soon(name: str) -> None:
    def looking() -> None:
        for _ in range(500):
            with pytest.raises(InvalidConfig):
                find_key(BROKER_KEYS, name)

    assert cpu_s(looking, 0.5) < 0.5, "500 took 6 s of the controller's loop"


def test_settings_are_checked_when_made() -> None:
    with pytest.raises(InvalidConfig, match=r"did you mean num.partitions\?"):
        BrokerSettings({"num.partition": "3"})
    with pytest.raises(InvalidConfig, match="Value must be at least 1"):
        BrokerSettings({"num.partitions": "0"})


@pytest.mark.parametrize("count", ["2147483647", "-2147483648", "+1", "-1"])
def test_a_host_may_have_as_many_connections_as_an_int32_says(count: str) -> None:
    key = BROKER_KEYS["max.connections.per.ip.overrides"]
    assert parse(key, f"10.0.0.1:{count}") == f"10.0.0.1:{count}"


@pytest.mark.parametrize("count", ["2147483648", "-2147483649", "", "1.0", "--1", "1" * 40])
def test_no_host_may_have_what_is_no_int32(count: str) -> None:
    with pytest.raises(InvalidConfig, match="host:count"):
        parse(BROKER_KEYS["max.connections.per.ip.overrides"], f"10.0.0.1:{count}")


def test_settings_give_the_default_of_what_is_not_given() -> None:
    settings = BrokerSettings({"num.partitions": "3", "broker.rack": "r1"})
    assert settings.number("num.partitions") == 3
    assert settings.number("broker.session.timeout.ms") == 6_000
    assert settings.flag("auto.create.topics.enable") is True
    assert settings.items("group.consumer.assignors") == ("uniform", "range")
    assert settings.items("advertised.listeners") == ()
    assert settings.raw("broker.rack") == "r1"


def test_a_topic_takes_its_value_from_the_first_layer_that_has_one() -> None:
    by_hours = {"log.retention.hours": "2", "log.segment.bytes": "2000000"}
    assert resolve_topic({}, BrokerConfigs(BrokerSettings(by_hours)))["retention.ms"] == "7200000"
    by_ms = BrokerSettings(by_hours | {"log.retention.ms": "5"})
    assert resolve_topic({}, BrokerConfigs(by_ms))["retention.ms"] == "5"
    dynamic = BrokerConfigs(by_ms, {"log.retention.ms": "6"}, {"log.retention.ms": "7"})
    assert resolve_topic({}, dynamic)["retention.ms"] == "6"
    everywhere = BrokerConfigs(by_ms, {}, {"log.retention.ms": "7"})
    assert resolve_topic({}, everywhere)["retention.ms"] == "7"
    own = resolve_topic({"retention.ms": "8"}, dynamic)
    assert (own["retention.ms"], own["segment.bytes"]) == ("8", "2000000")


def test_no_limit_in_hours_is_no_limit_in_ms() -> None:
    settings = BrokerSettings({"log.retention.hours": "-1"})
    assert resolve_topic({}, BrokerConfigs(settings))["retention.ms"] == "-1"


def test_a_resolved_topic_has_every_key_but_the_internal_one() -> None:
    resolved = resolve_topic({}, BrokerConfigs())
    assert set(resolved) == set(TOPIC_KEYS) - {"internal.segment.bytes"}
    small = resolve_topic({"internal.segment.bytes": "100"}, BrokerConfigs())
    assert small["segment.bytes"] == "100"
    assert "internal.segment.bytes" not in small


def test_compaction_lags_must_not_contradict() -> None:
    configs = {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}
    with pytest.raises(InvalidConfig, match=r"min.compaction.lag.ms \(10\) > max"):
        check_topic(configs, BrokerConfigs())
    check_topic({**configs, "max.compaction.lag.ms": "10"}, BrokerConfigs())


def test_a_topic_is_described_with_all_that_could_give_the_value() -> None:
    broker = BrokerConfigs(
        BrokerSettings({"log.retention.hours": "1"}), {}, {"log.retention.ms": "9"}
    )
    described = describe_topic({"retention.ms": "8"}, broker, ["retention.ms", "nonsense"])
    assert described == [
        DescribedConfig(
            "retention.ms",
            "8",
            ConfigSource.DYNAMIC_TOPIC,
            ConfigType.LONG,
            False,
            TOPIC_KEYS["retention.ms"].documentation,
            (
                ConfigSynonym("retention.ms", "8", ConfigSource.DYNAMIC_TOPIC),
                ConfigSynonym("log.retention.ms", "9", ConfigSource.DYNAMIC_DEFAULT_BROKER),
                ConfigSynonym("log.retention.hours", "1", ConfigSource.STATIC_BROKER),
                ConfigSynonym("log.retention.hours", "168", ConfigSource.DEFAULT),
            ),
        )
    ]


def test_a_topic_key_nobody_set_is_a_default() -> None:
    (described,) = describe_topic({}, BrokerConfigs(), ["cleanup.policy"])
    assert (described.value, described.source) == ("delete", ConfigSource.DEFAULT)
    assert described.synonyms == (
        ConfigSynonym("log.cleanup.policy", "delete", ConfigSource.DEFAULT),
    )
    (hours,) = describe_topic({}, BrokerConfigs(), ["retention.ms"])
    assert (hours.value, hours.synonyms) == ("604800000", ())  # as Kafka has it


def test_all_topic_keys_are_described_but_internal_ones() -> None:
    names = [one.name for one in describe_topic({}, BrokerConfigs())]
    assert names == [name for name in TOPIC_KEYS if name != "internal.segment.bytes"]


def test_synonyms_of_a_set_broker_key_are_described() -> None:
    """As Apache Kafka tells it: only where the key itself is set."""
    broker = BrokerConfigs(
        BrokerSettings({"log.retention.hours": "5"}), dynamic={"log.retention.ms": "7200000"}
    )
    (described,) = describe_broker(broker, ["log.retention.ms"])
    assert [(one.name, one.value, int(one.source)) for one in described.synonyms] == [
        ("log.retention.ms", "7200000", 2),
        ("log.retention.hours", "5", 4),
        ("log.retention.hours", "168", 5),
    ]
    (unset,) = describe_broker(BrokerConfigs(broker.settings), ["log.retention.ms"])
    assert (unset.value, int(unset.source), unset.synonyms) == (None, 5, ())


def test_a_broker_is_described_by_layer() -> None:
    broker = BrokerConfigs(
        BrokerSettings({"max.connections": "10"}),
        {"max.connections": "30"},
        {"max.connections": "20"},
    )
    (described,) = describe_broker(broker, ["max.connections"])
    assert [(one.value, one.source) for one in described.synonyms] == [
        ("30", ConfigSource.DYNAMIC_BROKER),
        ("20", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("10", ConfigSource.STATIC_BROKER),
        ("2147483647", ConfigSource.DEFAULT),
    ]
    assert (described.value, described.read_only) == ("30", False)
    (fixed,) = describe_broker(broker, ["num.partitions"])
    assert (fixed.value, fixed.read_only, fixed.source) == ("1", True, ConfigSource.DEFAULT)
    (unset,) = describe_broker(broker, ["broker.rack"])
    assert (unset.value, unset.synonyms) == (None, ())
    assert len(describe_broker(broker)) == len(BROKER_KEYS)


def test_cluster_wide_settings_are_described_alone() -> None:
    (described,) = describe_dynamic_default({"max.connections": "20"})
    assert (described.name, described.value) == ("max.connections", "20")
    assert described.source is ConfigSource.DYNAMIC_DEFAULT_BROKER


def test_a_group_inherits_from_the_broker() -> None:
    broker = BrokerConfigs(BrokerSettings({"group.consumer.session.timeout.ms": "46000"}))
    described = {one.name: one for one in describe_group({}, broker)}
    assert described["consumer.session.timeout.ms"].value == "46000"
    assert described["consumer.heartbeat.interval.ms"].source is ConfigSource.DEFAULT
    (own,) = describe_group(
        {"consumer.session.timeout.ms": "50000"}, broker, ["consumer.session.timeout.ms"]
    )
    assert (own.value, own.source) == ("50000", ConfigSource.GROUP)


def test_check_goes_by_the_kind_of_resource() -> None:
    canonical_all(ResourceType.GROUP, {"consumer.session.timeout.ms": "50000"})
    with pytest.raises(InvalidConfig):
        canonical_all(ResourceType.TOPIC, {"consumer.session.timeout.ms": "50000"})


@pytest.mark.parametrize("name", ["max.connections", "max.connection.creation.rate"])
@pytest.mark.parametrize("listener", ["external", "a.b", "x y"])
def test_limits_may_be_given_for_one_listener(listener: str, name: str) -> None:
    key = f"listener.name.{listener}.{name}"
    found = find_key(BROKER_KEYS, key)
    assert (found.name, found.default, found.dynamic) == (key, None, True)
    configs = BrokerConfigs(BrokerSettings({key: " 7 "}), dynamic={key: "5"})
    assert configs.listener_limit(listener.upper(), name) == 5
    assert configs.listener_limit("OTHER", name) is None
    (described,) = describe_broker(configs, [key])
    assert (described.value, described.source) == ("5", ConfigSource.DYNAMIC_BROKER)
    assert [synonym.value for synonym in described.synonyms] == ["5", "7"]
    assert all(one.name != key for one in describe_broker(BrokerConfigs()))
    with pytest.raises(InvalidConfig):
        BrokerSettings({key: "0"})


@pytest.mark.parametrize(
    "name",
    [
        "listener.name.EXTERNAL.max.connections",
        "listener.name..max.connections",
        "listener.name.max.connections",
        "listener.name.external.num.partitions",
        "listener.name.external.max.connections.per.ip",
    ],
)
def test_other_settings_of_one_listener_are_unknown(name: str) -> None:
    with pytest.raises(InvalidConfig, match="Unknown configuration key"):
        find_key(BROKER_KEYS, name)
