"""How long partitions could not be written in each step, derived from a history without I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.table import Table

from tests.checker.operations import Outcome, Partition, Send


@dataclass(frozen=True, slots=True)
class Span:
    """The time of one step, in ns of the monotonic clock."""

    name: str
    began_ns: int
    ended_ns: int
    limit_s: float | None
    """The longest allowed time without an acknowledged write to a partition; None: no limit."""


@dataclass(frozen=True, slots=True)
class Outage:
    """The longest time in which some partition was not written in a step."""

    span: Span
    seconds: float
    partition: Partition | None
    """None if nothing was written."""
    after_s: float = 0.0
    """Its start, relative to the start of the step."""

    @property
    def is_too_long(self) -> bool:
        """Whether it exceeds the limit."""
        return self.span.limit_s is not None and self.seconds > self.span.limit_s


@dataclass(frozen=True, slots=True)
class _Silence:
    """The time between two acknowledged writes to a partition."""

    partition: Partition
    began_ns: int
    ended_ns: int

    @property
    def middle_ns(self) -> int:
        return (self.began_ns + self.ended_ns) // 2


def outages(sends: Iterable[Send], spans: Sequence[Span]) -> list[Outage]:
    """The longest silence of each step.

    A silence belongs to the step that contains its middle. One that has not ended lasts until the
    end of the last step.
    """
    silences = list(_silences(sends, spans[-1].ended_ns))
    return [_longest(silences, span) for span in spans]


def _silences(sends: Iterable[Send], end_ns: int) -> Iterator[_Silence]:
    written: dict[Partition, list[int]] = defaultdict(list)
    for send in sends:
        if send.outcome is Outcome.OK:
            written[send.partition].append(send.completed_ns)
    for partition, times in written.items():
        times.sort()
        for began_ns, ended_ns in pairwise([*times, max(times[-1], end_ns)]):
            yield _Silence(partition, began_ns, ended_ns)


def _longest(silences: Iterable[_Silence], span: Span) -> Outage:
    longest = None
    for one in silences:
        within = span.began_ns <= one.middle_ns < span.ended_ns
        if within and (longest is None or _length(one) > _length(longest)):
            longest = one
    if longest is None:
        return Outage(span, 0.0, None)
    after_s = (longest.began_ns - span.began_ns) / 1e9
    return Outage(span, _length(longest) / 1e9, longest.partition, after_s)


def _length(silence: _Silence) -> int:
    return silence.ended_ns - silence.began_ns


def table(found: Sequence[Outage]) -> Table:
    """A table of steps: their durations, and the longest times without an acknowledged write."""
    made = Table(title="a partition without an acknowledged write")
    made.add_column("step")
    for name in ("took, s", "at most, s", "from, s", "limit, s"):
        made.add_column(name, justify="right")
    made.add_column("partition")
    made.add_column("verdict")
    for one in found:
        span = one.span
        made.add_row(
            span.name,
            f"{(span.ended_ns - span.began_ns) / 1e9:.1f}",
            f"{one.seconds:.2f}",
            f"{one.after_s:.1f}",
            "" if span.limit_s is None else f"{span.limit_s:g}",
            "" if one.partition is None else f"{one.partition[0]}-{one.partition[1]}",
            "too long" if one.is_too_long else "stated" if span.limit_s is None else "kept",
        )
    return made
