"""What the shells of coordinators do with a step, for worlds without one."""

from __future__ import annotations

from collections.abc import Iterable

from raylog.actors.coordination.step import Step, TimerChange, TimerKey

Timers = dict[tuple[str, TimerKey], float]
"""When each is due, by group and key."""


def set_timers(timers: Timers, changes: Iterable[TimerChange]) -> None:
    """Do what a step wants done, in its order."""
    for group_id, key, at_ms, replaces in changes:
        name = (group_id, key)
        if at_ms is None:
            timers.pop(name, None)
        elif replaces or name not in timers:
            timers.pop(name, None)
            timers[name] = at_ms


def commit(step: Step) -> None:
    """The log has taken the step's records."""
    for change in step.changes:
        change.commit()


def revert(steps: Iterable[Step]) -> None:
    """The log has refused the first of these steps, which come in order."""
    for step in reversed([*steps]):
        for change in reversed(step.changes):
            change.revert()
