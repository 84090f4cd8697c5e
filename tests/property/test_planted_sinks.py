"""Mistakes of sinks planted into the decisions about batches. The model of queries finds each."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from raylog.sink import continuity
from raylog.sink.state import SinkState
from tests.property import test_sink_continuity as model
from tests.sim.planting import Plant, planted, plants_into, replace

PLANTS: dict[str, Plant] = {}
SEARCH = settings(
    max_examples=2_000,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
)


plant = plants_into(PLANTS)


@plant
def skips_by_number_alone(stack: ExitStack) -> None:
    """A batch counts as written if its number is committed, whatever its end."""
    replace(stack, continuity, "_check_same", lambda *_: None)


@plant
def believes_any_query(stack: ExitStack) -> None:
    """The first batch of another query counts as written, wherever it starts."""
    replace(stack, continuity, "_check_takeover", lambda *_: None)


@plant
def state_expires(stack: ExitStack) -> None:
    """A sink whose state is gone counts as one that has written nothing."""
    state_of = continuity.state_of

    def mistaken(stored: SinkState | None, **named: Any) -> SinkState:
        return SinkState() if stored is None else state_of(stored, **named)

    replace(stack, model, "state_of", mistaken)


@plant
def remembers_by_the_group_alone(stack: ExitStack) -> None:
    """Only the group's offsets tell what is written, and these expire after seven idle days."""
    state_of = continuity.state_of

    def mistaken(stored: SinkState | None, **named: Any) -> SinkState:
        return state_of(stored, **named) if named["marks"].has_state else SinkState()

    replace(stack, model, "state_of", mistaken)


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_a_mistake_of_sinks_is_found(name: str) -> None:
    with planted(PLANTS[name]), pytest.raises(AssertionError):
        run_state_machine_as_test(model.SinkAndQuery, settings=SEARCH)
