"""The command `raylog sizing`: estimates brokers, cores, disks and network for a load."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Annotated

import typer

from raylog.cli.options import Json
from raylog.cli.output import console, print_json, table
from raylog.cli.sizing_plan import (
    CPU_MARGIN,
    DISK_MARGIN,
    FIGURES,
    NETWORK_MARGIN,
    Load,
    Machine,
    Plan,
    plan,
)

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LARGEST = 1_000_000_000
_WHOLE = 10
"""Numbers from here on are shown without decimals."""


Mbs = Annotated[
    float,
    typer.Option(
        "--mb-s", min=0.001, max=_LARGEST, help="Peak write rate of producers, in MB/s of values."
    ),
]
Partitions = Annotated[
    int,
    typer.Option("--partitions", min=1, max=_LARGEST, help="Number of partitions of all topics."),
]
Connections = Annotated[
    int, typer.Option("--connections", min=0, max=_LARGEST, help="Number of client connections.")
]
Replication = Annotated[
    int, typer.Option("--replication", min=1, max=100, help="Replicas of each partition.")
]
Retention = Annotated[
    str,
    typer.Option("--retention", metavar="DURATION", help="How long records are kept: 12h, 7d."),
]
Readers = Annotated[
    float,
    typer.Option(
        "--readers",
        min=0,
        max=_LARGEST,
        help="Number of consumer groups that read each record.",
    ),
]
BatchKib = Annotated[
    float,
    typer.Option(
        "--batch-kib",
        min=0.1,
        max=16_384,
        help="Size of a producer's batch for one partition, in KiB.",
    ),
]
MeanShare = Annotated[
    float,
    typer.Option(
        "--mean-share", min=0.001, max=1, help="Average write rate, as a share of the peak."
    ),
]
Cores = Annotated[
    int, typer.Option("--cores", min=1, max=1024, help="Cores of each broker's machine.")
]
DiskGb = Annotated[
    float | None,
    typer.Option(
        "--disk-gb",
        min=1,
        max=_LARGEST,
        help="Disk space of each broker, in GB. Default: as needed.",
    ),
]
NetworkGbit = Annotated[
    float,
    typer.Option(
        "--network-gbit", min=0.01, max=10_000, help="Network bandwidth of each broker, in Gbit/s."
    ),
]


def sizing(
    mb_s: Mbs,
    partitions: Partitions = 100,
    connections: Connections = 100,
    replication: Replication = 3,
    retention: Retention = "7d",
    readers: Readers = 1.0,
    batch_kib: BatchKib = 16.0,
    mean_share: MeanShare = 1.0,
    cores: Cores = 4,
    disk_gb: DiskGb = None,
    network_gbit_s: NetworkGbit = 10.0,
    as_json: Json = False,
) -> None:
    """Estimate how many brokers a load needs, based on measurements.

    raylog sizing --mb-s 50 --partitions 2000 --connections 500 --retention 7d

    With more than one replica, the planned cluster still carries the load if one
    broker fails. docs/sizing.md lists the measurements and the margins.
    """
    load = Load(
        mb_s=mb_s,
        partitions=partitions,
        connections=connections,
        replication=replication,
        retention_s=_seconds(retention),
        readers=readers,
        batch_kib=batch_kib,
        mean_share=mean_share,
    )
    machine = Machine(cores=cores, disk_gb=disk_gb, network_gbit_s=network_gbit_s)
    found = plan(load, machine)
    if as_json:
        figures = {name: asdict(figure) for name, figure in FIGURES.items()}
        asked = {"load": asdict(load), "machine": asdict(machine)}
        print_json(asdict(found) | asked | {"figures": figures})
    else:
        _show(found, load)


def _seconds(text: str) -> float:
    found = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    if found is None or int(found[1]) == 0:
        raise typer.BadParameter(
            f"expected 90m, 12h or 7d, found {text!r}", param_hint="--retention"
        )
    return float(int(found[1]) * _UNITS_S[found[2]])


def _show(found: Plan, load: Load) -> None:
    is_spare = load.replication > 1
    why = {
        "replication": "1 copy" if load.replication == 1 else f"{load.replication} copies",
        "cores": "the cores",
        "disk": "the disks",
        "network": "the network",
    }[found.decided_by]
    each = "each, when one is lost" if is_spare else "each"
    rows = [
        (
            "brokers",
            f"{found.brokers:,}",
            f"decided by {why}; {'one' if is_spare else 'none'} may be lost",
        ),
        ("cores", figure(found.cores), f"of all together; × {CPU_MARGIN:g}"),
        ("disk", f"{figure(found.disk_gb)} GB", f"{each}; × {DISK_MARGIN:g}"),
        ("disk, written", f"{figure(found.disk_mb_s)} MB/s", each),
        ("network", f"{figure(found.network_gbit_s)} Gbit/s", f"{each}; × {NETWORK_MARGIN:g}"),
        ("memory", f"{figure(found.memory_mib)} MiB", "each, without the page cache"),
    ]
    console().print(table(None, ["", "needed#", ""], rows))
    for note in found.notes:
        console().print(note, markup=False)
    console().print("Measured on two cores of one kind of machine: load-test your own.")


def figure(value: float) -> str:
    """Format a number, with at most two significant digits if it is below 10.

    12,345, 120, 3.6, 4, 0.024; small numbers are not rounded to zero.
    """
    if value >= _WHOLE:
        return f"{value:,.0f}"
    if value >= 1:
        return f"{value:.1f}".removesuffix(".0")
    return f"{float(f'{value:.2g}'):.12f}".rstrip("0").rstrip(".")
