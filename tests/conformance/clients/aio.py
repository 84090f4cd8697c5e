"""aiokafka."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import BrokerResponseError, for_code

from tests.conformance.clients.base import DEADLINE_S
from tests.conformance.scenarios import Message, RefusedError, Stored, TopicShape, WriteOptions

T = TypeVar("T")


class AiokafkaClient:
    """Adapter of aiokafka; each call runs its own event loop."""

    name = "aiokafka"
    describing_creates = True

    def able_to_send(self, message: Message) -> bool:
        """Key and value may not both be null here."""
        return message.key is not None or message.value is not None

    def write(
        self, bootstrap: str, topic: str, messages: Sequence[Message], how: WriteOptions
    ) -> list[Stored]:
        """Produce; the futures give the offsets."""
        return _run(_write(bootstrap, topic, messages, how))

    def read(
        self, bootstrap: str, topic: str, starts: Mapping[int, int], ends: Mapping[int, int]
    ) -> list[Stored]:
        """Fetch until each partition's end is reached."""

        async def work() -> list[Stored]:
            async with _consumer(bootstrap) as consumer:
                consumer.assign([TopicPartition(topic, p) for p in starts])
                for partition, offset in starts.items():
                    consumer.seek(TopicPartition(topic, partition), offset)
                return await _collect(consumer, dict(starts), ends)

        return _run(work())

    def read_after_seek(self, bootstrap: str, topic: str, offset: int, end: int) -> list[Stored]:
        """Seek after the first record."""

        async def work() -> list[Stored]:
            partition = TopicPartition(topic, 0)
            async with _consumer(bootstrap) as consumer:
                consumer.assign([partition])
                await consumer.seek_to_beginning(partition)
                await consumer.getone()
                consumer.seek(partition, offset)
                return await _collect(consumer, {0: offset}, {0: end})

        return _run(work())

    def beginning_and_end(
        self, bootstrap: str, topic: str, partitions: Sequence[int]
    ) -> dict[int, tuple[int, int]]:
        """ListOffsets earliest and latest."""

        async def work() -> dict[int, tuple[int, int]]:
            asked = [TopicPartition(topic, p) for p in partitions]
            async with _consumer(bootstrap) as consumer:
                low = await consumer.beginning_offsets(asked)
                high = await consumer.end_offsets(asked)
            return {p.partition: (low[p], high[p]) for p in asked}

        return _run(work())

    def offset_for_time(self, bootstrap: str, topic: str, timestamp_ms: int) -> int | None:
        """ListOffsets by timestamp."""

        async def work() -> int | None:
            partition = TopicPartition(topic, 0)
            async with _consumer(bootstrap) as consumer:
                found = (await consumer.offsets_for_times({partition: timestamp_ms}))[partition]
            return None if found is None else int(found.offset)

        return _run(work())

    def create_topic(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create with replication factor 1."""
        new = NewTopic(topic, partitions, 1, topic_configs=dict(configs or {}))

        async def work() -> None:
            async with _admin(bootstrap) as admin:
                answer = await admin.create_topics([new])
            _check(answer.topic_errors)

        _run(work())

    def list_topics(self, bootstrap: str) -> set[str]:
        """Names from a full metadata request."""

        async def work() -> set[str]:
            async with _admin(bootstrap) as admin:
                return set(await admin.list_topics())

        return _run(work())

    def describe_topic(self, bootstrap: str, topic: str) -> TopicShape:
        """Partitions with their leaders."""

        async def work() -> TopicShape:
            async with _admin(bootstrap) as admin:
                (described,) = await admin.describe_topics([topic])
            _check([(topic, described["error_code"])])
            return TopicShape({p["partition"]: p["leader"] for p in described["partitions"]})

        return _run(work())

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        """Delete."""

        async def work() -> None:
            async with _admin(bootstrap) as admin:
                answer = await admin.delete_topics([topic])
            _check(answer.topic_error_codes)

        _run(work())

    def create_partitions(self, bootstrap: str, topic: str, total: int) -> None:
        """Raise the number of partitions."""

        async def work() -> None:
            async with _admin(bootstrap) as admin:
                answer = await admin.create_partitions({topic: NewPartitions(total)})
            _check(answer.topic_errors)

        _run(work())

    def describe_configs(self, bootstrap: str, topic: str) -> dict[str, str | None]:
        """Values by key."""

        async def work() -> dict[str, str | None]:
            async with _admin(bootstrap) as admin:
                (answer,) = await admin.describe_configs(
                    [ConfigResource(ConfigResourceType.TOPIC, topic)]
                )
            ((code, text, _, _, entries),) = answer.resources
            _check([(text, code)])
            return {entry[0]: entry[1] for entry in entries}

        return _run(work())

    def alter_config(self, bootstrap: str, topic: str, key: str, value: str) -> None:
        """AlterConfigs: the whole set of changed keys at once."""

        async def work() -> None:
            async with _admin(bootstrap) as admin:
                (answer,) = await admin.alter_configs(
                    [ConfigResource(ConfigResourceType.TOPIC, topic, {key: value})]
                )
            _check([(text, code) for code, text, *_ in answer.resources])

        _run(work())

    def delete_records(self, bootstrap: str, topic: str, before: Mapping[int, int]) -> None:
        """DeleteRecords."""

        async def work() -> None:
            async with _admin(bootstrap) as admin:
                await admin.delete_records(
                    {TopicPartition(topic, p): RecordsToDelete(o) for p, o in before.items()}
                )

        _run(work())


def _run(work: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        return await asyncio.wait_for(work, DEADLINE_S * 2)

    try:
        return asyncio.run(bounded())
    except BrokerResponseError as failure:
        raise RefusedError(failure.errno, str(failure)) from failure


def _check(outcomes: Sequence[Sequence[Any]]) -> None:
    """Raise the first failure of (name, code, …) rows."""
    for name, code, *_ in outcomes:
        if code != 0:
            raise RefusedError(code, f"{name}: {for_code(code).__name__}")


async def _write(
    bootstrap: str, topic: str, messages: Sequence[Message], how: WriteOptions
) -> list[Stored]:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if how.codec == "none" else how.codec,
        enable_idempotence=how.idempotent,
        acks=how.acks if how.acks == "all" else int(how.acks),
        linger_ms=how.linger_ms,
        max_request_size=how.request_bytes_max,
        max_batch_size=how.request_bytes_max,
    )
    await producer.start()
    try:
        futures = [
            await producer.send(
                topic,
                value=m.value,
                key=m.key,
                headers=list(m.headers),
                partition=m.partition,
                timestamp_ms=m.timestamp_ms,
            )
            for m in messages
        ]
        acknowledged = await asyncio.gather(*futures)
    finally:
        await producer.stop()
    if how.acks == "0":
        return []
    return [
        Stored(m.partition, a.offset, m.timestamp_ms, m.key, m.value, m.headers)
        for m, a in zip(messages, acknowledged, strict=True)
    ]


@asynccontextmanager
async def _admin(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


@asynccontextmanager
async def _consumer(bootstrap: str) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="none",
        max_partition_fetch_bytes=4 * 1_048_576,
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def _collect(
    consumer: AIOKafkaConsumer, positions: dict[int, int], ends: Mapping[int, int]
) -> list[Stored]:
    found: list[Stored] = []
    deadline = monotonic() + DEADLINE_S
    while any(positions[p] < end for p, end in ends.items()):
        assert monotonic() < deadline, f"positions {positions} have not reached {ends}"
        for records in (await consumer.getmany(timeout_ms=200)).values():
            for r in records:
                positions[r.partition] = r.offset + 1
                found.append(
                    Stored(r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers))
                )
    return found
