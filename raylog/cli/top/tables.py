"""The tables of `raylog top`: their columns, rows, order and filter. No I/O.

Rows are values. Only those that are shown are formatted, because there may be thousands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raylog.cli.output import human_bytes
from raylog.cli.top.machine import BrokerRates, Known, totals
from raylog.cli.top.troubles import duration, rate, transaction_age_ms

if TYPE_CHECKING:
    from raylog.cli.top.lag import LagTrend

Value = int | float | str | None
Format = Callable[[Value], str]
_MS_PER_S = 1_000
_NOTABLE = 0.05
"""A lag is steady if it grows or shrinks by at most this share of the write rate."""


def _text(value: Value) -> str:
    return "-" if value is None else str(value)


def _count(value: Value) -> str:
    return f"{value:,}" if isinstance(value, int) else "-"


def _rate(value: Value) -> str:
    return rate(value) if isinstance(value, int | float) else "-"


def _bytes(value: Value) -> str:
    return human_bytes(int(value)) if isinstance(value, int | float) else "-"


def _share(value: Value) -> str:
    return f"{value:.0%}" if isinstance(value, int | float) else "-"


def _time(value: Value) -> str:
    return duration(value) if isinstance(value, int | float) else "-"


def _ms(value: Value) -> str:
    return f"{value:,.1f}" if isinstance(value, int | float) else "-"


@dataclass(frozen=True, slots=True)
class Column:
    """One column; its key names it in JSON."""

    key: str
    title: str
    show: Format = _text

    @property
    def is_number(self) -> bool:
        """Whether it is aligned right, and sorted largest first."""
        return self.show is not _text


@dataclass(frozen=True, slots=True)
class Table:
    """One table: its columns, rows and default order."""

    name: str
    columns: tuple[Column, ...]
    rows: Callable[[Known], Iterable[tuple[Value, ...]]]
    order: str
    """Key of a column."""
    is_descending: bool = True
    may_be_empty: tuple[str, ...] = ()
    """Columns that are left out if no row has a value."""


@dataclass(frozen=True, slots=True)
class View:
    """The part of a table that is shown."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Value]]
    total: int
    """Rows before the filter and the limit."""
    matching: int
    """Rows after the filter, before the limit."""

    def cells(self) -> list[list[str]]:
        """Return the rows, formatted."""
        return [
            [column.show(value) for column, value in zip(self.columns, row, strict=True)]
            for row in self.rows
        ]


@dataclass(frozen=True, slots=True)
class Choice:
    """What the user wants to see of a table."""

    order: str | None = None
    """Key of a column; None for the table's default."""
    is_reversed: bool = False
    text: str = ""
    """Only rows whose name contains this, ignoring case."""
    most: int | None = None


def view(table: Table, known: Known, choice: Choice | None = None) -> View:
    """Return the chosen rows in the chosen order; rows without a value come last."""
    choice = choice or Choice()
    rows = list(table.rows(known))
    sought = choice.text.casefold()
    matching = [row for row in rows if sought in str(row[0]).casefold()] if sought else rows
    order = choice.order or table.order
    at = next(i for i, column in enumerate(table.columns) if column.key == order)
    descending = table.columns[at].is_number if choice.order else table.is_descending
    valued = [row for row in matching if row[at] is not None]
    valued.sort(key=lambda row: _natural(row[0]))
    valued.sort(key=lambda row: _natural(row[at]), reverse=descending != choice.is_reversed)
    ordered = valued + [row for row in matching if row[at] is None]
    kept = [
        i
        for i, column in enumerate(table.columns)
        if column.key not in table.may_be_empty or any(row[i] is not None for row in rows)
    ]
    return View(
        [table.columns[i] for i in kept],
        [[row[i] for i in kept] for row in ordered[: choice.most]],
        len(rows),
        len(matching),
    )


def _natural(value: Value) -> tuple[bool, int | float | str]:
    """Return a sort key that puts numbers before texts."""
    return isinstance(value, str), value if value is not None else ""


# ---- rows ------------------------------------------------------------------------------------


def _brokers(known: Known) -> Iterable[tuple[Value, ...]]:
    _, per_s = totals(known)
    led = Counter(one.leader for one in known.partitions.values())
    held = Counter(broker for one in known.partitions.values() for broker in one.replicas)
    behind = Counter(
        broker
        for one in known.incomplete.values()
        for broker in one.replicas
        if broker not in one.isr
    )
    free: dict[int, float] = {}
    for disk in known.disks:
        if disk.total_bytes > 0 and disk.usable_bytes >= 0:
            part = disk.usable_bytes / disk.total_bytes
            free[disk.broker_id] = min(part, free.get(disk.broker_id, 1.0))
    for broker in sorted({*known.brokers, *known.away_since_ms}):
        seen = known.brokers.get(broker)
        rates = known.metrics.get(broker, BrokerRates())
        yield (
            broker,
            broker_state(known, broker),
            f"{seen.host}:{seen.port}" if seen is not None else None,
            seen.rack if seen is not None else None,
            led[broker],
            held[broker],
            behind[broker],
            per_s.get(broker),
            free.get(broker),
            rates.bytes_in_per_s,
            rates.bytes_out_per_s,
            rates.requests_per_s,
            rates.p99_ms,
            rates.loop_lag_ms,
            rates.cpu_share,
            rates.memory_bytes,
        )


def broker_state(known: Known, broker: int) -> str:
    """Return a broker's state: live, fenced, away, silent (to this machine), or unknown."""
    if known.is_stale:
        return "unknown"
    if broker in known.away_since_ms:
        seen = known.brokers.get(broker)
        return "fenced" if seen is not None and seen.is_fenced else "away"
    return "silent" if broker in known.silent else "live"


@dataclass(slots=True)
class _TopicSums:
    partitions: int = 0
    replicas: int = 0
    offline: int = 0
    behind: int = 0
    ends: int = 0


def _topics(known: Known) -> Iterable[tuple[Value, ...]]:
    per_s, _ = totals(known)
    sums: dict[str, _TopicSums] = {}
    for key, one in known.partitions.items():
        topic = sums.setdefault(key.topic, _TopicSums())
        topic.partitions += 1
        topic.replicas = max(topic.replicas, len(one.replicas))
        topic.offline += one.leader < 0
        topic.behind += len(one.isr) < len(one.replicas)
        topic.ends += known.ends.get(key, 0)
    for name, topic in sums.items():
        yield (
            name,
            topic.partitions,
            topic.replicas,
            topic.offline,
            topic.behind,
            per_s.get(name),
            topic.ends,
        )


def _partitions(known: Known) -> Iterable[tuple[Value, ...]]:
    for key, one in known.partitions.items():
        yield (
            str(key),
            one.leader if one.leader >= 0 else None,
            ",".join(map(str, one.replicas)),
            ",".join(map(str, one.isr)),
            known.rates.get(key),
            known.ends.get(key),
            one.leader_epoch,
        )


def _groups(known: Known) -> Iterable[tuple[Value, ...]]:
    for group in known.groups.values():
        trend = known.lags.get(group.group_id)
        yield (
            group.group_id,
            group.state or None,
            trend.lag if trend is not None else None,
            trend.behind_s if trend is not None else None,
            trend.read_per_s if trend is not None else None,
            trend.written_per_s if trend is not None else None,
            outlook(trend),
            group.type or None,
            group.coordinator,
        )


def outlook(trend: LagTrend | None) -> str | None:
    """Describe the trend of a lag in a few words; None if it is not known."""
    if trend is None or trend.growth_per_s is None:
        return None
    if not trend.lag:
        return "level"
    least = _NOTABLE * (trend.written_per_s or 0.0)
    if trend.growth_per_s > least:
        return f"grows by {rate(trend.growth_per_s)}/s"
    left_s = trend.caught_up_s
    return f"level in {duration(left_s)}" if left_s and trend.growth_per_s < -least else "steady"


def _transactions(known: Known) -> Iterable[tuple[Value, ...]]:
    for one in known.transactions:
        yield (
            one.transactional_id,
            one.state,
            None if (age_ms := transaction_age_ms(known, one)) is None else age_ms / _MS_PER_S,
            one.timeout_ms / _MS_PER_S,
            len(one.partitions),
            ",".join(sorted({key.topic for key in one.partitions})) or None,
            one.producer_id,
            one.coordinator,
        )


BROKERS = Table(
    "brokers",
    (
        Column("broker", "id"),
        Column("state", "state"),
        Column("address", "address"),
        Column("rack", "rack"),
        Column("leads", "leads", _count),
        Column("holds", "holds", _count),
        Column("out_of_sync", "behind", _count),
        Column("records_per_s", "records/s", _rate),
        Column("disk_free", "disk free", _share),
        Column("bytes_in_per_s", "in/s", _bytes),
        Column("bytes_out_per_s", "out/s", _bytes),
        Column("requests_per_s", "requests/s", _rate),
        Column("p99_ms", "p99 ms", _ms),
        Column("loop_lag_ms", "loop lag ms", _ms),
        Column("cpu", "CPU", _share),
        Column("memory_bytes", "memory", _bytes),
    ),
    _brokers,
    "broker",
    is_descending=False,
    may_be_empty=(
        "rack",
        "bytes_in_per_s",
        "bytes_out_per_s",
        "requests_per_s",
        "p99_ms",
        "loop_lag_ms",
        "cpu",
        "memory_bytes",
    ),
)
TOPICS = Table(
    "topics",
    (
        Column("topic", "topic"),
        Column("partitions", "partitions", _count),
        Column("replicas", "replicas", _count),
        Column("offline", "offline", _count),
        Column("under_replicated", "behind", _count),
        Column("records_per_s", "records/s", _rate),
        Column("end_offsets", "end offsets", _count),
    ),
    _topics,
    "records_per_s",
)
PARTITIONS = Table(
    "partitions",
    (
        Column("partition", "partition"),
        Column("leader", "leader"),
        Column("replicas", "replicas"),
        Column("isr", "in sync"),
        Column("records_per_s", "records/s", _rate),
        Column("end_offset", "end offset", _count),
        Column("leader_epoch", "epoch", _count),
    ),
    _partitions,
    "records_per_s",
)
GROUPS = Table(
    "groups",
    (
        Column("group", "group"),
        Column("state", "state"),
        Column("lag", "lag", _count),
        Column("behind_s", "behind", _time),
        Column("read_per_s", "read/s", _rate),
        Column("written_per_s", "written/s", _rate),
        Column("outlook", "outlook"),
        Column("type", "type"),
        Column("coordinator", "coordinator"),
    ),
    _groups,
    "lag",
)
TRANSACTIONS = Table(
    "transactions",
    (
        Column("transactional_id", "transactional id"),
        Column("state", "state"),
        Column("open_s", "open for", _time),
        Column("timeout_s", "timeout", _time),
        Column("partitions", "partitions", _count),
        Column("topics", "topics"),
        Column("producer_id", "producer"),
        Column("coordinator", "coordinator"),
    ),
    _transactions,
    "open_s",
)
TABLES = (BROKERS, TOPICS, PARTITIONS, GROUPS, TRANSACTIONS)


# ---- one row in full -------------------------------------------------------------------------

_PARTITIONS_MAX = 200


def details(table: Table, known: Known, name: str) -> list[str]:
    """Return everything that is known about one row, line by line."""
    row = next((row for row in table.rows(known) if str(row[0]) == name), None)
    if row is None:
        return [f"{name} is gone"]
    lines = [
        f"{column.title}: {column.show(value)}"
        for column, value in zip(table.columns, row, strict=True)
        if value is not None
    ]
    more = _MORE.get(table.name)
    return lines + (["", *more(known, name)] if more is not None else [])


def _of_broker(known: Known, name: str) -> list[str]:
    return [
        f"{disk.path}: {human_bytes(disk.usable_bytes)} of {human_bytes(disk.total_bytes)} free"
        for disk in known.disks
        if str(disk.broker_id) == name
    ]


def _of_topic(known: Known, name: str) -> list[str]:
    lines = [
        f"{key}: leader {one.leader if one.leader >= 0 else 'none'}, "
        f"in sync {','.join(map(str, one.isr)) or 'none'} of {','.join(map(str, one.replicas))}, "
        f"end {_count(known.ends.get(key))}, {rate(known.rates.get(key))} records/s"
        for key, one in sorted(known.partitions.items())
        if key.topic == name
    ]
    return _cut(lines)


def _of_group(known: Known, name: str) -> list[str]:
    committed = known.committed.get(name, {})
    lags = {key: max(0, known.ends[key] - at) for key, at in committed.items() if key in known.ends}
    lines = [
        f"{key}: lag {lags[key]:,}, committed {committed[key]:,}, end {known.ends[key]:,}"
        for key in sorted(lags, key=lambda key: (-lags[key], key))
    ]
    unknown = [
        f"{key}: committed {committed[key]:,}, end not known" for key in committed.keys() - lags
    ]
    return _cut([*lines, *sorted(unknown)])


def _of_transaction(known: Known, name: str) -> list[str]:
    found = (one for one in known.transactions if one.transactional_id == name)
    return _cut([str(key) for one in found for key in sorted(one.partitions)])


def _cut(lines: list[str]) -> list[str]:
    if len(lines) <= _PARTITIONS_MAX:
        return lines
    return [*lines[:_PARTITIONS_MAX], f"and {len(lines) - _PARTITIONS_MAX:,} more"]


_MORE: Mapping[str, Callable[[Known, str], list[str]]] = {
    "brokers": _of_broker,
    "topics": _of_topic,
    "groups": _of_group,
    "transactions": _of_transaction,
}
