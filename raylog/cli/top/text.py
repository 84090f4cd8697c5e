"""Prints a snapshot of a cluster as text, or returns it as a document for JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from raylog.cli.output import counted
from raylog.cli.top.tables import BROKERS, GROUPS, TABLES, TOPICS, TRANSACTIONS, Choice, view
from raylog.cli.top.troubles import Severity, duration, rate

if TYPE_CHECKING:
    from raylog.cli.top.machine import Known
    from raylog.cli.top.troubles import Trouble

PLAIN_ROWS = 20
"""Rows printed of each table."""
_SHOWN = (BROKERS, TOPICS, GROUPS, TRANSACTIONS)


def summary(known: Known) -> str:
    """Summarize the cluster in one line of counts."""
    live = len(known.brokers.keys() - known.away_since_ms.keys())
    away = f" ({len(known.away_since_ms)} away)" if known.away_since_ms else ""
    topics = len({key.topic for key in known.partitions})
    parts = [
        f"{counted(live, 'broker')}{away}",
        counted(topics, "topic"),
        counted(len(known.partitions), "partition"),
        f"{rate(sum(known.rates.values()) if known.rates else None)} records/s",
        counted(len(known.groups), "group"),
    ]
    if known.open_transactions is not None:
        parts.append(counted(known.open_transactions, "transaction"))
    return ", ".join(parts)


def trouble_lines(one: Trouble) -> list[str]:
    """Return what is wrong, and what to do, as two lines."""
    return [f"{one.severity.name:<8}  {one.what}", f"{'':<8}  -> {one.do}  ({one.see})"]


def verdict(found: list[Trouble]) -> str:
    """Return the number of problems, by severity, in one line."""
    if not found:
        return "Nothing is wrong."
    counts = [
        f"{sum(one.severity is severity for one in found)} {severity.name.lower()}"
        for severity in Severity
        if any(one.severity is severity for one in found)
    ]
    return f"{counted(len(found), 'problem')}: {', '.join(counts)}"


def print_plain(known: Known, found: list[Trouble], took_s: float) -> None:
    """Print one snapshot, problems first."""
    import typer

    from raylog.actors.log_formatting import plain
    from raylog.cli.output import print_table

    typer.echo(plain(verdict(found)))
    for one in found:
        for line in trouble_lines(one):
            typer.echo(plain(line))
    if known.at_ms is None:
        return
    typer.echo(
        plain(f"cluster {known.cluster_id}: {summary(known)}; rates over {duration(took_s)}")
    )
    for table in _SHOWN:
        shown = view(table, known, Choice(most=PLAIN_ROWS))
        if not shown.rows:
            continue
        more = f", the first {len(shown.rows)} of {shown.total:,}"
        print_table(
            f"{table.name}{more if shown.total > len(shown.rows) else ''}",
            [f"{one.title}#" if one.is_number else one.title for one in shown.columns],
            [[plain(cell) for cell in row] for row in shown.cells()],
        )


def document(known: Known, found: list[Trouble]) -> dict[str, object]:
    """Return everything that is known, for JSON; partitions only if they have problems."""
    tables = {
        table.name: [
            {column.key: value for column, value in zip(table.columns, row, strict=True)}
            for row in table.rows(known)
        ]
        for table in TABLES
        if table.name != "partitions"
    }
    return {
        "cluster": known.cluster_id,
        "problems": [
            {**asdict(one), "severity": one.severity.name.lower(), "items": list(one.items)}
            for one in found
        ],
        "partitions": len(known.partitions),
        "records_per_s": sum(known.rates.values()) if known.rates else None,
        "open_transactions": known.open_transactions,
        "not_known": {part: failed.why for part, failed in known.failing.items()},
        **tables,
    }
