"""How many brokers a load needs, reckoned from measured figures: a load in, a plan out.

The model is a straight line for each thing that was measured. Work on a batch has a fixed part and
one by its bytes; each connection asks now and then; each broker costs something at rest. What the
measured figures do not cover is said in the plan's notes instead of guessed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

CPU_MARGIN = 2.0
"""Cores are planned to be half busy: peaks, other processors, colder caches than in a benchmark."""
NETWORK_MARGIN = 2.0
DISK_MARGIN = 1.25
"""Segments are deleted whole, and a broker that catches up needs room."""
_KIB_IN_MB = 1_000_000 / 1024
_MB_IN_GB = 1000
_US_IN_S = 1_000_000


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure and the command that shows it; docs/BENCHMARKS.md has the table."""

    value: float
    unit: str
    what: str
    command: str


FIGURES = {
    "batch": Figure(
        112, "µs a batch", "leader and its links, fixed part", "python -m bench.replication"
    ),
    "batch_kib": Figure(
        3.4, "µs a KiB", "leader and its links, by size", "python -m bench.replication"
    ),
    "copy": Figure(36, "µs a batch", "each follower, fixed part", "python -m bench.replication"),
    "copy_kib": Figure(1.3, "µs a KiB", "each follower, by size", "python -m bench.replication"),
    "gateway": Figure(
        217, "µs a batch", "gateway and everything else, out of 12 CPU s a GB", "make replicated"
    ),
    "read_gb": Figure(0.85, "CPU s a GB", "sending records to a reader", "make bench"),
    "partition_mb_s": Figure(
        47, "MB/s", "highest rate of one partition, three copies", "make replicated"
    ),
    "request": Figure(77, "µs a request", "requests of connections", "make scale-connections"),
    "connection": Figure(11_275, "bytes", "an idle connection", "make scale-connections"),
    "partition": Figure(
        822, "bytes a process", "a partition in the metadata", "make scale-controller"
    ),
    "rest": Figure(0.06, "cores", "an idle broker, Ray included", "make bench"),
    "rest_mib": Figure(418, "MiB", "an idle broker", "make bench"),
}
"""By what `plan` calls them. The fixed parts and those by size are the straight lines through
batches of 1 and 64 KiB to six partitions; the gateway's is what is left of the cluster's CPU."""
PARTITIONS_MEASURED = 100_000
CONNECTIONS_MEASURED = 10_500
"""On one broker."""
BROKERS_MEASURED = 3
"""Under load."""
PROCESSES = 4
"""Of a broker, that each have a copy of the metadata."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a cluster is to carry."""

    mb_s: float
    """Values written, at the peak, before they are copied. 1 MB is 1,000,000 bytes."""
    partitions: int
    """Of all topics, without copies."""
    connections: int
    replication: int
    retention_s: float
    readers: float = 1.0
    """How often each record is read."""
    batch_kib: float = 16.0
    mean_share: float = 1.0
    """Of the peak: what is written on average, which decides the disk."""
    requests_s: float = 2.0
    """Of one connection, beside batches and records: fetches that wait, heartbeats, commits."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One broker's."""

    cores: int = 4
    disk_gb: float | None = None
    """None: as much as is needed."""
    network_gbit_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a load needs; figures are with their margins."""

    brokers: int
    decided_by: str
    cores: float
    """Of all brokers together."""
    disk_gb: float
    """Of each broker when one is lost and its partitions have moved."""
    disk_mb_s: float
    """Written by each broker when one is lost, without a margin."""
    network_gbit_s: float
    """Of each broker when one is lost, in its busier direction."""
    memory_mib: float
    """Of each broker, without the page cache."""
    notes: list[str] = field(default_factory=list)


def plan(load: Load, machine: Machine) -> Plan:
    """The fewest brokers that carry the load when one of them is lost."""
    cores = CPU_MARGIN * _cores(load)
    disk_gb = _disk_gb(load)
    network = NETWORK_MARGIN * _network_mb_s(load) * 8 / 1000
    at_rest = CPU_MARGIN * FIGURES["rest"].value
    needs = {
        "replication": load.replication - 1,
        "cores": math.ceil(cores / (machine.cores - at_rest)),
        "disk": 0 if machine.disk_gb is None else math.ceil(disk_gb / machine.disk_gb),
        "network": math.ceil(network / machine.network_gbit_s),
    }
    decided_by = max(needs, key=lambda name: needs[name])
    carrying = max(needs[decided_by], 1)
    brokers = carrying + 1 if load.replication > 1 else carrying
    return Plan(
        brokers=brokers,
        decided_by=decided_by,
        cores=cores + brokers * at_rest,
        disk_gb=disk_gb / carrying,
        disk_mb_s=load.mb_s * load.replication / carrying,
        network_gbit_s=network / carrying,
        memory_mib=_memory_mib(load, carrying),
        notes=_notes(load, brokers),
    )


def _disk_gb(load: Load) -> float:
    """Of all brokers together."""
    kept_mb = load.mb_s * load.mean_share * load.retention_s * load.replication
    return DISK_MARGIN * kept_mb / _MB_IN_GB


def _cores(load: Load) -> float:
    """Of all brokers, without what they take at rest."""
    batches_s = load.mb_s * _KIB_IN_MB / load.batch_kib
    kib_s = load.mb_s * _KIB_IN_MB
    copies = load.replication - 1
    value = {name: figure.value for name, figure in FIGURES.items()}
    write_us = batches_s * (value["gateway"] + value["batch"] + copies * value["copy"])
    write_us += kib_s * (value["batch_kib"] + copies * value["copy_kib"])
    read_us = load.mb_s * load.readers / _MB_IN_GB * value["read_gb"] * _US_IN_S
    ask_us = load.connections * load.requests_s * value["request"]
    return (write_us + read_us + ask_us) / _US_IN_S


def _network_mb_s(load: Load) -> float:
    """Through all brokers, in the busier direction."""
    copies = load.replication - 1
    return max(load.mb_s * (1 + copies), load.mb_s * (load.readers + copies))


def _memory_mib(load: Load, carrying: int) -> float:
    metadata = load.partitions * FIGURES["partition"].value * PROCESSES
    connections = load.connections / carrying * FIGURES["connection"].value
    return FIGURES["rest_mib"].value + (metadata + connections) / 1024**2


def _notes(load: Load, brokers: int) -> list[str]:
    notes = []
    needed = math.ceil(load.mb_s / (FIGURES["partition_mb_s"].value / CPU_MARGIN))
    if load.partitions < needed:
        notes.append(
            f"expected at least {needed} partitions, found {load.partitions}: one takes at most "
            f"{FIGURES['partition_mb_s'].value:g} MB/s, and the plan uses half of that"
        )
    if brokers > BROKERS_MEASURED:
        notes.append(
            f"more than {BROKERS_MEASURED} brokers were never measured under load: "
            f"the figures for {brokers:,} are an extrapolation"
        )
    if load.partitions > PARTITIONS_MEASURED:
        notes.append(f"more than {PARTITIONS_MEASURED:,} partitions were never measured")
    if load.connections > CONNECTIONS_MEASURED * brokers:
        notes.append(f"more than {CONNECTIONS_MEASURED:,} connections a broker were never measured")
    if load.replication == 1:
        notes.append(
            "with one copy, the data of a lost broker is gone, and the plan has no spare broker"
        )
    return notes
