"""Settings by Kafka's names: parsed, bounded, and refused with expected and found values."""

import logging
import ssl
from dataclasses import fields
from pathlib import Path

import pytest

from raylog.client.consumer.settings import ConsumerSettings
from raylog.client.errors import InvalidSetting
from raylog.client.librdkafka import from_confluent
from raylog.client.security.settings import SecuritySettings
from raylog.client.setting_parsing import client_and_consumer, client_and_producer, client_only
from raylog.client.setting_reference import TABLE, default_of, render_markdown
from raylog.client.settings import ClientSettings, ProducerSettings
from raylog.wire.compression import Codec

ROOT = Path(__file__).parents[3]
SERVER = "localhost:9092"


def test_a_bootstrap_string_is_enough() -> None:
    client, producer = client_and_producer(SERVER, {})
    assert client == ClientSettings((("localhost", 9092),))
    assert producer == ProducerSettings()
    assert client_and_consumer(SERVER, {}) == (client, ConsumerSettings())
    assert client_only(["a:1", "b:2"], {}).bootstrap == (("a", 1), ("b", 2))


def test_dots_underscores_and_keywords_are_the_same() -> None:
    dotted = client_and_producer({"bootstrap.servers": SERVER, "linger.ms": 7}, {})
    assert dotted[1].linger_ms == 7
    assert dotted == client_and_producer({"bootstrap_servers": SERVER, "linger_ms": 7}, {})
    assert dotted == client_and_producer(SERVER, {"linger_ms": 7})
    assert dotted == client_and_producer(None, {"bootstrap_servers": SERVER, "linger_ms": 7})


def test_text_is_read_as_in_a_properties_file() -> None:
    _, producer = client_and_producer(
        {
            "bootstrap.servers": SERVER,
            "acks": "all",
            "linger.ms": "20",
            "compression.type": "zstd",
            "compression.zstd.level": "9",
            "compression.gzip.level": "1",
            "enable.idempotence": "TRUE",
            "transactional.id": "",
        },
        {},
    )
    assert (producer.acks, producer.linger_ms, producer.codec) == (-1, 20, Codec.ZSTD)
    assert producer.codec_level == 9
    assert producer.idempotent is True
    assert producer.transactional_id is None
    _, consumer = client_and_consumer(
        SERVER,
        {
            "group_id": "g",
            "isolation_level": "read_committed",
            "partition_assignment_strategy": "roundrobin, "
            "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
        },
    )
    assert consumer.read_committed
    assert consumer.partition_assignment_strategy == ("roundrobin", "cooperative-sticky")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"linger_msec": 1}, "unknown setting 'linger_msec': the nearest is 'linger_ms'"),
        ({"linger.mss": 1}, "unknown setting 'linger.mss': the nearest is 'linger.ms'"),
        ({"linger": 1}, "unknown setting 'linger': the nearest is 'linger_ms'"),
        ({"linger": 1, "batch.size": 1}, "'linger': the nearest is 'linger.ms'"),
        ({"xyzzy": 1}, "unknown setting 'xyzzy'$"),
        ({"codec": "zstd"}, "unknown setting 'codec': Kafka's name is 'compression_type'"),
        ({"group_id": "g"}, "group_id is a setting of consumers, not of this client"),
        ({"key_serializer": str}, "as an object: key_serializer="),
        ({"linger_ms": -1}, "linger.ms: expected ms, 0 or more, found -1"),
        ({"linger_ms": "soon"}, "linger.ms: expected ms, 0 or more, found 'soon'"),
        ({"linger_ms": 1.5}, "found 1.5"),
        ({"linger_ms": True}, "found True"),
        ({"linger_ms": None}, "found None"),
        ({"retries": 2**31}, "retries: expected integer, 0 or more, found 2147483648"),
        ({"enable_idempotence": "maybe"}, "expected true or false, found 'maybe'"),
        ({"enable_idempotence": 1}, "expected true or false, found 1"),
        ({"acks": 2}, "acks: expected 'all' or '-1' or '1' or '0', found 2"),
        ({"compression_type": "brotli"}, "or 'zstd', found 'brotli'"),
        ({"bootstrap_servers": SERVER}, "bootstrap.servers was given twice"),
        ({"client_dns_lookup": "default"}, "expected 'use_all_dns_ips', found 'default'"),
        ({"acks": 1, "enable_idempotence": True}, "an idempotent producer needs acks=-1"),
        (
            {"delivery_timeout_ms": 1_000},
            "delivery.timeout.ms=1000 must be at least linger.ms=5 . request.timeout.ms=30000",
        ),
        ({"retry_backoff_ms": 2_000}, "retry.backoff.ms of at most retry.backoff.max.ms=1000"),
    ],
)
def test_refusals_of_a_producer(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        client_and_producer(SERVER, settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"acks": 1}, "acks is a setting of producers"),
        (
            {"group_id": "g", "heartbeat_interval_ms": 45_000},
            "heartbeat.interval.ms between 0 and session.timeout.ms=45000, found 45000",
        ),
        ({"enable_auto_commit": True}, "enable.auto.commit=true needs a group.id"),
        ({"group_instance_id": "i"}, "group.instance.id needs a group.id"),
        ({"fetch_max_wait_ms": 30_000}, "fetch.max.wait.ms=30000 must be less than request"),
        (
            {"group_id": "g", "group_protocol": "consumer", "session_timeout_ms": 9_000},
            "session.timeout.ms needs group.protocol=classic, found consumer",
        ),
        ({"group_id": "g", "group_remote_assignor": "uniform"}, "needs group.protocol='consumer'"),
        ({"auto_offset_reset": "newest"}, "or 'none', found 'newest'"),
        ({"max_poll_records": 0}, "expected integer, 1 or more, found 0"),
        ({"partition_assignment_strategy": ""}, "expected an assignor or more, found none"),
        ({"fetch_min_bytes": 100, "fetch_max_bytes": 10}, "fetch.min.bytes of at most fetch.max"),
    ],
)
def test_refusals_of_a_consumer(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        client_and_consumer(SERVER, settings)


def test_bootstrap_servers_are_required() -> None:
    with pytest.raises(InvalidSetting, match=r"bootstrap.servers is required"):
        client_only({}, {})
    with pytest.raises(InvalidSetting, match="is a setting of producers"):
        client_only(SERVER, {"linger_ms": 1})


def test_rare_heartbeats_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """More than a third of the session: two lost heartbeats cost the membership."""
    with caplog.at_level(logging.WARNING, "raylog.client"):
        ConsumerSettings(heartbeat_interval_ms=15_000)
        assert not caplog.records
        ConsumerSettings(heartbeat_interval_ms=15_001)
    assert "more than a third" in caplog.text


# -- TLS and SASL ------------------------------------------------------------------------------


def test_security_settings() -> None:
    client = client_only(
        {
            "bootstrap.servers": SERVER,
            "security.protocol": "sasl_ssl",
            "ssl.truststore.location": "/ca.pem",
            "ssl.truststore.type": "PEM",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
            ' username="ann" password="a\\"b;";',
        },
        {},
    )
    assert client.security == SecuritySettings(
        protocol="SASL_SSL",
        ssl_truststore_location="/ca.pem",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="ann",
        sasl_password='a"b;',
    )
    assert 'a"b;' not in repr(client)
    assert client.security.uses_tls
    assert client.security.uses_sasl
    assert not ClientSettings(()).security.uses_tls


SASL = {"security_protocol": "SASL_PLAINTEXT", "sasl_username": "u", "sasl_password": "p"}
TLS = {"security_protocol": "SSL"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"security_protocol": "TLS"}, "or 'SASL_SSL', found 'TLS'"),
        ({"ssl_truststore_location": "x"}, "ssl.truststore.location needs security.protocol SSL"),
        ({"sasl_username": "x"}, "need security.protocol SASL_SSL or SASL_PLAINTEXT"),
        (SASL, "expected sasl.mechanism PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, found None"),
        (SASL | {"sasl_mechanism": "GSSAPI"}, "or 'SCRAM-SHA-512', found 'GSSAPI'"),
        (SASL | {"sasl_mechanism": "PLAIN", "sasl_password": ""}, "PLAIN needs sasl.password"),
        (SASL | {"sasl_mechanism": "PLAIN", "sasl_password": 7}, "found int .kept secret."),
        (SASL | {"sasl_mechanism": "PLAIN", "sasl_username": "a\0b"}, "zero character"),
        (TLS | {"ssl_truststore_type": "JKS"}, "expected 'PEM', found 'JKS'"),
        (TLS | {"ssl_key_password": "x"}, "ssl.key.password needs ssl.keystore.location"),
        (TLS | {"ssl_context": 3}, "expected ssl.SSLContext, found 3"),
        (
            TLS | {"ssl_context": ssl.create_default_context(), "ssl_truststore_location": "x"},
            "ssl.context takes the place of ssl.truststore.location",
        ),
        (
            {"ssl_endpoint_identification_algorithm": "ldap"},
            "ssl.endpoint.identification.algorithm: expected",
        ),
        ({"sasl_jaas_config": "what"}, "expected '…LoginModule"),
        ({"sasl_jaas_config": "a.Krb5LoginModule required;"}, "found 'a.Krb5LoginModule'"),
        ({"sasl_jaas_config": "a.PlainLoginModule required;"}, "expected username and password"),
    ],
)
def test_refusals_of_security(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message) as refused:
        client_only(SERVER, settings)
    assert "found 7" not in str(refused.value)


# -- the table ----------------------------------------------------------------------------------


def test_every_field_has_a_name_of_kafkas() -> None:
    for home, table in TABLE.items():
        assert hasattr(home, "__dataclass_fields__")
        named = [setting.field for setting in table]
        beside = {"bootstrap", "security"}
        expected = {field.name for field in fields(home)} - beside  # type: ignore[arg-type]  # checked above
        assert sorted(named) == sorted(expected)


def test_every_default_is_a_value_of_its_kind() -> None:
    for home in (ClientSettings, SecuritySettings, ProducerSettings, ConsumerSettings):
        for setting in TABLE[home]:
            default = default_of(home, setting)
            if default is not None and setting.field != "read_committed":
                assert setting.kind.read(default) == default, setting.name


def test_settings_page_matches_the_table() -> None:
    assert (ROOT / "docs/client-settings.md").read_text() == render_markdown()


# -- confluent-kafka ------------------------------------------------------------------------------


def test_settings_of_confluent_kafka() -> None:
    config = from_confluent(
        {
            "metadata.broker.list": SERVER,
            "queue.buffering.max.ms": "0.5",
            "queue.buffering.max.kbytes": 1024,
            "message.timeout.ms": 5_000,
            "compression.codec": "lz4",
            "socket.keepalive.enable": True,
            "partitioner": "murmur2_random",
            "default.topic.config": {"acks": "all"},
        }
    )
    client, producer = client_and_producer(config, {})
    assert client.bootstrap == (("localhost", 9092),)
    assert client.request_timeout_ms == 4_999
    assert (producer.linger_ms, producer.buffer_bytes) == (1, 1024 * 1024)
    assert (producer.delivery_timeout_ms, producer.codec) == (5_000, Codec.LZ4)


def test_a_consumer_of_confluent_kafka() -> None:
    given = {"bootstrap.servers": SERVER, "group.id": "g", "auto.commit.interval.ms": 0}
    _, consumer = client_and_consumer(from_confluent(given), {})
    assert (consumer.reset, consumer.enable_auto_commit) == ("latest", False)
    assert consumer.read_committed
    _, consumer = client_and_consumer(from_confluent(given | {"auto.offset.reset": "error"}), {})
    assert consumer.reset == "none"
    secure = from_confluent(
        {
            "bootstrap.servers": SERVER,
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": "/ca.pem",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "u",
            "sasl.password": "p",
            "enable.auto.offset.store": True,
            "message.timeout.ms": 0,
        }
    )
    assert client_and_producer(secure, {})[0].security.ssl_truststore_location == "/ca.pem"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch.num.messages": 10}, "batch.num.messages has no equivalent: .* batch.size"),
        ({"enable.auto.offset.store": False}, "no equivalent: set enable.auto.commit=false"),
        ({"partitioner": "fnv1a"}, "known are consistent_random"),
        ({"partitioner": "magic"}, "known are consistent_random"),
        ({"auto.offset.reset": "middle"}, "found 'middle'"),
        ({"linger.ms": "x"}, "linger.ms: expected a number, found 'x'"),
        ({"linger.ms": -1}, "expected 0 or more"),
        ({"linger.ms": 5_000, "message.timeout.ms": 5_000}, "must be above linger.ms=5000"),
        ({"linger.ms": 1, "queue.buffering.max.ms": 2}, "linger.ms was given twice"),
        ({"default.topic.config": 1}, "expected a mapping, found 1"),
        ({"enable.ssl.certificate.verification": False}, "ssl_context="),
        ({"stats_cb": print}, "call statistics"),
    ],
)
def test_settings_only_in_confluent_kafka_are_refused(
    settings: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidSetting, match=message):
        from_confluent(settings)


@pytest.mark.parametrize(
    ("codec", "level", "said"),
    [
        ("gzip", 22, "a level of gzip of 1 to 9, found 22"),
        ("gzip", 0, "found 0"),
        ("lz4", 18, "a level of lz4 of 1 to 17"),
        ("zstd", 23, "23"),
    ],
)
def test_a_level_that_the_codec_does_not_have(codec: str, level: int, said: str) -> None:
    config = {"bootstrap.servers": SERVER, "compression.type": codec, "compression.level": level}
    with pytest.raises(InvalidSetting, match=said):
        client_and_producer(config, {})
    config["compression.level"] = 5
    assert client_and_producer(config, {})[1].codec_level == 5
