"""librdkafka through confluent-kafka."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from time import monotonic
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka import Message as FetchedMessage
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.conformance.clients.base import DEADLINE_S
from tests.conformance.scenarios import Message, RefusedError, Stored, TopicShape, WriteOptions


class ConfluentClient:
    """Adapter of confluent-kafka."""

    name = "confluent-kafka"
    describing_creates = False

    def able_to_send(self, message: Message) -> bool:
        """Any record."""
        return True

    def write(
        self, bootstrap: str, topic: str, messages: Sequence[Message], how: WriteOptions
    ) -> list[Stored]:
        """Produce with delivery reports, which give the offsets."""
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": how.codec,
                "enable.idempotence": how.idempotent,
                "acks": how.acks,
                "linger.ms": how.linger_ms,
                "message.max.bytes": how.request_bytes_max,
                "batch.size": how.request_bytes_max,
                "message.timeout.ms": int(DEADLINE_S * 1000),
            }
        )
        reports: list[tuple[Message, int, KafkaError | None]] = []
        for message in messages:

            def report(
                error: KafkaError | None, sent: FetchedMessage, message: Message = message
            ) -> None:
                reports.append((message, sent.offset() or 0, error))

            producer.produce(
                topic,
                value=message.value,
                key=message.key,
                partition=message.partition,
                timestamp=message.timestamp_ms,
                headers=list(message.headers),
                on_delivery=report,
            )
            producer.poll(0)
        assert producer.flush(DEADLINE_S) == 0, "records neither delivered nor failed"
        for _, _, error in reports:
            if error is not None:
                raise _refused(error)
        return [
            Stored(m.partition, offset, m.timestamp_ms, m.key, m.value, m.headers)
            for m, offset, _ in reports
        ]

    def read(
        self, bootstrap: str, topic: str, starts: Mapping[int, int], ends: Mapping[int, int]
    ) -> list[Stored]:
        """Poll until each partition's end is reached."""
        consumer = _consumer(bootstrap)
        try:
            consumer.assign([TopicPartition(topic, p, offset) for p, offset in starts.items()])
            return _collect(consumer, dict(starts), ends)
        finally:
            consumer.close()

    def read_after_seek(self, bootstrap: str, topic: str, offset: int, end: int) -> list[Stored]:
        """Seek while assigned."""
        consumer = _consumer(bootstrap)
        try:
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
            first = consumer.poll(DEADLINE_S)
            assert first is not None, "nothing to read"
            consumer.seek(TopicPartition(topic, 0, offset))
            return _collect(consumer, {0: offset}, {0: end})
        finally:
            consumer.close()

    def beginning_and_end(
        self, bootstrap: str, topic: str, partitions: Sequence[int]
    ) -> dict[int, tuple[int, int]]:
        """Ask for both watermarks."""
        consumer = _consumer(bootstrap)
        try:
            result = {}
            for partition in partitions:
                low, high = consumer.get_watermark_offsets(
                    TopicPartition(topic, partition), timeout=DEADLINE_S
                )
                result[partition] = (low, high)
            return result
        finally:
            consumer.close()

    def offset_for_time(self, bootstrap: str, topic: str, timestamp_ms: int) -> int | None:
        """ListOffsets by timestamp; librdkafka answers -1 for none."""
        consumer = _consumer(bootstrap)
        try:
            (found,) = consumer.offsets_for_times(
                [TopicPartition(topic, 0, timestamp_ms)], timeout=DEADLINE_S
            )
            if found.error is not None:
                raise _refused(found.error)
            return found.offset if found.offset >= 0 else None
        finally:
            consumer.close()

    def create_topic(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create with replication factor 1."""
        new = NewTopic(topic, partitions, 1, config=dict(configs or {}))
        admin = _admin(bootstrap)
        _outcome(admin.create_topics([new])[topic])

    def list_topics(self, bootstrap: str) -> set[str]:
        """Names from a full metadata request."""
        return set(_admin(bootstrap).list_topics(timeout=DEADLINE_S).topics)

    def describe_topic(self, bootstrap: str, topic: str) -> TopicShape:
        """Partitions with their leaders."""
        admin = _admin(bootstrap)
        described = _outcome(admin.describe_topics(TopicCollection([topic]))[topic])
        return TopicShape({p.id: p.leader.id for p in described.partitions})

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        """Delete."""
        admin = _admin(bootstrap)
        _outcome(admin.delete_topics([topic])[topic])

    def create_partitions(self, bootstrap: str, topic: str, total: int) -> None:
        """Raise the number of partitions."""
        admin = _admin(bootstrap)
        _outcome(admin.create_partitions([NewPartitions(topic, total)])[topic])

    def describe_configs(self, bootstrap: str, topic: str) -> dict[str, str | None]:
        """Values by key."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        admin = _admin(bootstrap)
        entries = _outcome(admin.describe_configs([resource])[resource])
        return {key: entry.value for key, entry in entries.items()}

    def alter_config(self, bootstrap: str, topic: str, key: str, value: str) -> None:
        """IncrementalAlterConfigs (KIP-339)."""
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin = _admin(bootstrap)
        _outcome(admin.incremental_alter_configs([resource])[resource])

    def delete_records(self, bootstrap: str, topic: str, before: Mapping[int, int]) -> None:
        """DeleteRecords."""
        asked = [TopicPartition(topic, p, offset) for p, offset in before.items()]
        admin = _admin(bootstrap)
        for future in admin.delete_records(asked).values():
            _outcome(future)


def _admin(bootstrap: str) -> AdminClient:
    """A client that has to be kept until its futures are done: dropping it ends them."""
    return AdminClient({"bootstrap.servers": bootstrap})


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused: partitions are assigned",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.message.max.bytes": 4 * 1_048_576,
        }
    )


def _collect(
    consumer: Consumer, positions: dict[int, int], ends: Mapping[int, int]
) -> list[Stored]:
    found: list[Stored] = []
    deadline = monotonic() + DEADLINE_S
    while missing := sum(max(0, end - positions[p]) for p, end in ends.items()):
        assert monotonic() < deadline, f"positions {positions} have not reached {ends}"
        for fetched in consumer.consume(min(missing, 1000), timeout=1):
            error = fetched.error()
            if error is not None:
                raise _refused(error)
            record = _stored(fetched)
            if record.offset < positions[record.partition]:
                continue
            positions[record.partition] = record.offset + 1
            found.append(record)
    return found


def _stored(fetched: FetchedMessage) -> Stored:
    partition, offset = fetched.partition(), fetched.offset()
    assert partition is not None
    assert offset is not None
    headers: Any = fetched.headers() or []
    return Stored(
        partition,
        offset,
        fetched.timestamp()[1],
        fetched.key(),
        fetched.value(),
        tuple((name, value) for name, value in headers),
    )


def _outcome(future: "Future[Any]") -> Any:
    try:
        return future.result(DEADLINE_S)
    except KafkaException as failure:
        raise _refused(failure.args[0]) from failure


def _refused(error: KafkaError) -> RefusedError:
    return RefusedError(error.code(), error.str())
