"""What a run of a pipeline tells of itself, for `raylog pipeline status` and `stop`.

`raylog/run.json` in the checkpoint: who runs, the last batch, the last error. `spark.log` beside it
has what Spark and Ray print.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from raylog.actors.runtime.processes import ProcessRecord, is_running
from raylog.client import LATEST, BlockingClient, TopicPartition
from raylog.raydp_jobs.checkpoints import Offsets, batch_source
from raylog.raydp_jobs.marks import read_mark
from raylog.raydp_jobs.pipelines.spec import PipelineSpec

STARTING = "starting"
RUNNING = "running"
STOPPING = "stopping"
STOPPED = "stopped"
FAILED = "failed"
DIED = "died"
"""What a run is that did not come to tell of its end."""
_LIVE = frozenset({STARTING, RUNNING, STOPPING})


@dataclass(frozen=True, slots=True)
class RunState:
    """One run, as it was last told."""

    name: str
    pid: int
    started: str
    """Start time of the process, as the system words it."""
    state: str
    since_ms: int
    """When the run began."""
    batch_id: int | None = None
    batch_rows: int = 0
    rows: int = 0
    """Of all batches of this run."""
    rows_per_s: float = 0.0
    """Of the last batch."""
    behind: int | None = None
    """Offsets of the sources that were not read yet when the last batch began."""
    batch_at_ms: int | None = None
    """When the last batch ended."""
    error: str | None = None

    @property
    def process(self) -> ProcessRecord:
        """Who runs it."""
        return ProcessRecord(self.name, self.pid, self.started)

    @property
    def is_running(self) -> bool:
        """Whether that very process still runs it."""
        return self.state in _LIVE and is_running(self.process)

    def as_found(self) -> RunState:
        """What became of it."""
        return replace(self, state=DIED) if self.state in _LIVE and not self.is_running else self

    def after(self, progress: dict[str, Any]) -> RunState:
        """The same run after a batch, as Spark tells of it."""
        rows = int(progress["numInputRows"])
        seconds = progress["durationMs"].get("triggerExecution", 0) / 1000
        return replace(
            self,
            batch_id=int(progress["batchId"]),
            batch_rows=rows,
            rows=self.rows + rows,
            rows_per_s=rows / seconds if seconds else 0.0,
            behind=behind(progress),
            batch_at_ms=round(time.time() * 1000),
        )

    def told(self) -> str:
        """The last batch, in words."""
        told = f"batch {self.batch_id}: {self.batch_rows:,} rows, {self.rows_per_s:,.0f} rows/s"
        return told if self.behind is None else f"{told}, {self.behind:,} behind"

    def write(self, checkpoint: Path) -> None:
        """Note it, at once or not at all."""
        path = state_path(checkpoint)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(self), indent=1))
        draft.replace(path)


def state_path(checkpoint: Path) -> Path:
    """Where a run's state is."""
    return checkpoint / "raylog" / "run.json"


def spark_log(checkpoint: Path) -> Path:
    """Where the messages of a run's Spark are."""
    return checkpoint / "raylog" / "spark.log"


def read_state(checkpoint: Path) -> RunState | None:
    """The last run; None if there was none."""
    path = state_path(checkpoint)
    return RunState(**json.loads(path.read_text())) if path.exists() else None


def behind(progress: dict[str, Any]) -> int | None:
    """How many offsets the sources had beyond the batch's end; None if Spark does not tell."""
    total = 0
    for source in progress["sources"]:
        end, latest = source.get("endOffset"), source.get("latestOffset")
        if not isinstance(end, dict) or not isinstance(latest, dict):
            return None
        for topic, partitions in latest.items():
            for partition, offset in partitions.items():
                total += max(0, offset - end.get(topic, {}).get(partition, 0))
    return total


@dataclass(frozen=True, slots=True)
class TopicLag:
    """How far a source topic is read."""

    topic: str
    lag: int | None
    """Records and markers that are not in the output; None: nothing is committed yet."""


def lags(client: BlockingClient, spec: PipelineSpec) -> list[TopicLag]:
    """By source topic. What counts is what is committed with the output.

    Rows that land in a folder without dead letters have no transaction: Spark's commits count.
    """
    keys = [
        TopicPartition(topic, partition)
        for topic in spec.source_topics
        for partition in client.describe_topic(topic).partitions
    ]
    ends = client.list_offsets(dict.fromkeys(keys, LATEST), read_committed=True)
    if spec.written_topics():
        committed = {
            key: offset.offset
            for key, offset in client.group_offsets(f"raylog-sink-{spec.name}").items()
            if read_mark(offset.metadata) is not None
        }
    else:
        committed = landed(spec.checkpoint)
    found = []
    for topic in spec.source_topics:
        known = [key for key in keys if key.topic == topic and key in committed]
        lag = sum(max(0, ends[key].offset - committed[key]) for key in known)
        found.append(TopicLag(topic, lag if known else None))
    return found


def landed(checkpoint: Path) -> Offsets:
    """Where the last batch ended that Spark knows to be done."""

    def read(name: str) -> str | None:
        path = checkpoint / name
        return path.read_text() if path.exists() else None

    done = [int(path.name) for path in checkpoint.glob("commits/*") if path.name.isdigit()]
    return batch_source(read, max(done)).ends if done else {}
