"""What clients see of a cluster: records by isolation level, committed offsets, configurations."""

from __future__ import annotations

import hashlib
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType

GROUPS = ("group-classic", "group-consumer")
LEVELS = ("read_committed", "read_uncommitted")
PARTITIONS = 3


def read_contents(bootstrap: str) -> dict[str, Any]:
    """All that a cluster serves, as JSON; records as their count and a digest by partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = {
        name: len(topic.partitions)
        for name, topic in sorted(admin.list_topics(timeout=60).topics.items())
        if not name.startswith("__")
    }
    return {
        "configs": {topic: _configs(admin, topic) for topic in topics},
        "groups": {group: _offsets(bootstrap, group) for group in GROUPS},
        "topics": {
            topic: {level: _records(bootstrap, topic, count, level) for level in LEVELS}
            for topic, count in topics.items()
        },
    }


def _configs(admin: AdminClient, topic: str) -> dict[str, str]:
    (found,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return {
        name: entry.value
        for name, entry in sorted(found.result(60).items())
        if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    }


def _offsets(bootstrap: str, group: str) -> dict[str, list[object]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    wanted = [TopicPartition("plain", partition) for partition in range(PARTITIONS)]
    found = consumer.committed(wanted, timeout=60)
    consumer.close()
    return {str(one.partition): [one.offset, one.metadata] for one in found}


def _records(bootstrap: str, topic: str, partitions: int, level: str) -> dict[str, list[object]]:
    """Count of the newest value of each key (or of all without keys) and their digest."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "isolation.level": level,
        }
    )
    found: dict[str, list[object]] = {}
    for partition in range(partitions):
        consumer.assign([TopicPartition(topic, partition, 0)])
        records: dict[object, tuple[object, ...]] = {}
        while True:
            message = consumer.poll(60)
            assert message is not None, f"{topic}-{partition} is not served"
            if message.error():
                break
            # A compacted topic may be cleaned at any time: the newest value of a key counts.
            key = message.key() if topic == "compacted" else message.offset()
            records[key] = (message.offset(), message.key(), message.value())
        lines = sorted(records.values())
        found[str(partition)] = [len(lines), hashlib.sha256(repr(lines).encode()).hexdigest()]
    consumer.close()
    return found
