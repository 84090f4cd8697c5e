"""Computes how many brokers a load needs from measured figures: a load in, a plan out.

The model is linear. A batch costs a fixed amount and an amount per byte; a connection sends
requests at a fixed rate; an idle broker has a fixed cost. The plan's notes say what the measured
figures do not cover.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

CPU_MARGIN = 2.0
"""Cores are planned to be half busy, for peaks, other processors, and colder caches than in a
benchmark."""
NETWORK_MARGIN = 2.0
DISK_MARGIN = 1.25
"""Segments are deleted as a whole, and a broker that catches up needs space."""
_KIB_IN_MB = 1_000_000 / 1024
_MB_IN_GB = 1000
_US_IN_S = 1_000_000


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure and the command that measures it; docs/BENCHMARKS.md has the table."""

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
"""By name. Fixed parts and parts by size are straight lines through batches of 1 and 64 KiB to six
partitions; the gateway's figure is the rest of the cluster's CPU time."""
PARTITIONS_MEASURED = 100_000
CONNECTIONS_MEASURED = 10_500
"""Connections to one broker."""
BROKERS_MEASURED = 3
"""Brokers under load."""
PROCESSES = 4
"""Processes of a broker with a copy of the metadata."""


@dataclass(frozen=True, slots=True)
class Load:
    """The load on a cluster."""

    mb_s: float
    """Peak write rate of values, in MB/s, not counting copies. 1 MB is 1,000,000 bytes."""
    partitions: int
    """Partitions of all topics, not counting copies."""
    connections: int
    replication: int
    retention_s: float
    readers: float = 1.0
    """How often each record is read."""
    batch_kib: float = 16.0
    mean_share: float = 1.0
    """Average write rate as a share of the peak; it determines the disk space."""
    requests_s: float = 2.0
    """Per connection, besides batches and records: waiting fetches, heartbeats, commits."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of one broker."""

    cores: int = 4
    disk_gb: float | None = None
    """None: as much as needed."""
    network_gbit_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a load needs, with margins unless noted."""

    brokers: int
    decided_by: str
    cores: float
    """Cores of all brokers together."""
    disk_gb: float
    """Per broker, when one is lost and its partitions have moved."""
    disk_mb_s: float
    """Write rate per broker when one is lost, without a margin."""
    network_gbit_s: float
    """Per broker when one is lost, in the busier direction."""
    memory_mib: float
    """Per broker, without the page cache and without a margin."""
    notes: list[str] = field(default_factory=list)


def plan(load: Load, machine: Machine) -> Plan:
    """Plan the fewest brokers that carry the load; with copies, also when one broker is lost."""
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
    """Return the disk space of all brokers, with its margin."""
    kept_mb = load.mb_s * load.mean_share * load.retention_s * load.replication
    return DISK_MARGIN * kept_mb / _MB_IN_GB


def _cores(load: Load) -> float:
    """Return the cores that the load uses on all brokers, without those that idle brokers use."""
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
    """Return the traffic of all brokers, in the busier direction."""
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
