"""What the copy jobs under kills share: topics, the watch, the final check, the report."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

from tests.cluster.three_node_cluster import ThreeNodeCluster, three_node_cluster
from tests.copying.ends import J, SinkReader
from tests.support.librdkafka import QUICK
from tests.support.ray_clusters import DEADLINE_S, LOOK_S, wait_until

SOURCE, SINK = "source", "sink"


def create_topics(
    bootstrap: str, partitions: int, *, replicas: int = 3, min_insync: int = 2
) -> None:
    """Create source and sink."""
    config = {"min.insync.replicas": str(min_insync)}
    topics = [NewTopic(name, partitions, replicas, config=config) for name in (SOURCE, SINK)]
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUICK})
    for made in admin.create_topics(topics).values():
        made.result(DEADLINE_S)


def offsets_of(bootstrap: str, group_id: str, partitions: int) -> dict[int, int]:
    """Return the source offsets that a group has committed."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group_id})
    asked = [TopicPartition(SOURCE, index) for index in range(partitions)]
    found = consumer.committed(asked, DEADLINE_S)
    consumer.close()
    return {one.partition: one.offset for one in found}


def watch(
    reader: SinkReader[J],
    is_done: Callable[[], bool],
    each: Callable[[], None],
    stuck_s: float,
) -> None:
    """Call `each` repeatedly until done; fail if the reader sees nothing for `stuck_s`."""
    seen, since = 0, time.monotonic()
    while not is_done():
        assert not reader.failures, reader.failures[:3]
        if reader.seen != seen:
            seen, since = reader.seen, time.monotonic()
        silent_s = time.monotonic() - since
        assert silent_s < stuck_s, f"no record for {silent_s:.0f} s after {seen:,}"
        each()
        time.sleep(LOOK_S)


def read_again(
    bootstrap: str,
    partitions: int,
    judge: J,
    is_read: Callable[[SinkReader[J]], bool],
    for_s: float,
) -> J:
    """Pass the whole sink to a judge."""
    with SinkReader(bootstrap, SINK, partitions, judge) as later:
        wait_until(lambda: later.failures or is_read(later), "the sink to be read again", for_s)
        assert not later.failures, later.failures[:3]
    return judge


def counted(counts: Counter[str]) -> str:
    """Return the counts as text."""
    return ", ".join(f"{name} {count}" for name, count in counts.most_common()) or "none"


class Telling:
    """Prints the progress and the results of a run."""

    def __init__(self) -> None:
        self.said_s = 0.0
        self._console = Console(highlight=False, soft_wrap=True, width=110)
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        """Print a progress message with time and load."""
        self.said_s = time.monotonic()
        took_s = self.said_s - self._began
        self.tell([f"[{took_s:5.0f} s, load {os.getloadavg()[0]:4.1f}] {text}"])

    def tell(self, lines: Iterable[str]) -> None:
        """Print lines."""
        for line in lines:
            self._console.print(line, markup=False)


@contextmanager
def three_nodes(folder: Path | None, settings: dict[str, str]) -> Iterator[ThreeNodeCluster]:
    """Run three brokers on three Ray nodes; logs stay in `folder` if it is given."""
    with tempfile.TemporaryDirectory(prefix="raylog-copying-") as passing:
        home = folder or Path(passing)
        home.mkdir(exist_ok=True)
        with three_node_cluster(home, None, settings) as here:
            yield here
