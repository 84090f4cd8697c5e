"""One member of a consumer group, in a process of its own that reports in JSON lines.

    python -m tests.support.member_process KIND BOOTSTRAP TOPIC GROUP SESSION_MS

Each line has `t`, the machine's monotonic time in seconds, and `what`: subscribed, assigned,
revoked, read, committed, refused (a commit), left. Offsets are committed after each read and before
partitions are revoked. On SIGTERM the member leaves.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import confluent_kafka
from aiokafka import AIOKafkaConsumer
from aiokafka.abc import ConsumerRebalanceListener as AioListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.errors import KafkaError as AioError

from tests.support.kafka_python import kafka, subscribe

HEARTBEATS = 5
"""Heartbeats per session timeout."""
POLL_MS = 100
BATCH = 200


def say(what: str, partitions: Iterable[int] = (), **more: Any) -> None:
    """Write one line."""
    line = {"t": time.monotonic(), "what": what, "partitions": sorted(partitions), **more}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


class Ending:
    """True once the process was asked to end."""

    def __init__(self) -> None:
        self._asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, *_: object) -> None:
        self._asked = True

    def __bool__(self) -> bool:
        return self._asked


def said_read(found: Mapping[int, list[int]]) -> None:
    """Report the offsets read, by partition."""
    if any(found.values()):
        say("read", found, offsets={str(p): offsets for p, offsets in found.items()})


def confluent(more: Mapping[str, str]) -> Callable[[str, str, str, int], None]:
    """Return a librdkafka member with additional settings."""

    def run(bootstrap: str, topic: str, group: str, session_ms: int) -> None:
        ending = Ending()
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": "false",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": "100",
            "reconnect.backoff.max.ms": "250",
            "log_level": "0",
        }
        if more.get("group.protocol") != "consumer":
            settings["session.timeout.ms"] = str(session_ms)
            settings["heartbeat.interval.ms"] = str(session_ms // HEARTBEATS)
        consumer = confluent_kafka.Consumer(settings | dict(more))
        consumer.subscribe(
            [topic],
            on_assign=lambda _, given: say("assigned", (one.partition for one in given)),
            on_revoke=lambda _, taken: say("revoked", (one.partition for one in taken)),
            on_lost=lambda _, taken: say("revoked", (one.partition for one in taken), lost=True),
        )
        say("subscribed")
        while not ending:
            found: dict[int, list[int]] = {}
            for message in consumer.consume(BATCH, POLL_MS / 1000):
                partition, offset = message.partition(), message.offset()
                if message.error() is None and partition is not None and offset is not None:
                    found.setdefault(partition, []).append(offset)
            said_read(found)
            if found:
                _commit_confluent(consumer, topic, found)
        consumer.close()
        say("left")

    return run


def _commit_confluent(
    consumer: confluent_kafka.Consumer, topic: str, found: Mapping[int, list[int]]
) -> None:
    offsets = [confluent_kafka.TopicPartition(topic, p, max(read) + 1) for p, read in found.items()]
    try:
        consumer.commit(offsets=offsets, asynchronous=False)
    except confluent_kafka.KafkaException as refused:
        say("refused", found, why=str(refused))
    else:
        say("committed", found)


class _Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    def on_partitions_revoked(self, revoked: Any) -> None:
        say("revoked", (one.partition for one in revoked))

    def on_partitions_assigned(self, assigned: Any) -> None:
        say("assigned", (one.partition for one in assigned))


def kafka_python(bootstrap: str, topic: str, group: str, session_ms: int) -> None:
    """Run a member with kafka-python."""
    ending = Ending()
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=POLL_MS,
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=session_ms // HEARTBEATS,
        partition_assignment_strategy=[kafka.coordinator.assignors.range.RangePartitionAssignor],
    )
    subscribe(consumer, topic, listener=_Listener())
    say("subscribed")
    while not ending:
        batches = consumer.poll(timeout_ms=POLL_MS, max_records=BATCH)
        found = {one.partition: [r.offset for r in records] for one, records in batches.items()}
        said_read(found)
        if found:
            try:
                consumer.commit()
            except kafka.errors.KafkaError as refused:
                say("refused", found, why=str(refused))
            else:
                say("committed", found)
    say("revoked", (one.partition for one in consumer.assignment()))
    consumer.close()
    say("left")


class _AsyncListener(AioListener):  # type: ignore[misc]  # aiokafka has no types
    async def on_partitions_revoked(self, revoked: Any) -> None:
        say("revoked", (one.partition for one in revoked))

    async def on_partitions_assigned(self, assigned: Any) -> None:
        say("assigned", (one.partition for one in assigned))


async def _aiokafka(bootstrap: str, topic: str, group: str, session_ms: int) -> None:
    ending = Ending()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=POLL_MS,
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=session_ms // HEARTBEATS,
        partition_assignment_strategy=[AioRange],
    )
    consumer.subscribe([topic], listener=_AsyncListener())
    say("subscribed")
    await consumer.start()
    while not ending:
        batches = await consumer.getmany(timeout_ms=POLL_MS, max_records=BATCH)
        found = {one.partition: [r.offset for r in records] for one, records in batches.items()}
        said_read(found)
        if found:
            try:
                await consumer.commit()
            except AioError as refused:
                say("refused", found, why=str(refused))
            else:
                say("committed", found)
    say("revoked", (one.partition for one in consumer.assignment()))
    await consumer.stop()
    say("left")


def aiokafka(bootstrap: str, topic: str, group: str, session_ms: int) -> None:
    """Run a member with aiokafka."""
    asyncio.run(_aiokafka(bootstrap, topic, group, session_ms))


_ASSIGNMENT = "partition.assignment.strategy"
KINDS: dict[str, Callable[[str, str, str, int], None]] = {
    "confluent": confluent({_ASSIGNMENT: "range"}),
    "confluent-cooperative": confluent({_ASSIGNMENT: "cooperative-sticky"}),
    "confluent-consumer": confluent({"group.protocol": "consumer"}),
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}


if __name__ == "__main__":
    KINDS[sys.argv[1]](sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
