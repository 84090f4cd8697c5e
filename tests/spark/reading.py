"""Reading topics back, as readers of either isolation level see them."""

from __future__ import annotations

from raylog.client import (
    EARLIEST,
    LATEST,
    BlockingClient,
    ConsumerSettings,
    Record,
    TopicPartition,
)
from tests.support.ray_clusters import wait_until


def partitions_of(client: BlockingClient, topic: str) -> list[TopicPartition]:
    """All partitions of a topic."""
    return [TopicPartition(topic, number) for number in client.describe_topic(topic).partitions]


def read_all(bootstrap: str, topic: str, *, read_committed: bool = True) -> dict[int, list[Record]]:
    """Records by partition, up to the end as it is at the start of reading."""
    found: dict[int, list[Record]] = {}
    with BlockingClient(bootstrap) as client:
        keys = partitions_of(client, topic)
        ends = client.list_offsets(dict.fromkeys(keys, LATEST), read_committed=read_committed)
        settings = ConsumerSettings(read_committed=read_committed, max_wait_ms=50)
        with_end = {key: ends[key].offset for key in keys}
        consumer = client.consumer(settings)
        consumer.assign(dict.fromkeys(keys, EARLIEST))
        while any(consumer.position(key) < end for key, end in with_end.items()):
            for records in consumer.poll(1_000):
                found.setdefault(records.partition, []).extend(records.records)
    return found


def until_settled(bootstrap: str, topic: str) -> None:
    """Wait until no transaction is open: EndTxn may be answered before all markers are written."""
    with BlockingClient(bootstrap) as client:
        ends = dict.fromkeys(partitions_of(client, topic), LATEST)

        def settled() -> bool:
            visible = client.list_offsets(ends, read_committed=True)
            return visible == client.list_offsets(ends, read_committed=False)

        wait_until(settled, f"the ends of all transactions in {topic}")


def values(
    bootstrap: str, topic: str, *, read_committed: bool = True, settled: bool = True
) -> list[bytes]:
    """All values, sorted; those of open transactions too once they are ended, if `settled`."""
    if read_committed and settled:
        until_settled(bootstrap, topic)
    records = read_all(bootstrap, topic, read_committed=read_committed).values()
    return sorted(record.value or b"" for of_partition in records for record in of_partition)
