"""What is in a pipeline's checkpoint besides Spark's own, and how far its topics are read.

| file | |
|---|---|
| `raylog/spark.log` | what Spark and Ray print |
| `raylog/run.json` | the last run of a build that did not tell of runs in a topic (`runs`) |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from raylog.actors.runtime.processes import ProcessRecord, is_running
from raylog.client import LATEST, BlockingClient, TopicPartition
from raylog.raydp_jobs.checkpoints import Offsets, batch_source
from raylog.raydp_jobs.marks import read_mark
from raylog.raydp_jobs.pipelines.failures import PipelineFailed
from raylog.raydp_jobs.pipelines.runs import RunState, decode_state
from raylog.raydp_jobs.pipelines.spec import PipelineSpec

DIED = "died"
"""What a run is that did not come to tell of its end."""


def spark_log(checkpoint: Path) -> Path:
    """Where the messages of a run's Spark are."""
    return checkpoint / "raylog" / "spark.log"


def older_run(checkpoint: Path) -> RunState | None:
    """The last run of an older build as it is found here; None if there was none.

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
