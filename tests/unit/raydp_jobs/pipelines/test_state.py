"""Records of a run that an older build left in a pipeline's checkpoint."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from raylog.actors.runtime.processes import record_of
from raylog.raydp_jobs.pipelines.failures import PipelineFailed
from raylog.raydp_jobs.pipelines.runs import RunUnreadable
from raylog.raydp_jobs.pipelines.state import older_run, refuse_older_run


def noted(checkpoint: Path, **fields: object) -> None:
    """What a build that had no topic for runs has noted of this very process."""
    this = record_of("counts", os.getpid())
    assert this is not None
    found = {"name": "counts", "pid": this.pid, "started": this.started, "since_ms": 1_000}
    (checkpoint / "raylog").mkdir(exist_ok=True)
    (checkpoint / "raylog" / "run.json").write_text(json.dumps({**found, **fields}))


def test_there_may_be_no_run_of_an_older_build(tmp_path: Path) -> None:
    assert older_run(tmp_path) is None
    refuse_older_run("counts", tmp_path)


def test_a_run_of_an_older_build_is_refused_while_its_process_is_there(tmp_path: Path) -> None:
    noted(tmp_path, state="running", batch_id=4)
    found = older_run(tmp_path)
    assert found is not None
    assert (found.state, found.batch_id) == ("running", 4)
    with pytest.raises(
        PipelineFailed, match=f"counts is running already, as process {os.getpid()}"
    ):
        refuse_older_run("counts", tmp_path)


def test_a_run_of_an_older_build_whose_process_is_another_now_has_died(tmp_path: Path) -> None:
    noted(tmp_path, state="running", started="another boot")
    found = older_run(tmp_path)
    assert found is not None
    assert found.state == "died"
    refuse_older_run("counts", tmp_path)


@pytest.mark.parametrize("state", ["stopped", "failed"])
def test_a_run_of_an_older_build_that_has_reported_its_end(tmp_path: Path, state: str) -> None:
    noted(tmp_path, state=state)
    found = older_run(tmp_path)
    assert found is not None
    assert found.state == state
    refuse_older_run("counts", tmp_path)


def test_a_file_that_is_no_run_is_named(tmp_path: Path) -> None:
    noted(tmp_path, state="running", version=2)
    with pytest.raises(RunUnreadable, match=r"run\.json is of version 2, this build knows 0 to 1"):
        older_run(tmp_path)
