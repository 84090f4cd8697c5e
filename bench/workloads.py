"""The workloads, one class per kind. Each creates and deletes its topics."""

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from confluent_kafka.admin import AdminClient, NewTopic

from bench import clients
from bench.clients import Load, ProducerSettings
from bench.measure import cpu_seconds
from bench.peers import Peer

ADMIN_TIMEOUT_S = 30.0
TOPIC_BYTES_MAX = 2_000_000_000
"""The largest size of a measured topic, however fast the broker is."""

CODECS = ("lz4", "zstd", "snappy", "gzip")

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure of a workload."""

    name: str
    unit: str
    better: Literal["higher", "lower"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One run on one peer: figures by metric name, and the broker's CPU seconds if it is ours."""

    values: dict[str, float]
    broker_cpu_s: float | None = None
    payload_bytes: int = 0


class Workload(Protocol):
    """A workload that is run on one peer after another."""

    @property
    def name(self) -> str:
        """Kind, client and settings in a few words. Unique."""
        ...

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The figures of a run."""
        ...

    def probe(self, peer: Peer) -> float:
        """Records per second in a short run that warms up the peer; 0 if no size is needed."""
        ...

    def sized(self, rate: float, seconds: float) -> "Workload":
        """The workload with as many records as `rate` gives in `seconds`."""
        ...

    def run(self, peer: Peer) -> Sample:
        """Measure once."""
        ...


THROUGHPUT = Metric("throughput", "MB/s", "higher")


@dataclass(frozen=True, slots=True)
class Copies:
    """The replication factor of topics, and their min.insync.replicas."""

    replicas: int = 1
    min_insync: int = 1

    @property
    def words(self) -> str:
        """The suffix of a workload's name."""
        return "" if self.replicas == 1 else f" RF {self.replicas}"


ONE_COPY = Copies()


@contextmanager
def topic(peer: Peer, partitions: int, copies: Copies = ONE_COPY) -> Iterator[str]:
    """A new topic within the context."""
    name = f"bench-{os.getpid()}-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": peer.address, "log_level": 4})
    config = {"min.insync.replicas": str(copies.min_insync)}
    new = NewTopic(name, partitions, copies.replicas, config=config)
    admin.create_topics([new])[name].result(ADMIN_TIMEOUT_S)
    try:
        yield name
    finally:
        admin.delete_topics([name])[name].result(ADMIN_TIMEOUT_S)


def _records_for(rate: float, seconds: float, size: int, least: int) -> int:
    most = TOPIC_BYTES_MAX // size
    return min(most, max(least, int(rate * seconds)))


def _cpu(peer: Peer) -> float:
    return cpu_seconds(peer.mark) if peer.mark else 0.0


@dataclass(frozen=True, slots=True)
class Produce:
    """The throughput of one or several producers."""

    client: Literal["java", "librdkafka"]
    settings: ProducerSettings
    size: int
    partitions: int
    producers: int = 1
    records: int = 50_000
    copies: Copies = ONE_COPY
    metrics: tuple[Metric, ...] = (THROUGHPUT,)

    @property
    def name(self) -> str:
        """Such as `produce java acks=all 1024 B 6 p 64 KiB`."""
        many = f" x{self.producers}" if self.producers > 1 else ""
        batch = f"{self.settings.batch_bytes // 1024} KiB linger {self.settings.linger_ms}"
        acks = f"acks={self.settings.acks}{self.copies.words}"
        codec = "" if self.settings.codec == "none" else f" {self.settings.codec}"
        lasting = self.settings.transaction_ms
        within = f" transactions of {lasting} ms" if lasting else ""
        sizes = f"{self.size} B {self.partitions} p {batch}{codec}"
        return f"produce {self.client}{many} {acks} {sizes}{within}"

    def probe(self, peer: Peer) -> float:
        """Run at the smallest size."""
        return self.run(peer).values["throughput"] * 1e6 / self.size

    def sized(self, rate: float, seconds: float) -> "Produce":
        """The workload with more records."""
        return replace(self, records=_records_for(rate, seconds, self.size, self.records))

    def run(self, peer: Peer) -> Sample:
        """Produce into a new topic."""
        with topic(peer, self.partitions, self.copies) as name:
            load = Load(name, self.partitions, self.records, self.size)
            before = _cpu(peer)
            if self.client == "java":
                rate = clients.java_produce(peer.address, load, self.settings, self.producers)
            else:
                rate = clients.librdkafka_produce(peer.address, load, self.settings)
            used = _cpu(peer) - before
        return Sample({"throughput": rate * self.size / 1e6}, used, load.payload_bytes)


@dataclass(frozen=True, slots=True)
class Consume:
    """The throughput of a consumer that reads what was written just before."""

    client: Literal["java", "java-group", "librdkafka"]
    size: int
    partitions: int
    records: int = 50_000
    metrics: tuple[Metric, ...] = (THROUGHPUT,)

    @property
    def name(self) -> str:
        """Such as `consume java 1024 B 6 p`."""
        return f"consume {self.client} {self.size} B {self.partitions} p"

    def probe(self, peer: Peer) -> float:
        """Run at the smallest size."""
        return self.run(peer).values["throughput"] * 1e6 / self.size

    def sized(self, rate: float, seconds: float) -> "Consume":
        """The workload with more records."""
        return replace(self, records=_records_for(rate, seconds, self.size, self.records))

    def run(self, peer: Peer) -> Sample:
        """Fill a new topic, then read all of it."""
        with topic(peer, self.partitions) as name:
            load = Load(name, self.partitions, self.records, self.size)
            clients.java_produce(peer.address, load, ProducerSettings("1", 5, 65_536))
            before = _cpu(peer)
            rate = self._rate(peer.address, load)
            used = _cpu(peer) - before
        return Sample({"throughput": rate * self.size / 1e6}, used, load.payload_bytes)

    def _rate(self, address: str, load: Load) -> float:
        match self.client:
            case "java":
                return clients.java_consume(address, load)
            case "java-group":
                return clients.java_consume_in_group(address, load, f"group-{load.topic}")
            case "librdkafka":
                return clients.librdkafka_consume(address, load)


@dataclass(frozen=True, slots=True)
class EndToEnd:
    """The mean latency by Kafka's own tool, which sends the next record when one has come back."""

    acks: str
    records: int = 2_000
    metrics: tuple[Metric, ...] = (Metric("mean", "ms", "lower"),)

    @property
    def name(self) -> str:
        """Such as `end-to-end java acks=1 100 B`."""
        return f"end-to-end java acks={self.acks} 100 B"

    def probe(self, peer: Peer) -> float:
        """Warm up only."""
        self.run(peer)
        return 0.0

    def sized(self, rate: float, seconds: float) -> "EndToEnd":
        """The same workload: it has a fixed number of records."""
        return replace(self, records=max(self.records, int(seconds * 500)))

    def run(self, peer: Peer) -> Sample:
        """Send and receive in a new topic."""
        with topic(peer, 1) as name:
            mean = clients.java_end_to_end(peer.address, name, self.records, self.acks)
        return Sample({"mean": mean})


@dataclass(frozen=True, slots=True)
class Paced:
    """End-to-end and acknowledgement latency at a fixed rate.

    Latency counts from when each record was due.
    """

    acks: str
    rate: int
    size: int
    seconds: int = 3
    copies: Copies = ONE_COPY
    metrics: tuple[Metric, ...] = (
        Metric("p50", "ms", "lower"),
        Metric("p99", "ms", "lower"),
        Metric("acknowledged_p50", "ms", "lower"),
        Metric("acknowledged_p99", "ms", "lower"),
    )

    @property
    def name(self) -> str:
        """Such as `paced java 1000/s acks=all 100 B`."""
        return f"paced java {self.rate}/s acks={self.acks}{self.copies.words} {self.size} B"

    def probe(self, peer: Peer) -> float:
        """Warm up only."""
        self.run(peer)
        return 0.0

    def sized(self, rate: float, seconds: float) -> "Paced":
        """The same workload for `seconds`: the rate is fixed."""
        return replace(self, seconds=max(self.seconds, round(seconds)))

    def run(self, peer: Peer) -> Sample:
        """Send and receive in a new topic."""
        with topic(peer, 1, self.copies) as name:
            found = clients.java_paced(
                peer.address, name, self.rate, self.seconds, self.size, self.acks
            )
        return Sample({metric.name: found[metric.name] for metric in self.metrics})


def all_workloads(*, groups: bool) -> list[Workload]:
    """All workloads. Consumer groups are included only if every peer serves them."""
    tuned = [ProducerSettings(acks, 5, 65_536) for acks in ("1", "all")]
    plain = [ProducerSettings(acks, 0, 16_384) for acks in ("1", "all")]
    shapes = list(itertools.product((100, 1024), (1, 6)))
    workloads: list[Workload] = []
    for settings in (*tuned, *plain):
        workloads += [Produce("java", settings, size, parts) for size, parts in shapes]
    workloads += [Produce("java", settings, 1024, 6, producers=3) for settings in tuned]
    for codec in CODECS:
        settings = replace(tuned[0], codec=codec)
        workloads += [Produce("java", settings, size, parts) for size, parts in shapes]
    for settings in tuned:
        workloads += [Produce("librdkafka", settings, size, parts) for size, parts in shapes]
    workloads += [Consume("java", size, parts) for size, parts in shapes]
    if groups:
        workloads += [Consume("java-group", size, parts) for size, parts in shapes]
    workloads += [Consume("librdkafka", size, parts) for size, parts in shapes]
    workloads += [EndToEnd(acks) for acks in ("1", "all")]
    workloads += [Paced(acks, 1_000, 100) for acks in ("1", "all")]
    return workloads


def quick_workloads() -> list[Workload]:
    """One workload of each kind, for a few minutes."""
    tuned = ProducerSettings("1", 5, 65_536)
    return [
        Produce("java", tuned, 1024, 1),
        Produce("java", replace(tuned, acks="all"), 1024, 6),
        Produce("java", replace(tuned, acks="all"), 100, 6),
        Produce("librdkafka", tuned, 1024, 6),
        Consume("java-group", 1024, 1),
        Consume("java-group", 100, 6),
        EndToEnd("1"),
        Paced("all", 1_000, 100),
    ]
