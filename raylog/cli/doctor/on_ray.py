"""Checks a cluster through Ray, for `raylog doctor`."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from raylog.cli.doctor.findings import Finding, failure, ok, unknown, warning
from raylog.cli.health import is_well
from raylog.cli.output import counted

if TYPE_CHECKING:
    from pathlib import Path

    from raylog.cluster_record import ClusterRecord

_BUILD = re.compile(r" starts, build (\S+)$")


@dataclass(frozen=True, slots=True)
class RayFacts:
    """Facts about a cluster from Ray, the brokers and their journals."""

    nodes: Mapping[str, bool]
    """Address and id of each Ray node, and whether it is alive."""
    brokers: Sequence[Mapping[str, Any]] = ()
    """As `raylog health` reports them."""
    disks: Sequence[str] = ()
    """Problems with disks, as `raylog status` reports them."""
    silent: Sequence[str] = ()
    """Which actors do not answer and which brokers do not run, and why."""
    builds: Mapping[str, str] = field(default_factory=dict)
    """Build by process."""
    build: str = ""
    """Build of this command."""
    crashes: int = 0


def check(facts: RayFacts, where: str) -> list[Finding]:
    """Check a cluster; `where` is the option with which commands find it."""
    return [
        _nodes(facts.nodes),
        *(_broker(row, where) for row in facts.brokers),
        *(failure("process", text, f"raylog status{where}") for text in facts.silent),
        *(failure("disk", text, f"raylog status{where}") for text in facts.disks),
        _builds(facts, where),
        _crashes(facts.crashes, where),
    ]


def _nodes(nodes: Mapping[str, bool]) -> Finding:
    dead = sorted(address for address, lives in nodes.items() if not lives)
    if not nodes:
        return unknown("ray nodes", "Ray does not report them")
    if dead:
        return failure(
            "ray nodes",
            f"{len(dead)} of {len(nodes)} are dead: {', '.join(dead[:4])}",
            "ray status; for lost machines see docs/runbook.md",
        )
    return ok("ray nodes", f"{counted(len(nodes), 'node')}, all alive")


def _broker(row: Mapping[str, Any], where: str) -> Finding:
    name = f"broker {row['broker']}"
    if is_well(dict(row)):
        return ok(name, f"serves, with {counted(row['partitions'], 'partition')}")
    reasons = "; ".join(map(str, row["reasons"])) or (
        f"{row['offline_partitions']} of its {row['partitions']} partitions are offline"
    )
    return failure(name, f"{row['state']}: {reasons}", f"raylog status{where}; raylog logs{where}")


def _builds(facts: RayFacts, where: str) -> Finding:
    name = "builds"
    if not facts.builds:
        return unknown(name, "no journal has it")
    others = sorted(one for one, build in facts.builds.items() if build != facts.build)
    if not others:
        return ok(
            name, f"{facts.build}, the same as this command, in {len(facts.builds)} processes"
        )
    builds = ", ".join(f"{one} has {facts.builds[one]}" for one in others[:4])
    return warning(
        name,
        f"this command is of build {facts.build}, and {builds}",
        f"install the same build on all machines, then: raylog brokers restart --all{where}",
    )


def _crashes(count: int, where: str) -> Finding:
    if not count:
        return ok("crashes", "no process has ended unexpectedly")
    return warning(
        "crashes",
        f"{counted(count, 'process')} ended unexpectedly",
        f"raylog logs --crashes{where}",
    )


def builds_of(texts: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the newest build by process; `texts` are (process, journal entry) in time order."""
    found = {}
    for process, text in texts:
        build = _BUILD.search(text)
        if build is not None:
            found[process.partition("/")[2] or process] = build[1]
    return found


def gather(
    record: ClusterRecord, data: Path, address: str | None, troubles: Sequence[str] = ()
) -> RayFacts:
    """Ask Ray and the cluster's actors; connects to Ray unless this process is connected.

    `troubles` are the supervisor's reasons why brokers do not run.
    """
    from raylog.actors.build import BUILD
    from raylog.cli.health import rows_over_ray
    from raylog.cli.local_cluster import connected, standing
    from raylog.cli.status import unanswered
    from raylog.cli.status_disks import disk_lines, disk_rows

    with connected(record):
        from raylog.actors.runtime.ray_node import all_nodes

        nodes = all_nodes()
        brokers = rows_over_ray(record)
        stands = standing(record)
    builds, crashes = _journals(data, address, {actor.name for actor in stands.actors})
    return RayFacts(
        nodes,
        brokers,
        list(disk_lines(disk_rows(stands.brokers), data)),
        [*troubles, *unanswered(stands, data)],
        builds,
        BUILD,
        crashes,
    )


def _journals(
    data: Path, address: str | None, running: Container[str]
) -> tuple[dict[str, str], int]:
    """Return builds of running processes and the number of crashes; nothing without journals."""
    from raylog.actors.decisions import PROCESS
    from raylog.actors.journal import JournalAsked, merged
    from raylog.cli.failures import CommandFailed
    from raylog.cli.logs import crashes_of, gathered

    try:
        found = gathered(data, address, JournalAsked(crashes=True), None)
    except CommandFailed:
        return {}, 0
    noted = merged(journal.noted for journal in found.journals.values())
    starts = [
        (one.process, one.text) for one in noted if one.kind == PROCESS and one.process in running
    ]
    return builds_of(starts), len(crashes_of(found))
