"""The course of a run: which share of the rates is due when, what happens, and when it ends.

It is a machine: ticks and verdicts in, effects out. Times are in s from the start of the run.

| shape | share of the rates |
|---|---|
| steady | 1 |
| ramp | `start` to `end` linearly over the run |
| stairs | `start` during the warm-up and the first step, then `step` more with each step |
| spike | 1, and `factor` for `lasts_s` from `at_s` |
| daily | a sine from `low` to 1 and back in `period_s` |
| sawtooth | `low` to 1 linearly in `period_s`, then `low` again |
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import assert_never

from raylog.loadtest.scenario import (
    Daily,
    Fault,
    Ramp,
    Sawtooth,
    Scenario,
    Spike,
    Stairs,
    Steady,
)

SETTLE_S = 2.0
"""A step is judged this long after its end, because its last requests are still in flight."""
UNJUDGED = 0.25
"""The first part of a step, which is not judged because the previous load still drains."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of stairs."""

    number: int
    factor: float
    starts_s: float
    ends_s: float
    """Exclusive."""

    @property
    def judged_from_s(self) -> float:
        """The start of the part that is judged."""
        return self.starts_s + UNJUDGED * (self.ends_s - self.starts_s)


@dataclass(frozen=True, slots=True)
class SetLoad:
    """Effect: set the share of the users' rates."""

    factor: float


@dataclass(frozen=True, slots=True)
class Strike:
    """Effect: carry out a fault."""

    fault: Fault


@dataclass(frozen=True, slots=True)
class Judge:
    """Effect: tell by `Course.judged` whether a step held."""

    step: Step


@dataclass(frozen=True, slots=True)
class Tell:
    """Effect: mark a change of the load in the result."""

    text: str


@dataclass(frozen=True, slots=True)
class End:
    """Effect: end the run."""

    note: str | None = None
    """A note for the result."""


Effect = SetLoad | Strike | Judge | Tell | End


@dataclass(slots=True)
class Course:
    """The state of a run.

    Call `tick` about once a second with a time that never goes back. After `End` it returns
    nothing. With stairs each step is judged once, in order, and the first that does not hold ends
    the run. A step that ends with the run is judged after it, without load. `held` is the last step
    that held.
    """

    scenario: Scenario
    held: Step | None = None
    capacity: float | None = None
    """Records/s of the last step that held."""
    is_over: bool = False
    _loads: list[tuple[float, float]] = field(default_factory=list)
    """(start, factor), in order."""
    _due: list[Fault] = field(default_factory=list)
    _next: int = 0
    """The next step to judge."""
    _step: int = -1
    """The current step."""

    def __post_init__(self) -> None:
        self._due = sorted(self.scenario.faults, key=lambda fault: fault.at_s)

    def tick(self, at_s: float) -> list[Effect]:
        """The effects that are due at a time."""
        if self.is_over:
            return []
        step = self._unjudged()
        if at_s < self.scenario.duration_s:
            effects = [*self._load(at_s), *self._strikes(at_s)]
        elif step is None:
            return self._ended()
        else:
            effects = self._change(at_s, 0.0)
        if step is not None and at_s >= step.ends_s + SETTLE_S:  # one, because it may be the last
            effects.append(Judge(step))
        return effects

    def judged(self, step: Step, *, held: bool, records_per_s: float) -> list[Effect]:
        """Handle the verdict on a step."""
        assert step.number == self._next, "steps are judged in order"
        if self.is_over:
            return []
        self._next += 1
        if held:
            self.held, self.capacity = step, records_per_s
            return []
        self.is_over = True
        if self.held is None:
            return [End(f"the first step, {step.factor:g} of the rates, did not hold")]
        return [End()]

    def meant(self, from_s: float, to_s: float) -> float:
        """How many seconds at the full rates the load in a span is worth."""
        total = 0.0
        ends = [start for start, _ in self._loads[1:]] + [math.inf]
        for (start, factor), end in zip(self._loads, ends, strict=True):
            total += factor * max(0.0, min(end, to_s) - max(start, from_s))
        return total

    # ---- inside --------------------------------------------------------------------------

    def _load(self, at_s: float) -> list[Effect]:
        """The load of the shape, if it changes."""
        shape = self.scenario.shape
        factor = factor_at(self.scenario, at_s)
        effects = self._change(at_s, factor)
        if isinstance(shape, Stairs):
            number = max(0, math.floor((at_s - self.scenario.warmup_s) / shape.hold_s))
            if number > self._step:
                self._step = number
                effects.append(Tell(f"step {number + 1}: {factor:g} of the rates"))
        elif isinstance(shape, Spike) and effects and len(self._loads) > 1:
            effects.append(Tell(f"{factor:g} of the rates"))
        return effects

    def _change(self, at_s: float, factor: float) -> list[Effect]:
        if self._loads and self._loads[-1][1] == factor:
            return []
        self._loads.append((at_s, factor))
        return [SetLoad(factor)]

    def _strikes(self, at_s: float) -> list[Effect]:
        effects: list[Effect] = []
        while self._due and self._due[0].at_s <= at_s:
            effects.append(Strike(self._due.pop(0)))
        return effects

    def _unjudged(self) -> Step | None:
        """The next step to judge, if it ends within the run."""
        shape = self.scenario.shape
        if not isinstance(shape, Stairs):
            return None
        starts_s = self.scenario.warmup_s + self._next * shape.hold_s
        step = Step(self._next, _stair(shape, self._next), starts_s, starts_s + shape.hold_s)
        return step if step.ends_s <= self.scenario.duration_s else None

    def _ended(self) -> list[Effect]:
        self.is_over = True
        if not isinstance(self.scenario.shape, Stairs):
            return [End()]
        if self.held is None:
            return [End("the run was too short for one step of the stairs, so nothing was judged")]
        return [
            End(
                f"the stairs reached {self.held.factor:g} of the rates at the end of the run, "
                "and every step held: more may be possible"
            )
        ]


def factor_at(scenario: Scenario, at_s: float) -> float:
    """The share of the rates in a shape at a time within the run."""
    shape = scenario.shape
    match shape:
        case Steady():
            return 1.0
        case Ramp():
            return shape.start + (shape.end - shape.start) * at_s / scenario.duration_s
        case Stairs():
            number = max(0, math.floor((at_s - scenario.warmup_s) / shape.hold_s))
            return _stair(shape, number)
        case Spike():
            return shape.factor if 0 <= at_s - shape.at_s < shape.lasts_s else 1.0
        case Daily():
            turn = 2 * math.pi * at_s / shape.period_s
            return shape.low + (1 - shape.low) * (1 - math.cos(turn)) / 2
        case Sawtooth():
            return shape.low + (1 - shape.low) * (at_s % shape.period_s) / shape.period_s
        case _:
            assert_never(shape)


def _stair(shape: Stairs, number: int) -> float:
    return round(shape.start + number * shape.step, 9)
