"""Finds the problems of a cluster, in order of severity, and what to do about them. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from shlex import quote
from typing import TYPE_CHECKING

from raylog.cli.output import counted, human_bytes
from raylog.cli.top import events
from raylog.cli.top.machine import Known, names

if TYPE_CHECKING:
    from raylog.client import LogDir, TopicPartition, TransactionDescription

NO_LEADER = -1
TRANSACTION_LONG_MS = 60_000
REBALANCE_LONG_MS = 60_000
_QUIET_MS = 10_000
"""A voter that was last caught up this long before the newest voter does not keep up."""
_FULL, _NEARLY_FULL = 0.05, 0.15
"""Free shares of a volume below which its problem is serious, and below which a warning."""
_NAMES_MAX = 4
OPERATIONS, RUNBOOK, TRANSACTIONS = (
    "docs/operations.md",
    "docs/runbook.md",
    "docs/transactions.md",
)


class Severity(IntEnum):
    """How bad a problem is."""

    CRITICAL = 0
    """Records cannot be written or read, or nothing can be changed."""
    SERIOUS = 1
    """Another failure makes it critical, or readers are held up."""
    WARNING = 2
    """It gets worse unless something changes."""
    NOTE = 3
    """Something is not known."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """One problem."""

    severity: Severity
    kind: str
    what: str
    do: str
    """A command, or another action."""
    see: str
    """A document and its heading: FILE#HEADING."""
    items: Sequence[str] = ()
    """All partitions, brokers, groups or transactions that it concerns."""


def troubles(known: Known, now_ms: float) -> list[Trouble]:
    """Return the current problems, worst first; `now_ms` is on the clock of the events."""
    if known.at_ms is None:
        failed = known.failing.get(events.CLUSTER)
        return [_unreachable(known, f"no broker answers: {failed.why}")] if failed else []
    found = [one for look in _LOOKS for one in look(known, now_ms)]
    return sorted(found, key=lambda one: one.severity)


def _unreachable(known: Known, what: str) -> Trouble:
    return Trouble(
        Severity.CRITICAL,
        "unreachable",
        what,
        f"raylog doctor{known.where}",
        f"{OPERATIONS}#status",
    )


def _cluster(known: Known, now_ms: float) -> Iterator[Trouble]:
    failed = known.failing.get(events.CLUSTER)
    if not known.is_stale:
        return
    why = f"no broker answers: {failed.why}" if failed is not None else waiting(known, now_ms)
    yield _unreachable(known, f"state unknown since {clock(known.unix_s)}: {why}")


def waiting(known: Known, now_ms: float) -> str:
    """Describe which answers are pending, and for how long."""
    if not known.asking:
        return "no answer yet"
    longest = duration((now_ms - min(known.asking.values())) / 1_000)
    return f"no answer for {longest} about {', '.join(sorted(known.asking))}"


def clock(unix_s: float) -> str:
    """Format a time of day."""
    return f"{datetime.fromtimestamp(unix_s).astimezone():%H:%M:%S}"


def _controller(known: Known, now_ms: float) -> Iterator[Trouble]:
    failed = known.failing.get(events.QUORUM)
    what = None
    if failed is not None and not failed.is_refused:
        what = f"the controller does not answer: {failed.why}"
    elif failed is None and known.quorum is not None and known.quorum.leader < 0:
        what = (
            "there is no controller: a majority of the voters is down, or an election is in "
            "progress"
        )
    if what is not None:
        yield Trouble(
            Severity.CRITICAL,
            "no-controller",
            f"{what}; topics, leaders and in-sync replicas cannot change",
            f"raylog quorum status{known.where}",
            f"{OPERATIONS}#the-metadata-quorum",
        )


def _offline(known: Known, now_ms: float) -> Iterator[Trouble]:
    keys = [key for key, one in known.partitions.items() if one.leader == NO_LEADER]
    if not keys:
        return
    holders = {
        broker
        for key in keys
        for broker in known.partitions[key].isr or known.partitions[key].replicas
    }
    waits = sorted(holders & known.away_since_ms.keys())
    cause = f" (wait for {_brokers(waits)})" if waits else ""
    yield Trouble(
        Severity.CRITICAL,
        "offline",
        f"{counted(len(keys), 'partition')} offline{cause}: {names(keys, _NAMES_MAX)}",
        f"raylog topics describe --unavailable{known.where}",
        f"{OPERATIONS}#leaders",
        _items(keys),
    )


def _under_min_isr(known: Known, now_ms: float) -> Iterator[Trouble]:
    keys = [
        key
        for key, one in known.incomplete.items()
        if one.leader != NO_LEADER and len(one.isr) < known.min_isr.get(key.topic, 0)
    ]
    if keys:
        yield Trouble(
            Severity.CRITICAL,
            "under-min-isr",
            f"{counted(len(keys), 'partition')} below min.insync.replicas, acks=all fails: "
            f"{names(keys, _NAMES_MAX)}",
            f"raylog topics describe --under-min-isr{known.where}",
            f"{OPERATIONS}#topics-with-replicas",
            _items(keys),
        )


def _brokers_away(known: Known, now_ms: float) -> Iterator[Trouble]:
    held = Counter(broker for one in known.partitions.values() for broker in one.replicas)
    for broker, since_ms in known.away_since_ms.items():
        seen = known.brokers.get(broker)
        how = "is fenced (it sends no heartbeat)" if seen is not None else "is away"
        yield Trouble(
            Severity.SERIOUS,
            "broker-away",
            f"broker {broker} {how}, for {duration((now_ms - since_ms) / 1_000)} or longer; "
            f"it holds {counted(held[broker], 'replica')}",
            f"start it again (on Raylog: raylog brokers restart {broker})",
            f"{RUNBOOK}#replacing-a-machine",
            [str(broker)],
        )
    for broker, why in sorted(known.silent.items()):
        if broker not in known.away_since_ms:
            yield Trouble(
                Severity.SERIOUS,
                "broker-silent",
                f"broker {broker} does not answer this machine: {why}",
                f"raylog doctor{known.where}",
                f"{OPERATIONS}#listeners",
                [str(broker)],
            )


def _disks(known: Known, now_ms: float) -> Iterator[Trouble]:
    for disk in known.disks:
        who = f"broker {disk.broker_id}"
        if disk.failure is not None:
            yield Trouble(
                Severity.CRITICAL,
                "disk-failed",
                f"{who}: {disk.path} has failed: {disk.failure}",
                f"repair the disk, then raylog brokers restart {disk.broker_id}",
                f"{OPERATIONS}#lost-directories",
                [str(disk.broker_id)],
            )
        elif (severity := disk_severity(disk)) is not None:
            yield Trouble(
                severity,
                "disk-nearly-full",
                f"{who}: {human_bytes(disk.usable_bytes)} of {human_bytes(disk.total_bytes)} "
                f"free on the disk of {disk.path}",
                f"free space, or raylog topics alter TOPIC --config retention.ms=MS{known.where}",
                f"{OPERATIONS}#status",
                [str(disk.broker_id)],
            )


def disk_severity(disk: LogDir) -> Severity | None:
    """Return how bad a lack of free space is; None if there is none, or it is not known."""
    if disk.total_bytes <= 0 or disk.usable_bytes < 0:
        return None
    free = disk.usable_bytes / disk.total_bytes
    if free < _FULL:
        return Severity.SERIOUS
    return Severity.WARNING if free < _NEARLY_FULL else None


def _hanging(known: Known, now_ms: float) -> Iterator[Trouble]:
    keys = [one.key for one in known.hanging]
    if not keys:
        return
    first = known.hanging[0]
    yield Trouble(
        Severity.SERIOUS,
        "hanging-transaction",
        f"{counted(len(keys), 'hanging transaction')}, read_committed waits there forever: "
        f"{names(keys, _NAMES_MAX)}",
        f"raylog transactions abort --topic {first.key.topic} --partition {first.key.partition} "
        f"--start-offset {first.producer.start_offset}{known.where}",
        f"{TRANSACTIONS}#transactions-that-do-not-end",
        _items(keys),
    )


def transaction_age_ms(known: Known, one: TransactionDescription) -> float | None:
    """Return how long a transaction had been open when described; None if it is not open."""
    return max(0.0, known.transactions_unix_ms - one.start_ms) if one.start_ms >= 0 else None


def _transactions(known: Known, now_ms: float) -> Iterator[Trouble]:
    for one in known.transactions:
        age_ms = transaction_age_ms(known, one)
        if age_ms is None or age_ms < TRANSACTION_LONG_MS:
            continue
        overdue = age_ms > one.timeout_ms
        limit = duration(one.timeout_ms / 1_000)
        rest = f"past its timeout of {limit}" if overdue else f"its timeout is {limit}"
        yield Trouble(
            Severity.SERIOUS if overdue else Severity.WARNING,
            "transaction-long",
            f"transaction of {one.transactional_id} has been open for "
            f"{duration(age_ms / 1_000)}, {rest} ({one.state}); read_committed waits in "
            f"{names(one.partitions, _NAMES_MAX)}",
            f"raylog transactions describe {quote(one.transactional_id)}{known.where}",
            f"{TRANSACTIONS}#transactions-that-do-not-end",
            [one.transactional_id],
        )


def _under_replicated(known: Known, now_ms: float) -> Iterator[Trouble]:
    found = {key: one for key, one in known.incomplete.items() if one.leader != NO_LEADER}
    if not found:
        return
    missing = Counter(b for one in found.values() for b in one.replicas if b not in one.isr)
    behind = ", ".join(f"{broker} ({count:,})" for broker, count in missing.most_common(_NAMES_MAX))
    yield Trouble(
        Severity.SERIOUS,
        "under-replicated",
        f"{counted(len(found), 'partition')} under-replicated, out of sync on broker {behind}: "
        f"{names(found, _NAMES_MAX)}",
        f"raylog topics describe --under-replicated{known.where}",
        f"{OPERATIONS}#status",
        _items(found),
    )


def _voters(known: Known, now_ms: float) -> Iterator[Trouble]:
    if known.quorum is None or events.QUORUM in known.failing or known.quorum.leader < 0:
        return
    newest_ms = max((one.caught_up_ms for one in known.quorum.voters), default=-1)
    for voter in known.quorum.voters:
        behind_ms = newest_ms - voter.caught_up_ms
        if voter.caught_up_ms >= 0 and behind_ms > _QUIET_MS:
            yield Trouble(
                Severity.WARNING,
                "voter-behind",
                f"metadata voter {voter.broker_id} was last caught up "
                f"{duration(behind_ms / 1_000)} ago",
                f"raylog quorum status{known.where}",
                f"{OPERATIONS}#the-metadata-quorum",
                [str(voter.broker_id)],
            )


def _lags(known: Known, now_ms: float) -> Iterator[Trouble]:
    growing = [(group, lag) for group, lag in known.lags.items() if lag.grows]
    for group, lag in sorted(growing, key=lambda found: -found[1].lag):
        listed = known.groups.get(group)
        nobody = listed is not None and listed.state == "Empty"
        behind, growth = lag.behind_s, lag.growth_per_s
        assert behind is not None, "a lag that grows has rates"
        assert growth is not None, "a lag that grows has rates"
        pace = (
            "it has no members"
            if nobody
            else f"it reads {rate(lag.read_per_s)} of {rate(lag.written_per_s)} records/s"
        )
        yield Trouble(
            Severity.WARNING,
            "lag-grows",
            f"group {group} falls behind: lag {lag.lag:,} (about {duration(behind)}), growing by "
            f"{rate(growth)}/s; {pace}",
            "start its consumers"
            if nobody
            else f"add consumers; raylog groups describe {quote(group)} --watch{known.where}",
            f"{OPERATIONS}#groups-that-fall-behind",
            [group],
        )


def _rebalancing(known: Known, now_ms: float) -> Iterator[Trouble]:
    for group, since_ms in sorted(known.rebalancing_since_ms.items()):
        if now_ms - since_ms >= REBALANCE_LONG_MS:
            yield Trouble(
                Severity.WARNING,
                "group-rebalancing",
                f"group {group} has been {known.groups[group].state} for "
                f"{duration((now_ms - since_ms) / 1_000)}",
                f"see its members' logs; raylog groups describe {quote(group)} --watch"
                f"{known.where}",
                f"{OPERATIONS}#groups-that-fall-behind",
                [group],
            )


def _unknown(known: Known, now_ms: float) -> Iterator[Trouble]:
    for part, failed in sorted(known.failing.items()):
        is_reported_elsewhere = part in (events.CLUSTER, events.QUORUM) and not failed.is_refused
        if not is_reported_elsewhere:
            yield Trouble(
                Severity.NOTE,
                "not-known",
                f"{part} not known: {failed.why}",
                f"raylog doctor{known.where}",
                f"{OPERATIONS}#top",
                [part],
            )


_LOOKS: tuple[Callable[[Known, float], Iterator[Trouble]], ...] = (
    _cluster,
    _controller,
    _offline,
    _under_min_isr,
    _disks,
    _brokers_away,
    _under_replicated,
    _hanging,
    _transactions,
    _voters,
    _lags,
    _rebalancing,
    _unknown,
)
"""In the order in which problems of the same severity are listed: causes before effects."""


def _items(keys: Iterable[TopicPartition]) -> list[str]:
    return [str(key) for key in sorted(keys)]


def _brokers(ids: Sequence[int]) -> str:
    return f"broker{'' if len(ids) == 1 else 's'} {', '.join(map(str, ids))}"


def duration(seconds: float) -> str:
    """Format a time in one or two units: 42 s, 3 min 20 s, 5 h 1 min, 2 d 3 h."""
    whole = round(seconds)
    for size, unit, small, rest in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            left = whole % size // small
            return f"{whole // size} {unit}" + (f" {left} {rest}" if left else "")
    return f"{whole} s"


def rate(per_s: float | None) -> str:
    """Format a rate: 0, 0.4, 12, 1,240; "-" if it is None."""
    if per_s is None:
        return "-"
    small = 10
    return f"{per_s:.1f}" if 0 < abs(per_s) < small and per_s != round(per_s) else f"{per_s:,.0f}"
