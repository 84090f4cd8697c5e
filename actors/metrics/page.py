"""Generates docs/metrics.md, the list of all metrics: `python -m raylog.actors.metrics.page`."""

from __future__ import annotations

from raylog.actors.metrics.families.table import TABLES
from raylog.actors.metrics.family import SCOPE_LABELS, Family, Kind

_HEAD = """# Metrics

This page is generated from the table of metric families: `python -m raylog.actors.metrics.page`.
[Monitoring](monitoring.md) describes how to collect them, and the dashboards and
[alerts](alerts.md) that use them.

- A *counter* only grows, until its process restarts. A *gauge* is the current value. A *histogram*
  has the series `_bucket`, `_sum` and `_count`.
- `broker` is a broker's id, or "" for a process that belongs to no broker. `role` and `process`
  name the process as `raylog status` does; add them up with `sum by (broker)`.
- The counter of an event that has never happened may be absent.
"""


def render_markdown() -> str:
    """Return the page."""
    parts = [_HEAD]
    for table in TABLES:
        parts.append(f"\n## {table.title}\n\n")
        if table.about:
            parts.append(f"{table.about}\n\n")
        labels = ", ".join(f"`{name}`" for name in SCOPE_LABELS[table.scope])
        if labels:
            parts.append(f"Labels of all series: {labels}.\n\n")
        parts.append("| name | type | labels | meaning |\n| --- | --- | --- | --- |\n")
        parts.extend(map(_row, table.families))
    return "".join(parts)


def _row(family: Family) -> str:
    labels = ", ".join(f"`{name}`" for name in family.labels)
    meaning = family.help
    if family.kind is Kind.HISTOGRAM:
        bounds = ", ".join(f"{bound:g}" for bound in family.bounds)
        meaning = f"{meaning} Buckets: {bounds}."
    return f"| `{family.name}` | {family.kind.value} | {labels} | {meaning} |\n"


if __name__ == "__main__":
    print(render_markdown(), end="")  # noqa: T201  # the page is this program's output
