"""Reports a verdict to people and programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from itertools import groupby

from rich.console import Console
from rich.table import Table

from tests.checker.anomalies import Anomaly, Kind, Verdict
from tests.checker.evidence import FULL_MAX


def to_json(verdict: Verdict) -> str:
    """The whole verdict as JSON: every anomaly, with evidence for the first of each kind."""
    return json.dumps({"valid": verdict.valid, **asdict(verdict)})


def show(verdict: Verdict, console: Console) -> None:
    """Print a table of what was checked and found, then the first anomalies of each kind."""
    console.print(_sizes(verdict))
    console.print(_kinds(verdict))
    for kind, found in groupby(_by_kind(verdict.anomalies), key=lambda one: one.kind):
        _show_kind(kind, list(found), console)
    count = len(verdict.anomalies)
    console.print(f"[red]anomalies: {count:,}[/red]" if count else "[green]no anomaly[/green]")


def _by_kind(anomalies: Iterable[Anomaly]) -> list[Anomaly]:
    order = list(Kind)
    return sorted(anomalies, key=lambda one: order.index(one.kind))


def _sizes(verdict: Verdict) -> Table:
    table = Table(title="history", show_header=False)
    for name, count in asdict(verdict.counts).items():
        table.add_row(name.replace("_", " "), f"{count:,}")
    return table


def _kinds(verdict: Verdict) -> Table:
    table = Table("kind", "found", "verdict", "partitions", title="findings")
    partitions: dict[Kind, set[str]] = {}
    for one in (*verdict.anomalies, *verdict.tolerated):
        if one.partition is not None:
            partitions.setdefault(one.kind, set()).add(f"{one.partition[0]}-{one.partition[1]}")
    bad, allowed = (
        Counter(one.kind for one in found) for found in (verdict.anomalies, verdict.tolerated)
    )
    for kind in Kind:
        count = bad[kind] + allowed[kind]
        word = "[red]anomaly[/red]" if bad[kind] else "allowed" if count else "[green]none[/green]"
        where = sorted(partitions.get(kind, ()))
        more = " …" if len(where) > FULL_MAX else ""
        table.add_row(kind, f"{count:,}", word, " ".join(where[:FULL_MAX]) + more)
    return table


def _show_kind(kind: Kind, found: list[Anomaly], console: Console) -> None:
    console.rule(f"{kind}: {len(found):,}")
    for one in found[:FULL_MAX]:
        console.print(one.message, markup=False, highlight=False)
        for line in one.operations:
            console.print(f"    {line}", markup=False, highlight=False, soft_wrap=True)
    if len(found) > FULL_MAX:
        console.print(f"and {len(found) - FULL_MAX:,} more")
