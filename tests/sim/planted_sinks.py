"""Mistakes of sinks that seeds with a streaming query are to find."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from raylog.raydp_jobs import commit, continuity, coordinator
from raylog.raydp_jobs.batches import Batch
from raylog.raydp_jobs.marks import Mark
from raylog.raydp_jobs.sink_state import SinkState
from raylog.raydp_jobs.state_scan import StateScan
from tests.sim.planting import Plant, replace

PLANTS: dict[str, Plant] = {}


def plant(function: Plant) -> Plant:
    """Name a mistake by its function."""
    PLANTS[function.__name__] = function
    return function


@plant
def goes_by_numbers_alone(stack: ExitStack) -> None:
    """A batch is written if its number or a later one is committed, whatever its ends."""

    def mistaken(state: SinkState, batch: Batch) -> bool:
        written = state.batch
        return (
            written is not None
            and isinstance(batch.mark, Mark)
            and written.mark.query_id == batch.mark.query_id
            and written.mark.batch_id >= batch.mark.batch_id
        )

    replace(stack, commit, "is_written", mistaken)


@plant
def remembers_by_the_group_alone(stack: ExitStack) -> None:
    """What is written is known by the group's offsets, which expire after seven idle days."""
    state_of = continuity.state_of

    def mistaken(stored: SinkState | None, **named: Any) -> SinkState:
        return state_of(stored, **named) if named["marks"].has_state else SinkState()

    replace(stack, coordinator, "state_of", mistaken)


@plant
def counts_what_is_not_committed(stack: ExitStack) -> None:
    """A state counts as soon as it is in the log, whatever its marker says."""
    end = StateScan._end

    def mistaken(scan: StateScan, producer_id: int, *, is_commit: bool) -> None:
        end(scan, producer_id, is_commit=True)

    replace(stack, StateScan, "_end", mistaken)
