"""Small clusters for the tests of `raylog top`."""

from collections.abc import Iterable

from raylog.cli.top.events import BrokerSeen, ClusterSeen, EndsSeen
from raylog.cli.top.machine import Watch
from raylog.client import TopicPartition
from raylog.client.cluster import PartitionView


def partition(
    index: int, leader: int = 0, replicas: Iterable[int] = (0, 1, 2), isr: Iterable[int] = (0, 1, 2)
) -> PartitionView:
    return PartitionView(index, leader, 1, tuple(replicas), tuple(isr))


def cluster(
    *partitions: tuple[str, PartitionView], live: Iterable[int] = (0, 1, 2), at_ms: float = 0.0
) -> ClusterSeen:
    brokers = {one: BrokerSeen(one, "localhost", 9092 + one) for one in live}
    return ClusterSeen(
        at_ms,
        "a-cluster",
        brokers,
        {TopicPartition(topic, one.partition): one for topic, one in partitions},
    )


def ends(at_ms: float, **of_topics: list[int]) -> EndsSeen:
    """Return the high watermarks of topics' partitions, in order."""
    return EndsSeen(
        at_ms,
        {
            TopicPartition(topic, index): end
            for topic, of_topic in of_topics.items()
            for index, end in enumerate(of_topic)
        },
    )


def watching(*events: object) -> Watch:
    watch = Watch()
    for event in events:
        watch.handle(event)  # type: ignore[arg-type]
    return watch
