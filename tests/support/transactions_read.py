"""What a read_committed consumer sees."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

CALL_S = 30.0


def read_committed(bootstrap: str, topic: str) -> list[bytes]:
    """Return the values of partition 0 up to its last stable offset."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "reader",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while True:
        message = consumer.poll(CALL_S)
        assert message is not None, f"no end after {found}"
        if message.error():
            break
        found.append(message.value() or b"")
    consumer.close()
    return found
