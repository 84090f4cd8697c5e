"""Checks the delivery guarantees of groups for each record, from what their members did.

| guarantee | kind of anomaly | what was seen |
|---|---|---|
| at least once | missing | a record that no member has processed |
| | out of order | a later record of a partition, or of a key, was first processed before an earlier one |
| | repeated after a commit | a process that started after a commit, or its metadata, was seen processed what it covers |
| at most once | doubled | a record that was processed twice |
| exactly once | missing, doubled | a record whose effect is not in the output, or is there twice |
| | out of order | the effect of a later record of the partition, or key, comes first |
| | not its own | an effect in the output that does not match the record that it names |
| all | commit went back | a committed offset that was lower than an earlier one |

The topic has only records, at offsets from 0 to its end, each written once; `checker.check` verifies
that. This module also checks that producers' sessions have no gaps: with idempotence a record is in
the log only if everything that the session sent to the partition before is there as well, except
for what the producer gave up.
"""  # noqa: E501 (a table)

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from tests.checker.journal import Done
from tests.checker.operations import Send

SHOWN_MAX = 5
"""The most anomalies of a kind and group to keep. The others are counted."""


class Promise(StrEnum):
    """The guarantee of a group."""

    AT_LEAST_ONCE = "at least once"
    AT_MOST_ONCE = "at most once"
    EXACTLY_ONCE = "exactly once"


class Order(StrEnum):
    """The records that must be processed in order."""

    PARTITION = "partition"
    KEY = "key"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Seen:
    """A committed offset of a group, with the ranges in its metadata."""

    at_ns: int
    partition: int
    offset: int
    noted: Sequence[tuple[int, int]] = ()
    """Further processed ranges of offsets; ends are exclusive."""

    def covers(self, offset: int) -> bool:
        """Whether a record counts as processed."""
        return offset < self.offset or any(start <= offset < end for start, end in self.noted)


@dataclass(frozen=True, slots=True)
class Effect:
    """A record of the output, with the record of the topic that it belongs to."""

    partition: int
    offset: int
    value: str
    key: str
    place: str


One = TypeVar("One", Done, Effect)


@dataclass(slots=True)
class Findings:
    """What was wrong with one group."""

    counts: Counter[str] = field(default_factory=Counter)
    shown: list[str] = field(default_factory=list)
    records: int = 0
    """Records of the topic."""
    processed: int = 0
    """How many times records were processed."""
    repeated: int = 0
    """Records processed more than once. Allowed with at least once."""
    missing: int = 0
    """Records never processed. Allowed with at most once."""

    def note(self, kind: str, text: str) -> None:
        """Add an anomaly."""
        self.counts[kind] += 1
        if self.counts[kind] <= SHOWN_MAX:
            self.shown.append(f"{kind}: {text}")


def judge_processing(
    promise: Promise,
    ends: Mapping[int, int],
    done: Sequence[Done],
    seen: Iterable[Seen] = (),
    order: Order = Order.NONE,
) -> Findings:
    """Judge a group by what its members processed, in the order of time.

    `ends` are the ends of the topic's partitions, `seen` its commits in the order of time.
    """
    found = Findings(records=sum(ends.values()), processed=len(done))
    times = Counter((one.partition, one.offset) for one in done)
    found.repeated = sum(count - 1 for count in times.values())
    for place in _all(ends):
        if place not in times:
            found.missing += 1
            if promise is Promise.AT_LEAST_ONCE:
                found.note("missing", f"nobody processed {_text(place)}")
    if promise is Promise.AT_MOST_ONCE:
        for place, count in times.items():
            if count > 1:
                who = [one.process for one in done if (one.partition, one.offset) == place]
                found.note("doubled", f"{_text(place)} was processed by {' and '.join(who)}")
    _judge_order(found, order, _firsts(done), lambda one: f"by {one.process}")
    commits = list(seen)
    _judge_commits(found, commits)
    _judge_restarts(found, commits, done)
    return found


def judge_effects(
    records: Mapping[int, Sequence[str]],
    effects: Sequence[Effect],
    seen: Iterable[Seen] = (),
    order: Order = Order.PARTITION,
) -> Findings:
    """Judge a group by its output, in which every record's effect must be exactly once.

    `records` are the topic's values by partition. `effects` are in the output's order.
    """
    ends = {partition: len(values) for partition, values in records.items()}
    found = Findings(records=sum(ends.values()), processed=len(effects))
    times: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
    for one in effects:
        values = records.get(one.partition, ())
        if not (one.offset < len(values) and values[one.offset] == one.value):
            found.note("not its own", f"{one.place} has {one.value} of {_text(_place(one))}")
        times[_place(one)].append(one.place)
    for place in _all(ends):
        if place not in times:
            found.missing += 1
            found.note("missing", f"no effect of {_text(place)}")
    for place, places in times.items():
        if len(places) > 1:
            found.repeated += len(places) - 1
            found.note("doubled", f"the effect of {_text(place)} is at {' and '.join(places)}")
    _judge_order(found, order, _firsts(effects), lambda one: f"at {one.place}")
    _judge_commits(found, list(seen))
    return found


def judge_sessions(
    sends: Iterable[Send], log: Mapping[str, int], failed: Collection[str]
) -> Findings:
    """Judge producers, each with one session: whether their records have gaps.

    `sends` are in the order of sending. `log` has the offset of each value that was read.
    """
    found = Findings()
    absent: dict[tuple[str, int], Send] = {}
    last: dict[tuple[str, int], tuple[int, Send]] = {}
    for send in sends:
        session = send.process, send.partition[1]
        offset = log.get(send.value)
        if offset is None:
            if send.value not in failed:
                absent.setdefault(session, send)
            continue
        found.records += 1
        if session in absent:
            text = f"{send.value} is at {offset}, {absent[session].value} before it is nowhere"
            found.note("gap", f"partition {session[1]}: {text}")
        before = last.get(session)
        if before is not None and offset <= before[0]:
            text = f"{send.value} is at {offset}, {before[1].value} before it at {before[0]}"
            found.note("out of order", f"partition {session[1]}: {text}")
        last[session] = offset, send
    return found


# -- parts -------------------------------------------------------------------------------------


def _judge_order(
    found: Findings,
    order: Order,
    firsts: Iterable[One],
    where: Callable[[One], str],
) -> None:
    if order is Order.NONE:
        return
    last: dict[tuple[int, str], One] = {}
    for one in firsts:
        line = one.partition, one.key if order is Order.KEY else ""
        before = last.get(line)
        if before is not None and one.offset < before.offset:
            text = f"{_text(_place(one))} {where(one)} after {before.offset} {where(before)}"
            found.note("out of order", text)
        else:
            last[line] = one


def _judge_commits(found: Findings, seen: Sequence[Seen]) -> None:
    last: dict[int, int] = {}
    for one in seen:
        before, place = last.get(one.partition, 0), f"partition {one.partition}"
        if one.offset < before:
            found.note("commit went back", f"{place}: from {before} to {one.offset}")
        last[one.partition] = one.offset


def _judge_restarts(found: Findings, seen: Sequence[Seen], done: Sequence[Done]) -> None:
    """Check that processes did not start below the offset committed at their start."""
    commits: defaultdict[int, list[Seen]] = defaultdict(list)
    for one in seen:
        commits[one.partition].append(one)
    for process, of_process in _by_process(done).items():
        began_ns = of_process[0].began_ns
        known = {
            partition: before[-1]
            for partition, of in commits.items()
            if (before := [one for one in of if one.at_ns < began_ns])
        }
        for work in of_process:
            commit = known.get(work.partition)
            if commit is not None and commit.covers(work.offset):
                text = f"{_text(_place(work))} by {process}; {commit.offset} was committed before"
                found.note("repeated after a commit", text)


def _by_process(done: Sequence[Done]) -> Mapping[str, list[Done]]:
    found: defaultdict[str, list[Done]] = defaultdict(list)
    for one in done:
        found[one.process].append(one)
    return found


def _firsts(ones: Iterable[One]) -> list[One]:
    """The first processing of each record, in the given order."""
    found: dict[tuple[int, int], One] = {}
    for one in ones:
        found.setdefault(_place(one), one)
    return list(found.values())


def _all(ends: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    for partition, end in sorted(ends.items()):
        yield from ((partition, offset) for offset in range(end))


def _place(one: Done | Effect) -> tuple[int, int]:
    return one.partition, one.offset


def _text(place: tuple[int, int]) -> str:
    return f"record {place[1]} of partition {place[0]}"
