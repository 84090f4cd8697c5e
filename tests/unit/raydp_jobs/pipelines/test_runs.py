"""Which run holds a pipeline, by the records of its runs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from raylog.raydp_jobs.pipelines.runs import (
    Place,
    RunState,
    RunUnreadable,
    RunWatch,
    Standing,
    StopRequest,
    behind,
    decode_state,
    encode,
    run_key,
    stop_key,
)

PROGRESS: dict[str, Any] = {
    "batchId": 3,
    "numInputRows": 50,
    "durationMs": {"triggerExecution": 500, "addBatch": 400},
    "sources": [{"endOffset": {"t": {"0": 5}}, "latestOffset": {"t": {"0": 7, "1": 4}}}],
}
HERE = Place("a", 7, "at noon", "boot-1")


def run(run: str = "r1", generation: int = 1, **fields: Any) -> RunState:
    state = RunState("counts", HERE, "running", 1_000, run=run, generation=generation)
    return replace(state, **fields)


def watch(*messages: RunState | StopRequest) -> RunWatch:
    """What records of a pipeline come to."""
    found = RunWatch("counts")
    for offset, each in enumerate(messages):
        key = stop_key("counts") if isinstance(each, StopRequest) else run_key("counts")
        found.add(key, encode(each), f"t-0 at offset {offset}")
    return found


def test_a_run_is_written_and_read() -> None:
    state = run(batch_id=3, error="none so far", at_ms=2_000, batch_at_ms=1_500)
    assert decode_state(encode(state), "here") == state
    assert state.batch_ago_ms == 500


def test_a_run_that_an_older_build_has_noted() -> None:
    text = """{"name": "counts", "pid": 9, "started": "boot:1", "state": "running",
        "since_ms": 5, "batch_id": 2, "batch_rows": 10, "rows": 30, "rows_per_s": 5.0,
        "behind": 0, "batch_at_ms": 7, "error": null}"""
    found = decode_state(text, "run.json")
    assert (found.place, found.run, found.generation) == (Place("", 9, "boot:1"), "", 0)
    assert (found.state, found.batch_id, found.rows, found.batch_at_ms) == ("running", 2, 30, 7)
    assert str(found.place) == "process 9"


def test_a_record_of_a_newer_build_is_refused_by_name() -> None:
    document = {**json.loads(encode(run())), "version": 2}
    with pytest.raises(RunUnreadable, match="here is of version 2, this build knows 0 to 1"):
        decode_state(json.dumps(document), "here")


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 1}', '{"version": 1, "place": 5}'])
def test_a_damaged_record_is_named(text: str) -> None:
    with pytest.raises(RunUnreadable, match="here is damaged"):
        decode_state(text, "here")


def test_fields_that_this_build_does_not_know_are_passed_over() -> None:
    document = {**json.loads(encode(run())), "later": 1}
    assert decode_state(json.dumps(document), "here") == run()


def test_records_of_other_pipelines_are_passed_over() -> None:
    found = watch(run())
    found.add(run_key("other"), b"{", "t-0 at offset 1")
    found.add(None, b"{", "t-0 at offset 2")
    assert found.holder == run()


def test_a_run_holds_the_pipeline_until_a_later_generation() -> None:
    found = watch(run(), run("r2", 2), run(beat=5))
    assert found.holder == run("r2", 2)
    assert found.is_held_by("r2")
    assert not found.is_held_by("r1")
    assert found.next_generation() == 3


def test_first_of_two_concurrent_claims_holds() -> None:
    assert watch(run("r1", 4), run("r2", 4), run("r2", 4, beat=1)).is_held_by("r1")


def test_nobody_holds_what_was_forgotten() -> None:
    found = watch(run())
    found.add(run_key("counts"), None, "t-0 at offset 1")
    assert (found.holder, found.next_generation()) == (None, 1)


def test_a_request_to_stop_is_for_one_run() -> None:
    found = watch(run(), StopRequest("r1"))
    assert found.asked_to_stop("r1") == StopRequest("r1")
    assert found.asked_to_stop("r2") is None
    assert watch(run(), StopRequest("r1"), StopRequest("r1", is_now=True)).asked_to_stop(
        "r1"
    ) == StopRequest("r1", is_now=True)


@pytest.mark.parametrize(
    ("state", "machine", "is_there", "expected"),
    [
        ("running", "boot-1", True, Standing.RUNS),
        ("stopping", "boot-1", False, Standing.GONE),
        ("running", "boot-2", True, Standing.UNKNOWN),
        ("starting", None, True, Standing.UNKNOWN),
        ("stopped", "boot-1", True, Standing.ENDED),
        ("failed", "boot-2", False, Standing.ENDED),
    ],
)
def test_a_pid_counts_on_its_own_machine_alone(
    state: str, machine: str | None, is_there: bool, expected: Standing
) -> None:
    assert watch(run(state=state)).standing(machine, is_there) is expected


def test_nothing_stands_where_nothing_was_reported() -> None:
    assert watch().standing("boot-1", True) is Standing.ENDED


def test_a_batch() -> None:
    found = run(rows=7).after(PROGRESS, 9_000)
    assert (found.batch_id, found.batch_rows, found.rows) == (3, 50, 57)
    assert (found.rows_per_s, found.behind, found.batch_at_ms) == (100.0, 6, 9_000)
    assert found.describe() == "batch 3: 50 rows, 100 rows/s, 6 behind"


def test_how_far_behind_is_unknown_if_spark_does_not_tell() -> None:
    assert behind({"sources": [{"endOffset": None, "latestOffset": None}]}) is None
