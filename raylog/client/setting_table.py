"""Kafka's names of settings, declared once: which field each sets, its type and its meaning.

Defaults are those of the fields. `config.py` reads values by this table, and the documents' tables
are made from it.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from enum import Enum

from raylog.client.security.settings import MECHANISMS, PROTOCOLS, SecuritySettings
from raylog.client.setting_kinds import (
    BOOLEAN,
    INT64_MAX,
    NAMES,
    OPTIONAL_TEXT,
    RESET,
    SSL_CONTEXT,
    TEXT,
    Kind,
    choice,
    integer,
    mapped,
    milliseconds,
    size,
)
from raylog.client.settings import (
    ACKS_ALL,
    PARTITIONERS,
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
)
from raylog.wire.compression import Codec

Home = (
    type[ClientSettings] | type[SecuritySettings] | type[ProducerSettings] | type[ConsumerSettings]
)


@dataclass(frozen=True, slots=True)
class Setting:
    """One of Kafka's settings."""

    name: str
    """As Kafka spells it; underscores may take the place of dots."""
    field: str
    kind: Kind
    doc: str
    kafka_default: str = ""
    """Where Kafka's default is another."""
    secret: bool = False


_CLIENT = (
    Setting(
        "client.id", "client_id", TEXT, "Named in the brokers' logs, quotas and metrics.", '""'
    ),
    Setting(
        "socket.connection.setup.timeout.ms",
        "connect_timeout_ms",
        milliseconds(1),
        "How long connecting to one broker may take, TLS and logging in included.",
    ),
    Setting(
        "request.timeout.ms",
        "request_timeout_ms",
        milliseconds(1),
        "How long one request may stay unanswered.",
    ),
    Setting(
        "default.api.timeout.ms",
        "operation_timeout_ms",
        milliseconds(1),
        "How long one operation may try, all its requests and pauses together.",
    ),
    Setting(
        "retry.backoff.ms",
        "retry_backoff_ms",
        milliseconds(),
        "First pause before a repeat; doubles, give or take a fifth.",
        "100",
    ),
    Setting(
        "retry.backoff.max.ms", "retry_backoff_max_ms", milliseconds(), "Longest of those pauses."
    ),
    Setting(
        "reconnect.backoff.ms",
        "reconnect_backoff_ms",
        milliseconds(),
        "First pause before connecting again to a broker where that failed; doubles.",
    ),
    Setting(
        "reconnect.backoff.max.ms",
        "reconnect_backoff_max_ms",
        milliseconds(),
        "Longest of those pauses.",
    ),
    Setting(
        "metadata.max.age.ms",
        "metadata_max_age_ms",
        milliseconds(),
        "After so long metadata is asked for again though nothing has failed.",
    ),
    Setting(
        "connections.max.idle.ms",
        "connections_max_idle_ms",
        milliseconds(),
        "A connection that was idle for longer is made anew.",
    ),
    Setting(
        "metadata.recovery.strategy",
        "metadata_recovery_strategy",
        choice({"rebootstrap": "rebootstrap", "none": "none"}),
        "Where no known broker answers: begin again at bootstrap.servers (KIP-899), or not.",
    ),
    Setting(
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata_recovery_rebootstrap_trigger_ms",
        milliseconds(),
        "After so long without an answer to metadata requests that begins (KIP-1102).",
    ),
)

_SECURITY = (
    Setting(
        "security.protocol",
        "protocol",
        choice({word: word for word in PROTOCOLS}),
        "Whether connections are encrypted, and whether the client logs in.",
    ),
    Setting(
        "ssl.context",
        "ssl_context",
        SSL_CONTEXT,
        "A context made by the program, in place of all other ssl settings. Raylog's own.",
    ),
    Setting(
        "ssl.truststore.location",
        "ssl_truststore_location",
        OPTIONAL_TEXT,
        "PEM file or directory of certificates to trust; the system's unless given.",
    ),
    Setting(
        "ssl.truststore.certificates",
        "ssl_truststore_certificates",
        OPTIONAL_TEXT,
        "Those certificates themselves, as PEM.",
    ),
    Setting(
        "ssl.keystore.location",
        "ssl_keystore_location",
        OPTIONAL_TEXT,
        "PEM file of the client's certificate chain and key.",
    ),
    Setting(
        "ssl.key.location",
        "ssl_key_location",
        OPTIONAL_TEXT,
        "PEM file of the client's key, if that has its own. librdkafka's name.",
    ),
    Setting(
        "ssl.key.password",
        "ssl_key_password",
        OPTIONAL_TEXT,
        "Password of the client's key.",
        secret=True,
    ),
    Setting(
        "ssl.endpoint.identification.algorithm",
        "ssl_endpoint_identification_algorithm",
        mapped(choice({"https": "https", "none": "", "": ""}), str),
        "https: the broker's certificate must name its host; empty: any host will do.",
    ),
    Setting(
        "ssl.cipher.suites",
        "ssl_cipher_suites",
        OPTIONAL_TEXT,
        "OpenSSL's list of ciphers, up to TLS 1.2.",
    ),
    Setting(
        "sasl.mechanism",
        "sasl_mechanism",
        choice({word: word for word in MECHANISMS}),
        "How the client logs in.",
        "GSSAPI",
    ),
    Setting("sasl.username", "sasl_username", OPTIONAL_TEXT, "As whom. librdkafka's name."),
    Setting(
        "sasl.password",
        "sasl_password",
        OPTIONAL_TEXT,
        "With which password. librdkafka's name.",
        secret=True,
    ),
)

_PRODUCER = (
    Setting(
        "acks",
        "acks",
        choice({"all": ACKS_ALL, "-1": ACKS_ALL, "1": 1, "0": 0}),
        "Who must have a record before it counts: all in-sync replicas, the leader, nobody.",
    ),
    Setting(
        "compression.type",
        "codec",
        choice({codec.name.lower(): codec for codec in Codec}),
        "How batches are compressed.",
    ),
    Setting(
        "compression.level",
        "codec_level",
        integer(-131_072, 22),
        "For the codec in use; compression.gzip.level, .lz4.level and .zstd.level are taken too.",
    ),
    Setting(
        "batch.size",
        "batch_bytes",
        size(1),
        "A batch is sent when it holds that much, estimated before compression.",
        "16384",
    ),
    Setting(
        "linger.ms", "linger_ms", milliseconds(), "How long a batch may wait for more records."
    ),
    Setting(
        "max.request.size",
        "record_bytes_max",
        size(1),
        "A larger record, uncompressed, is refused.",
        "1048576",
    ),
    Setting(
        "buffer.memory",
        "buffer_bytes",
        size(1),
        "Records held in all, unsent or unacknowledged.",
    ),
    Setting(
        "max.block.ms",
        "max_block_ms",
        milliseconds(0, INT64_MAX),
        "How long a full buffer may hold up a caller.",
    ),
    Setting(
        "delivery.timeout.ms",
        "delivery_timeout_ms",
        milliseconds(1),
        "From send to acknowledgement, repeats included.",
    ),
    Setting(
        "max.in.flight.requests.per.connection",
        "in_flight_max",
        integer(1),
        "Unanswered requests per broker.",
    ),
    Setting(
        "retries",
        "retries",
        integer(),
        "How often a batch is sent again before it fails, within delivery.timeout.ms.",
    ),
    Setting(
        "enable.idempotence",
        "idempotent",
        BOOLEAN,
        "Repeats leave no duplicates and keep the order; on where the other settings allow.",
        "true",
    ),
    Setting(
        "transactional.id",
        "transactional_id",
        OPTIONAL_TEXT,
        "Whose transactions these are; a second producer of the same id fences the first.",
    ),
    Setting(
        "transaction.timeout.ms",
        "transaction_timeout_ms",
        milliseconds(1),
        "After so long a coordinator aborts an open transaction by itself.",
    ),
    Setting(
        "partitioner.class",
        "partitioner",
        choice(
            {word: word for word in PARTITIONERS}
            | {
                "org.apache.kafka.clients.producer.RoundRobinPartitioner": "round_robin",
            }
        ),
        "By key, else sticky (KIP-794); round robin; librdkafka's. An own one is an object.",
        "none: as default",
    ),
    Setting(
        "partitioner.ignore.keys",
        "partitioner_ignore_keys",
        BOOLEAN,
        "Place records with a key as if they had none.",
    ),
    Setting(
        "partitioner.adaptive.partitioning.enable",
        "partitioner_adaptive",
        BOOLEAN,
        "Give fewer records to partitions whose brokers are slow.",
    ),
    Setting(
        "partitioner.availability.timeout.ms",
        "partitioner_availability_timeout_ms",
        milliseconds(0, INT64_MAX),
        "Avoid partitions whose broker has taken nothing for so long; 0: never.",
    ),
    Setting(
        "interceptor.classes",
        "interceptors",
        NAMES,
        "Interceptors by the names under which packages registered them.",
    ),
)

_JAVA_ASSIGNORS = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}


def _assignors(names: object) -> tuple[str, ...]:
    """Assignors by our names; Java's classes are known."""
    assert isinstance(names, tuple), "NAMES reads a tuple"
    return tuple(_JAVA_ASSIGNORS.get(name, str(name)) for name in names)


_CONSUMER = (
    Setting("group.id", "group_id", OPTIONAL_TEXT, "The group whose member the consumer is."),
    Setting(
        "group.instance.id",
        "group_instance_id",
        OPTIONAL_TEXT,
        "Of a static member: it may be away for session.timeout.ms without a rebalance.",
    ),
    Setting(
        "group.protocol",
        "group_protocol",
        choice({"classic": "classic", "consumer": "consumer"}),
        "Who assigns: a member (classic) or the coordinator (KIP-848).",
    ),
    Setting(
        "group.remote.assignor",
        "group_remote_assignor",
        OPTIONAL_TEXT,
        "The coordinator's assignor, such as uniform or range; with group.protocol=consumer.",
    ),
    Setting(
        "partition.assignment.strategy",
        "partition_assignment_strategy",
        mapped(NAMES, _assignors),
        "Assignors, the preferred first, by name or Java class; with group.protocol=classic.",
    ),
    Setting(
        "session.timeout.ms",
        "session_timeout_ms",
        milliseconds(1),
        "After so long without a heartbeat a member is out of its group.",
    ),
    Setting(
        "heartbeat.interval.ms",
        "heartbeat_interval_ms",
        milliseconds(1),
        "Less than session.timeout.ms, and better at most a third of it.",
    ),
    Setting(
        "max.poll.interval.ms",
        "max_poll_interval_ms",
        milliseconds(1),
        "A consumer that does not poll for so long leaves its group.",
    ),
    Setting(
        "max.poll.records",
        "max_poll_records",
        integer(1),
        "How many records one poll returns at most.",
    ),
    Setting(
        "enable.auto.commit",
        "enable_auto_commit",
        BOOLEAN,
        "Commit what earlier polls returned; takes effect with a group and subscribe.",
    ),
    Setting("auto.commit.interval.ms", "auto_commit_interval_ms", milliseconds(), "How often."),
    Setting(
        "auto.offset.reset",
        "reset",
        RESET,
        "Where to begin without a committed offset, or when it is not in the log; none: raise; "
        "by_duration:PT1H: so long ago.",
        "latest",
    ),
    Setting(
        "isolation.level",
        "read_committed",
        choice({"read_uncommitted": False, "read_committed": True}),
        "read_committed: hold back open transactions, leave out aborted ones.",
    ),
    Setting(
        "fetch.max.wait.ms",
        "max_wait_ms",
        milliseconds(),
        "How long a broker may hold a fetch that finds less than fetch.min.bytes.",
    ),
    Setting("fetch.min.bytes", "min_bytes", integer(), "How much is worth an answer."),
    Setting(
        "fetch.max.bytes",
        "max_bytes",
        integer(),
        "Of one fetch; a first batch that is larger comes whole.",
        "52428800",
    ),
    Setting(
        "max.partition.fetch.bytes",
        "partition_max_bytes",
        integer(),
        "Of one partition in one fetch.",
        "1048576",
    ),
    Setting(
        "client.rack",
        "client_rack",
        TEXT,
        "Where this consumer is: brokers may name a nearer replica to read from.",
    ),
    Setting("check.crcs", "check_crcs", BOOLEAN, "Compare the checksum of each batch."),
    Setting(
        "allow.auto.create.topics",
        "allow_auto_create_topics",
        BOOLEAN,
        "Brokers may create topics that are subscribed to.",
    ),
    Setting(
        "exclude.internal.topics",
        "exclude_internal_topics",
        BOOLEAN,
        "A pattern never matches topics such as __consumer_offsets.",
    ),
    Setting(
        "fetch.prefetch.bytes",
        "prefetch_bytes",
        size(1),
        "Records fetched ahead of poll, for all partitions together. Raylog's own.",
    ),
    Setting(
        "fetch.decompressed.max.bytes",
        "decompressed_bytes_max",
        size(1),
        "Of one batch. Raylog's own.",
    ),
    Setting(
        "interceptor.classes",
        "interceptors",
        NAMES,
        "Interceptors by the names under which packages registered them.",
    ),
)

TABLE: dict[type[object], tuple[Setting, ...]] = {
    ClientSettings: _CLIENT,
    SecuritySettings: _SECURITY,
    ProducerSettings: _PRODUCER,
    ConsumerSettings: _CONSUMER,
}

_OBJECT = "give it to the constructor as an object: "
ELSEWHERE = {
    "key.serializer": _OBJECT + "key_serializer=...",
    "value.serializer": _OBJECT + "value_serializer=...",
    "key.deserializer": _OBJECT + "key_deserializer=...",
    "value.deserializer": _OBJECT + "value_deserializer=...",
    "metric.reporters": "read statistics() instead",
    "metrics.num.samples": "read statistics() instead",
    "metrics.recording.level": "read statistics() instead",
    "metrics.sample.window.ms": "read statistics() instead",
    "auto.include.jmx.reporter": "there is no JMX: read statistics() instead",
    "enable.metrics.push": "metrics are not pushed to brokers: read statistics() instead",
    "send.buffer.bytes": "the system sizes socket buffers",
    "receive.buffer.bytes": "the system sizes socket buffers",
    "socket.connection.setup.timeout.max.ms": "set socket.connection.setup.timeout.ms, which "
    "does not grow",
    "metadata.max.idle.ms": "topics that are not used cost nothing: leave it out",
    "transaction.two.phase.commit.enable": "two-phase commit by another system is not supported",
    "sasl.kerberos.service.name": "Kerberos is not supported",
    "sasl.oauthbearer.token.endpoint.url": "OAUTHBEARER is not supported",
    "sasl.login.callback.handler.class": "Java classes cannot be used: set sasl.username and "
    "sasl.password",
    "sasl.client.callback.handler.class": "Java classes cannot be used: set sasl.username and "
    "sasl.password",
    "security.providers": "Java classes cannot be used: OpenSSL does the encryption",
    "ssl.truststore.password": "a PEM file needs none",
    "ssl.keystore.password": "a PEM file needs none: an encrypted key has ssl.key.password",
    "ssl.keystore.key": "write the key to a PEM file and name it by ssl.keystore.location",
    "ssl.keystore.certificate.chain": "write it to a PEM file and name it by ssl.keystore.location",
    "ssl.engine.factory.class": "give an ssl.SSLContext as ssl_context=...",
    "ssl.enabled.protocols": "give an ssl.SSLContext as ssl_context=... to bound TLS versions",
    "ssl.protocol": "give an ssl.SSLContext as ssl_context=... to bound TLS versions",
    "share.acknowledgement.mode": "share groups are not supported",
}
"""Known names that set nothing, with what to do."""


def default_of(home: Home, setting: Setting) -> object:
    """A field's default."""
    for field in fields(home):
        if field.name == setting.field:
            if field.default is not MISSING:
                return field.default
            break
    raise AssertionError(f"{home.__name__}.{setting.field} has no default")


def _shown(value: object) -> str:
    """A default as a reader would write it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def _default_text(home: Home, setting: Setting) -> str:
    value = default_of(home, setting)
    special = {"acks": "all", "read_committed": "read_uncommitted"}
    shown = special.get(setting.field) or _shown(value)
    ours = f"`{shown}`" if shown else "none"
    return f"{ours} (Kafka's: {setting.kafka_default})" if setting.kafka_default else ours


_TITLES: tuple[tuple[Home, str], ...] = (
    (ClientSettings, "Producers, consumers and admins"),
    (SecuritySettings, "TLS and SASL: producers, consumers and admins"),
    (ProducerSettings, "Producers"),
    (ConsumerSettings, "Consumers"),
)
_HEAD = """# Settings of the Python client

This page is made from the table by which settings are read:
`python -m raylog.client.setting_table`.

Names are Kafka's. In a mapping they have dots or underscores, as keyword arguments underscores:
`Producer({"bootstrap.servers": "localhost:9092", "linger.ms": 20})` and
`Producer("localhost:9092", linger_ms=20)` are the same. Values may be text as in a properties file.
An unknown name is refused with the nearest known one, a wrong value with what was expected, and
settings that contradict each other are refused with both.

`bootstrap.servers` is required: `host:port`, several separated by commas; the port is 9092 unless
given. `client.dns.lookup` is always `use_all_dns_ips`.
"""
_TAIL = """
## Names of Kafka's that are refused

| name | what to do |
| --- | --- |
"""


def render_markdown() -> str:
    """The documents' page of settings."""
    parts = [_HEAD]
    for home, title in _TITLES:
        parts.append(
            f"\n## {title}\n\n| name | field of `{home.__name__}` | value | default | meaning |\n"
            "| --- | --- | --- | --- | --- |\n"
        )
        parts.extend(
            f"| `{one.name}` | `{one.field}` | {one.kind.expected} | {_default_text(home, one)} "
            f"| {one.doc} |\n"
            for one in TABLE[home]
        )
    parts.append(_TAIL)
    parts.extend(f"| `{name}` | {advice} |\n" for name, advice in sorted(ELSEWHERE.items()))
    return "".join(parts)


if __name__ == "__main__":
    print(render_markdown(), end="")  # noqa: T201  # the page is this program's output
