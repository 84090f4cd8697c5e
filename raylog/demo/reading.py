"""Reads a topic from beginning to end with librdkafka."""

from time import monotonic
from typing import TYPE_CHECKING

from raylog.demo.screen import DemoError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

READ_S = 60.0
_AT_ONCE = 5_000


def read_all(bootstrap: str, topic: str, *, read_committed: bool) -> list[bytes]:
    """Return the values of all records visible at that isolation level. Raises DemoError."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none: nothing is committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if read_committed else "read_uncommitted",
            "log_level": 0,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=READ_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        return _until_ends(consumer, topic, set(partitions))
    finally:
        consumer.close()


def _until_ends(consumer: "Consumer", topic: str, unread: set[int]) -> list[bytes]:
    values: list[bytes] = []
    deadline = monotonic() + READ_S
    while unread:
        for message in consumer.consume(_AT_ONCE, timeout=0.5):
            if _is_end(message):
                unread.discard(message.partition())
            else:
                values.append(message.value() or b"")
        if monotonic() > deadline:
            raise DemoError(f"the end of {topic}-{min(unread)} was not reached in {READ_S:.0f} s")
    return values


def _is_end(message: "Message") -> bool:
    """Return whether a message marks the end of a partition. Raises DemoError for an error."""
    from confluent_kafka import KafkaError

    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise DemoError(f"reading the result topic failed: {error}")
    return error is not None
