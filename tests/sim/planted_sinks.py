"""Mistakes of sinks that seeds with a streaming query must find."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from raylog.sink import commit, continuity, coordinator
from raylog.sink.batches import Batch
from raylog.sink.marks import Mark
from raylog.sink.state import SinkState
from raylog.sink.state_scan import StateScan
from tests.sim.planting import Plant, plants_into, replace

PLANTS: dict[str, Plant] = {}


plant = plants_into(PLANTS)


@plant
def compares_batch_numbers_only(stack: ExitStack) -> None:
    """A batch counts as written if its number or a later one is committed, whatever its end."""

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
    """Only the group's offsets tell what is written, and these expire after seven idle days."""
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
