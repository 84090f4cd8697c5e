"""Kafka's names of settings, declared once: which field each sets, its type and its meaning.

Defaults are those of the fields. `config.py` reads values by these tables, and the documents' page
is made from them. The consumer's table is beside its settings.
"""

from __future__ import annotations

from raylog.client.security.settings import MECHANISMS, PROTOCOLS
from raylog.client.setting_kinds import (
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
from raylog.wire.compression import Codec

CLIENT = (
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

SECURITY = (
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

PRODUCER = (
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
