"""The settings under Kafka's names, each declared once with its field, type and meaning.

Defaults are those of the fields. `setting_parsing.py` reads values by these tables, and the
settings page of the documentation is generated from them. The consumer's table is next to its
settings.
"""

from __future__ import annotations

from raylog.client.security.settings import MECHANISMS, PROTOCOLS
from raylog.client.setting_types import (
    BOOLEAN,
    INT64_MAX,
    NAMES,
    OPTIONAL_TEXT,
    SSL_CONTEXT,
    TEXT,
    Setting,
    choice,
    integer,
    mapped,
    milliseconds,
    size,
)
from raylog.client.settings import ACKS_ALL, PARTITIONERS
from raylog.wire.compression import LEVELS, Codec

_LEVELS = [f".{codec.label}.level" for codec in LEVELS]

CLIENT = (
    Setting(
        "client.id",
        "client_id",
        TEXT,
        "Name of this client in the brokers' logs, quotas and metrics.",
        '""',
    ),
    Setting(
        "socket.connection.setup.timeout.ms",
        "connect_timeout_ms",
        milliseconds(1),
        "Longest time for a connection to one broker, including TLS and authentication.",
    ),
    Setting(
        "request.timeout.ms",
        "request_timeout_ms",
        milliseconds(1),
        "Longest time to wait for the answer to a request.",
    ),
    Setting(
        "default.api.timeout.ms",
        "operation_timeout_ms",
        milliseconds(1),
        "Longest time for one call, including all its requests and retries.",
    ),
    Setting(
        "retry.backoff.ms",
        "retry_backoff_ms",
        milliseconds(),
        "Pause before the first retry. It doubles with each retry, with 20 % jitter.",
        "100",
    ),
    Setting(
        "retry.backoff.max.ms",
        "retry_backoff_max_ms",
        milliseconds(),
        "Longest pause between retries.",
    ),
    Setting(
        "reconnect.backoff.ms",
        "reconnect_backoff_ms",
        milliseconds(),
        "Pause after the first failed connection to a broker. It doubles with each failure.",
    ),
    Setting(
        "reconnect.backoff.max.ms",
        "reconnect_backoff_max_ms",
        milliseconds(),
        "Longest pause before connecting to a broker again.",
    ),
    Setting(
        "metadata.max.age.ms",
        "metadata_max_age_ms",
        milliseconds(),
        "Metadata is refreshed after this time even if nothing has failed.",
    ),
    Setting(
        "connections.max.idle.ms",
        "connections_max_idle_ms",
        milliseconds(),
        "A connection that was idle for longer is replaced by a new one.",
    ),
    Setting(
        "metadata.recovery.strategy",
        "metadata_recovery_strategy",
        choice({"rebootstrap": "rebootstrap", "none": "none"}),
        "Whether to use bootstrap.servers again when no known broker answers (KIP-899).",
    ),
    Setting(
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata_recovery_rebootstrap_trigger_ms",
        milliseconds(),
        "After this time without an answer to a metadata request, the client uses "
        "bootstrap.servers again (KIP-1102).",
    ),
)

SECURITY = (
    Setting(
        "security.protocol",
        "protocol",
        choice({word: word for word in PROTOCOLS}),
        "Whether connections use TLS (SSL) and whether the client authenticates (SASL).",
    ),
    Setting(
        "ssl.context",
        "ssl_context",
        SSL_CONTEXT,
        "An ssl.SSLContext to use instead of all other ssl settings. Not a setting of Kafka.",
    ),
    Setting(
        "ssl.truststore.location",
        "ssl_truststore_location",
        OPTIONAL_TEXT,
        "PEM file or directory with trusted certificates. Default: the system's certificates.",
    ),
    Setting(
        "ssl.truststore.certificates",
        "ssl_truststore_certificates",
        OPTIONAL_TEXT,
        "The trusted certificates themselves, in PEM format.",
    ),
    Setting(
        "ssl.keystore.location",
        "ssl_keystore_location",
        OPTIONAL_TEXT,
        "PEM file with the client's certificate chain and key.",
    ),
    Setting(
        "ssl.key.location",
        "ssl_key_location",
        OPTIONAL_TEXT,
        "PEM file with the client's key, if it is in a file of its own. A name of librdkafka.",
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
        "https: the broker's certificate must match its host name. Empty: any host name is "
        "accepted.",
    ),
    Setting(
        "ssl.cipher.suites",
        "ssl_cipher_suites",
        OPTIONAL_TEXT,
        "Cipher suites for TLS up to 1.2, in OpenSSL's format.",
    ),
    Setting(
        "sasl.mechanism",
        "sasl_mechanism",
        choice({word: word for word in MECHANISMS}),
        "How the client authenticates.",
        "GSSAPI",
    ),
    Setting(
        "sasl.username",
        "sasl_username",
        OPTIONAL_TEXT,
        "User name for authentication. A name of librdkafka.",
    ),
    Setting(
        "sasl.password",
        "sasl_password",
        OPTIONAL_TEXT,
        "Password for authentication. A name of librdkafka.",
        secret=True,
    ),
)

PRODUCER = (
    Setting(
        "acks",
        "acks",
        choice({"all": ACKS_ALL, "-1": ACKS_ALL, "1": 1, "0": 0}),
        "Which replicas must have a record before it is acknowledged: all in-sync ones, the "
        "leader, none.",
    ),
    Setting(
        "compression.type",
        "codec",
        choice({codec.label: codec for codec in Codec}),
        "Compression codec of batches.",
    ),
    Setting(
        "compression.level",
        "codec_level",
        integer(min(one.low for one in LEVELS.values()), max(one.high for one in LEVELS.values())),
        f"Level of the codec in use. compression{', '.join(_LEVELS[:-1])} and {_LEVELS[-1]} work "
        "too.",
    ),
    Setting(
        "batch.size",
        "batch_bytes",
        size(1),
        "Size at which a batch is sent, before compression.",
        "16384",
    ),
    Setting(
        "linger.ms",
        "linger_ms",
        milliseconds(),
        "Longest time that a batch waits for more records.",
    ),
    Setting(
        "max.request.size",
        "record_bytes_max",
        size(1),
        "Largest size of a record, before compression.",
        "1048576",
    ),
    Setting(
        "buffer.memory",
        "buffer_bytes",
        size(1),
        "Memory for records that are not sent or not acknowledged yet.",
    ),
    Setting(
        "max.block.ms",
        "max_block_ms",
        milliseconds(0, INT64_MAX),
        "Longest time that a call blocks while the buffer is full or metadata is missing.",
    ),
    Setting(
        "delivery.timeout.ms",
        "delivery_timeout_ms",
        milliseconds(1),
        "Longest time from send to acknowledgement, including retries and requests in flight.",
    ),
    Setting(
        "max.in.flight.requests.per.connection",
        "in_flight_max",
        integer(1),
        "Most unanswered requests per broker.",
    ),
    Setting(
        "retries",
        "retries",
        integer(),
        "Most retries of a batch before it fails, within delivery.timeout.ms.",
    ),
    Setting(
        "enable.idempotence",
        "idempotent",
        BOOLEAN,
        "Retries create no duplicates and keep the order. On unless another setting rules it out.",
        "true",
    ),
    Setting(
        "metadata.max.idle.ms",
        "metadata_max_idle_ms",
        milliseconds(5_000),
        "A topic that nothing was sent to for this time is forgotten. The next record looks it up.",
    ),
    Setting(
        "transactional.id",
        "transactional_id",
        OPTIONAL_TEXT,
        "Enables transactions. A new producer with the same id fences the previous one.",
    ),
    Setting(
        "transaction.timeout.ms",
        "transaction_timeout_ms",
        milliseconds(1),
        "The coordinator aborts a transaction that is open for longer.",
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
        "default: by key, and sticky without one (KIP-794). For your own function, pass "
        "partitioner=.",
        "none: as default",
    ),
    Setting(
        "partitioner.ignore.keys",
        "partitioner_ignore_keys",
        BOOLEAN,
        "Ignore keys when choosing partitions.",
    ),
    Setting(
        "partitioner.adaptive.partitioning.enable",
        "partitioner_adaptive",
        BOOLEAN,
        "Send fewer records without a key to partitions on slow brokers.",
    ),
    Setting(
        "partitioner.availability.timeout.ms",
        "partitioner_availability_timeout_ms",
        milliseconds(0, INT64_MAX),
        "Avoid partitions whose broker has accepted nothing for this time. 0: do not avoid them.",
    ),
    Setting(
        "interceptor.classes",
        "interceptors",
        NAMES,
        "Names of interceptors that installed packages have registered.",
    ),
)
