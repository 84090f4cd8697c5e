"""kafka-python 3."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic
from types import SimpleNamespace
from typing import Any

import cramjam

from tests.conformance.clients.base import DEADLINE_S
from tests.conformance.scenarios import Message, RefusedError, Stored, TopicShape, WriteOptions
from tests.support.kafka_python import kafka


def _provide_snappy() -> None:
    """kafka-python wants python-snappy, whose raw format cramjam speaks as well."""
    if kafka.codec.snappy is None:
        kafka.codec.snappy = SimpleNamespace(
            compress=lambda data: bytes(cramjam.snappy.compress_raw(data)),
            decompress=lambda data: bytes(cramjam.snappy.decompress_raw(data)),
        )


_provide_snappy()


class KafkaPythonClient:
    """Adapter of kafka-python."""

    name = "kafka-python"
    describing_creates = False

    def able_to_send(self, message: Message) -> bool:
        """Key and value may not both be null here, nor may a header's value."""
        nulls = any(value is None for _, value in message.headers)
        return not nulls and (message.key is not None or message.value is not None)

    def write(
        self, bootstrap: str, topic: str, messages: Sequence[Message], how: WriteOptions
    ) -> list[Stored]:
        """Produce; the futures give the offsets."""
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if how.codec == "none" else how.codec,
            enable_idempotence=how.idempotent,
            acks=how.acks if how.acks == "all" else int(how.acks),
            linger_ms=how.linger_ms,
            max_request_size=how.request_bytes_max,
        )
        with _closing(producer), _refusals():
            futures = [
                producer.send(
                    topic,
                    value=m.value,
                    key=m.key,
                    headers=list(m.headers),
                    partition=m.partition,
                    timestamp_ms=m.timestamp_ms,
                )
                for m in messages
            ]
            producer.flush(DEADLINE_S)
            offsets = [future.get(DEADLINE_S).offset for future in futures]
        return [
            Stored(m.partition, offset, m.timestamp_ms, m.key, m.value, m.headers)
            for m, offset in zip(messages, offsets, strict=True)
        ]

    def read(
        self, bootstrap: str, topic: str, starts: Mapping[int, int], ends: Mapping[int, int]
    ) -> list[Stored]:
        """Poll until each partition's end is reached."""
        with _consumer(bootstrap) as consumer, _refusals():
            consumer.assign([kafka.TopicPartition(topic, p) for p in starts])
            for partition, offset in starts.items():
                consumer.seek(kafka.TopicPartition(topic, partition), offset)
            return _collect(consumer, dict(starts), ends)

    def read_after_seek(self, bootstrap: str, topic: str, offset: int, end: int) -> list[Stored]:
        """Seek after the first poll."""
        partition = kafka.TopicPartition(topic, 0)
        with _consumer(bootstrap) as consumer, _refusals():
            consumer.assign([partition])
            consumer.seek_to_beginning(partition)
            assert consumer.poll(timeout_ms=DEADLINE_S * 1000, max_records=1), "nothing to read"
            consumer.seek(partition, offset)
            return _collect(consumer, {0: offset}, {0: end})

    def beginning_and_end(
        self, bootstrap: str, topic: str, partitions: Sequence[int]
    ) -> dict[int, tuple[int, int]]:
        """ListOffsets earliest and latest."""
        asked = [kafka.TopicPartition(topic, p) for p in partitions]
        with _consumer(bootstrap) as consumer, _refusals():
            low, high = consumer.beginning_offsets(asked), consumer.end_offsets(asked)
        return {p.partition: (low[p], high[p]) for p in asked}

    def offset_for_time(self, bootstrap: str, topic: str, timestamp_ms: int) -> int | None:
        """ListOffsets by timestamp."""
        partition = kafka.TopicPartition(topic, 0)
        with _consumer(bootstrap) as consumer, _refusals():
            found = consumer.offsets_for_times({partition: timestamp_ms})[partition]
        return None if found is None else int(found.offset)

    def create_topic(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create with replication factor 1."""
        shape = {
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": dict(configs or {}),
        }
        with _admin(bootstrap) as admin:
            admin.create_topics({topic: shape})

    def list_topics(self, bootstrap: str) -> set[str]:
        """Names from a full metadata request."""
        with _admin(bootstrap) as admin:
            return set(admin.list_topics())

    def describe_topic(self, bootstrap: str, topic: str) -> TopicShape:
        """Partitions with their leaders."""
        with _admin(bootstrap) as admin:
            (described,) = admin.describe_topics([topic])
        if described["error_code"] != 0:
            raise RefusedError(described["error_code"], str(described))
        return TopicShape({p["partition_index"]: p["leader_id"] for p in described["partitions"]})

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        """Delete."""
        with _admin(bootstrap) as admin:
            admin.delete_topics([topic])

    def create_partitions(self, bootstrap: str, topic: str, total: int) -> None:
        """Raise the number of partitions."""
        with _admin(bootstrap) as admin:
            admin.create_partitions({topic: total})

    def describe_configs(self, bootstrap: str, topic: str) -> dict[str, str | None]:
        """Values by key."""
        with _admin(bootstrap) as admin:
            found = admin.describe_configs(
                [kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.TOPIC, topic)],
                config_filter="all",
            )
        (entries,) = (by_name[topic] for by_name in found.values())
        return {key: entry["value"] for key, entry in entries.items()}

    def alter_config(self, bootstrap: str, topic: str, key: str, value: str) -> None:
        """IncrementalAlterConfigs (KIP-339)."""
        resource = kafka.admin.ConfigResource(
            kafka.admin.ConfigResourceType.TOPIC, topic, {key: value}
        )
        with _admin(bootstrap) as admin:
            admin.alter_configs([resource])

    def delete_records(self, bootstrap: str, topic: str, before: Mapping[int, int]) -> None:
        """DeleteRecords."""
        with _admin(bootstrap) as admin:
            admin.delete_records({kafka.TopicPartition(topic, p): o for p, o in before.items()})


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except kafka.errors.BrokerResponseError as failure:
        raise RefusedError(failure.errno, str(failure)) from failure


@contextmanager
def _closing(client: Any) -> Iterator[Any]:
    try:
        yield client
    finally:
        client.close()


@contextmanager
def _admin(bootstrap: str) -> Iterator[kafka.KafkaAdminClient]:
    with _closing(kafka.KafkaAdminClient(bootstrap_servers=bootstrap)) as admin, _refusals():
        yield admin


@contextmanager
def _consumer(bootstrap: str) -> Iterator[kafka.KafkaConsumer]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="none",
        max_partition_fetch_bytes=4 * 1_048_576,
    )
    with _closing(consumer):
        yield consumer


def _collect(
    consumer: kafka.KafkaConsumer, positions: dict[int, int], ends: Mapping[int, int]
) -> list[Stored]:
    found: list[Stored] = []
    deadline = monotonic() + DEADLINE_S
    while any(positions[p] < end for p, end in ends.items()):
        assert monotonic() < deadline, f"positions {positions} have not reached {ends}"
        for records in consumer.poll(timeout_ms=200).values():
            for r in records:
                positions[r.partition] = r.offset + 1
                found.append(
                    Stored(
                        r.partition,
                        r.offset,
                        r.timestamp,
                        r.key,
                        r.value,
                        tuple((name, value) for name, value in r.headers),
                    )
                )
    return found
