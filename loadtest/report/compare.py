"""Compares two runs of one scenario: which differences exceed the spread within the runs.

Both runs are cut at the same times into 5 to 10 blocks of at least 5 s, without the warm-up and the
seconds in which a generator was the limit. The figures and their ratio are those of all these
blocks. The spread of the ratio is a paired bootstrap: as many blocks as there are get drawn 1,000
times with replacement, the same ones for both runs. The middle 99 % of the ratios of the draws are
widened by the ratio of Student's t to the normal distribution, because there are few blocks. Whole
blocks are drawn because neighbouring seconds are alike, and the same ones because load and faults
are the same at the same time. A figure that a single stall decides, such as p99.9, has a wide
spread, because one run does not show whether the stall comes again.

None of this covers differences from run to run (another leader, a cold cache). Repeat runs in turn
to see those.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import mul
from typing import Literal

from raylog.loadtest.report import words
from raylog.loadtest.report.latencies import edge_ms, merged, on_grid
from raylog.loadtest.report.series import Totals, by_frequency, judged_span, totals
from raylog.loadtest.results import Interval, Operation, Result
from raylog.loadtest.scenario import Scenario

BLOCKS_MAX = 10
BLOCKS_MIN = 5
BLOCK_S_MIN = 5
DRAWS = 1000
CONFIDENCE = 0.99
RELEVANT = 0.02
"""Ratios closer to 1 are "same", however certain they are."""
SAME = 0.05
"""Figures are "same" if the whole spread is closer to 1."""
_T = {5: 4.604, 6: 4.032, 7: 3.707, 8: 3.499, 9: 3.355, 10: 3.250}
"""The 0.5 % quantile of Student's t by number of blocks, with one degree of freedom less."""
_NORMAL = 2.576
"""The 0.5 % quantile of the normal distribution."""
_GRID = 100
"""Cells per decade: each is 2.3 % wide."""
_FIGURES = {"p50 ms": 50.0, "p90 ms": 90.0, "p99 ms": 99.0, "p99.9 ms": 99.9}
_RATE = "requests/s"
_SHOWN_MAX = 5
"""The most differing fields of scenarios to report."""

Says = Literal["better", "worse", "same", "unclear"]


class DifferentScenarios(ValueError):
    """Runs of different scenarios, whose figures cannot be compared."""


@dataclass(frozen=True, slots=True)
class Change:
    """A figure of an operation in both runs."""

    operation: str
    figure: str
    """"requests/s", "p50 ms"..."""
    a: float | None
    b: float | None
    ratio: float | None
    """b divided by a; None if either was not measured."""
    low: float | None
    high: float | None
    """The 99 % confidence interval of the ratio; None if the runs are too short."""
    says: Says


@dataclass(frozen=True, slots=True)
class Difference:
    """The result of `diff`."""

    changes: Sequence[Change]
    notes: Sequence[str]


@dataclass(slots=True)
class _Blocks:
    """The blocks of one operation of one run."""

    requests: list[int]
    """By block."""
    first: int
    """The first cell of the grid that has a latency."""
    up_to: list[list[int]]
    """For each cell from the first, and each block, the number of latencies up to the cell's
    end."""


def too_short(scenario: Scenario) -> str | None:
    """A note if runs of a scenario are too short to be compared."""
    judged_s = math.floor(scenario.duration_s) - math.ceil(scenario.warmup_s)
    needed_s = BLOCKS_MIN * BLOCK_S_MIN
    if judged_s >= needed_s:
        return None
    return (
        f"Each run has {judged_s} s after its warm-up. A comparison needs at least {needed_s} s "
        "to tell differences from chance: see --duration."
    )


def diff(a: Result, b: Result, *, force: bool = False) -> Difference:
    """Compare two runs.

    Raises DifferentScenarios unless they have one scenario, or with `force`.
    """
    differing = list(_unequal("", a.scenario.model_dump(), b.scenario.model_dump()))
    if differing and not force:
        raise DifferentScenarios(
            f"expected two runs of one scenario, found {a.scenario.name} and {b.scenario.name}: "
            f"{_several(differing)}"
        )
    judged = _judged(a, b)
    notes = _notes(a, b)
    if differing:
        notes.insert(0, f"the scenarios differ: {_several(differing)}")
    if len(judged) < BLOCKS_MIN * BLOCK_S_MIN:
        notes.append(
            f"expected {BLOCKS_MIN * BLOCK_S_MIN} s that can be judged in both runs, found "
            f"{len(judged)}: the spread is not known"
        )
    in_b = {operation.name: operation for operation in b.operations}
    changes = [
        change
        for operation in by_frequency(a)
        if judged and (other := in_b.get(operation.name)) is not None
        for change in _changes(a, operation, b, other, judged)
    ]
    return Difference(changes, notes)


def _unequal(field: str, in_a: object, in_b: object) -> Iterator[str]:
    fields_a, fields_b = _inside(in_a), _inside(in_b)
    if fields_a is None or fields_b is None:
        if in_a != in_b:
            yield f"{field} is {words.value(in_a)} in A and {words.value(in_b)} in B"
        return
    for name in fields_a | fields_b:
        inner = f"{field}.{name}" if field else name
        if name not in fields_b:
            yield f"{inner} is only in A"
        elif name not in fields_a:
            yield f"{inner} is only in B"
        else:
            yield from _unequal(inner, fields_a[name], fields_b[name])


def _inside(value: object) -> dict[str, object] | None:
    """The content of a table or list, by names as in `--set`."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list):
        return {str(place): each for place, each in enumerate(value)}
    return None


def _several(differences: Sequence[str]) -> str:
    left_out = len(differences) - _SHOWN_MAX
    more = [f"and {left_out} more"] if left_out > 0 else []
    return "; ".join([*differences[:_SHOWN_MAX], *more])


def _judged(a: Result, b: Result) -> list[int]:
    """The seconds that can be judged in both runs."""
    limited = [*a.limited_by_generator, *b.limited_by_generator]
    firsts, ends = zip(judged_span(a), judged_span(b), strict=True)
    return [
        second
        for second in range(max(firsts), min(ends))
        if not any(start < second + 1 and second < end for start, end in limited)
    ]


def _spans(judged: Sequence[int]) -> list[Sequence[int]]:
    """The seconds of each block; empty if there are too few."""
    blocks = min(BLOCKS_MAX, len(judged) // BLOCK_S_MIN)
    if blocks < BLOCKS_MIN:
        return []
    return [
        judged[len(judged) * place // blocks : len(judged) * (place + 1) // blocks]
        for place in range(blocks)
    ]


def _changes(
    a: Result, in_a: Operation, b: Result, in_b: Operation, judged: Sequence[int]
) -> list[Change]:
    spans = _spans(judged)
    blocks_a, blocks_b = _blocks(in_a, spans), _blocks(in_b, spans)
    draws = _draws(len(spans))
    total_a, total_b = _totals(in_a, a, judged), _totals(in_b, b, judged)
    rates = [
        (_drawn(blocks_a.requests, often), _drawn(blocks_b.requests, often)) for often in draws
    ]
    changes = [_change(in_a.name, _RATE, total_a.rate, total_b.rate, _spread(rates, len(spans)))]
    found_a = [_percentiles(blocks_a, often) for often in draws]
    found_b = [_percentiles(blocks_b, often) for often in draws]
    for place, figure in enumerate(_FIGURES):
        pairs = [(x[place], y[place]) for x, y in zip(found_a, found_b, strict=True)]
        whole_a, whole_b = total_a.percentiles_ms[place], total_b.percentiles_ms[place]
        changes.append(_change(in_a.name, figure, whole_a, whole_b, _spread(pairs, len(spans))))
    return changes


def _totals(operation: Operation, result: Result, judged: Sequence[int]) -> Totals:
    """The totals over the seconds that are compared."""
    kept = operation.model_copy(update={"intervals": _intervals(operation, judged)})
    return replace(totals(kept, result), seconds=len(judged))


def _intervals(operation: Operation, seconds: Sequence[int]) -> list[Interval]:
    by_second = {one.second: one for one in operation.intervals}
    return [by_second[second] for second in seconds if second in by_second]


def _blocks(operation: Operation, spans: Sequence[Sequence[int]]) -> _Blocks:
    requests, counts = [], []
    for seconds in spans:
        found = _intervals(operation, seconds)
        requests.append(sum(one.requests for one in found))
        counts.append(on_grid(merged(one.latencies for one in found), _GRID))
    cells = sorted({cell for each in counts for cell in each})
    up_to = []
    sums = [0] * len(counts)
    for cell in range(cells[0], cells[-1] + 1) if cells else ():
        sums = [sum_ + each.get(cell, 0) for sum_, each in zip(sums, counts, strict=True)]
        up_to.append(sums)
    return _Blocks(requests, cells[0] if cells else 0, up_to)


def _draws(blocks: int) -> list[list[int]]:
    """The draws as counts per block, always the same."""
    if not blocks:
        return []
    chance = random.Random(blocks)  # noqa: S311 - no secret
    drawn = []
    for _ in range(DRAWS):
        often = [0] * blocks
        for _ in range(blocks):
            often[chance.randrange(blocks)] += 1
        drawn.append(often)
    return drawn


def _drawn(values: Sequence[int], often: Sequence[int]) -> int:
    """The sum over the drawn blocks."""
    return sum(map(mul, values, often))


def _percentiles(blocks: _Blocks, often: Sequence[int]) -> list[float | None]:
    total = _drawn(blocks.up_to[-1], often) if blocks.up_to else 0
    if not total:
        return [None] * len(_FIGURES)
    return [_at(blocks, often, total * share / 100) for share in _FIGURES.values()]


def _at(blocks: _Blocks, often: Sequence[int], wanted: float) -> float:
    """The latency in ms below which `wanted` values lie, interpolated linearly within its cell."""
    place = bisect_left(blocks.up_to, wanted, key=lambda up_to: _drawn(up_to, often))
    before = _drawn(blocks.up_to[place - 1], often) if place else 0
    inside = (wanted - before) / (_drawn(blocks.up_to[place], often) - before)
    low, high = (edge_ms(blocks.first + place + end, _GRID) for end in (0, 1))
    return low + (high - low) * inside


def _spread(
    pairs: Sequence[tuple[float | None, float | None]], blocks: int
) -> tuple[float, float] | None:
    ratios = sorted(b / a for a, b in pairs if a and b)
    if not ratios or len(ratios) < len(pairs):
        return None
    left_out = int(len(ratios) * (1 - CONFIDENCE) / 2)
    middle = ratios[len(ratios) // 2]
    wider = _T[blocks] / _NORMAL * math.sqrt(blocks / (blocks - 1))
    return (
        middle * (ratios[left_out] / middle) ** wider,
        middle * (ratios[-1 - left_out] / middle) ** wider,
    )


def _change(
    operation: str,
    figure: str,
    a: float | None,
    b: float | None,
    spread: tuple[float, float] | None,
) -> Change:
    ratio = b / a if a and b is not None else None
    low, high = spread or (None, None)
    says = _says(ratio, low, high, more_is_better=figure == _RATE)
    return Change(operation, figure, a, b, ratio, low, high, says)


def _says(
    ratio: float | None, low: float | None, high: float | None, *, more_is_better: bool
) -> Says:
    if ratio is None or low is None or high is None:
        return "unclear"
    if (low > 1 or high < 1) and abs(ratio - 1) >= RELEVANT:
        return "better" if (ratio > 1) == more_is_better else "worse"
    return "same" if low >= 1 - SAME and high <= 1 + SAME else "unclear"


def _notes(a: Result, b: Result) -> list[str]:
    """Notes on what both runs have besides figures, and on what makes the comparison unfair."""
    notes = []
    for name, result in (("A", a), ("B", b)):
        if not result.passed:
            notes.append(f"{name} failed: {'; '.join(words.reasons(result))}")
        limit = words.generator_limit(result)
        if limit is not None:
            notes.append(f"{name}: {limit} These seconds are not compared.")
    for what, tell in _CONDITIONS.items():
        if tell(a) != tell(b):
            notes.append(f"{what} differs: {tell(a)} and {tell(b)}")
    notes += _failures(a, b)
    return notes


_CONDITIONS: dict[str, Callable[[Result], str]] = {
    "the machine": lambda result: result.machine,
    "the number of brokers": lambda result: str(result.target.brokers),
    "the number of generator processes": lambda result: str(len(result.generators)),
}


def _failures(a: Result, b: Result) -> list[str]:
    in_a = {operation.name: totals(operation, a).failures for operation in a.operations}
    in_b = {operation.name: totals(operation, b).failures for operation in b.operations}
    lines = [
        f"{name}: {in_a[name]:,} failures in A, {in_b[name]:,} in B"
        for name in in_a
        if name in in_b and in_a[name] != in_b[name]
    ]
    lines += [f"{name} is only in A" for name in in_a if name not in in_b]
    lines += [f"{name} is only in B" for name in in_b if name not in in_a]
    return lines
