"""What a pipeline's checkpoint contains in addition to Spark's files.

| file | contents |
|---|---|
| `raylog/spark.log` | what Spark and Ray print |
| `raylog/run.json` | the last run of a build that did not report runs in a topic (`runs`) |
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from raylog.actors.runtime.processes import ProcessRecord, is_running
from raylog.raydp_jobs.pipelines.failures import PipelineFailed
from raylog.raydp_jobs.pipelines.runs import RunState, decode_state

DIED = "died"
"""The state of a run that ended without reporting it."""


def spark_log(checkpoint: Path) -> Path:
    """Return the log file of a run's Spark."""
    return checkpoint / "raylog" / "spark.log"


def older_run(checkpoint: Path) -> RunState | None:
    """Return the last run of an older build, from its file here; None if there was none.

    Raises RunUnreadable.
    """
    path = checkpoint / "raylog" / "run.json"
    if not path.exists():
        return None
    found = decode_state(path.read_text(), str(path))
    return replace(found, state=DIED) if found.is_live and not _is_there(found) else found


def refuse_older_run(name: str, checkpoint: Path) -> None:
    """Raise PipelineFailed if an older build runs the pipeline on this machine."""
    found = older_run(checkpoint)
    if found is not None and found.is_live:
        raise PipelineFailed(f"{name} is running already, as {found.place}, of an older build")


def _is_there(run: RunState) -> bool:
    return is_running(ProcessRecord(run.name, run.place.pid, run.place.started))
