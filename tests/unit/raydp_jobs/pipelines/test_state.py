"""What a run tells of itself, and what is made of it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from raylog.actors.runtime.processes import record_of
from raylog.client import BlockingClient, NewTopic, TopicPartition
from raylog.client.groups import CommittedOffset
from raylog.raydp_jobs.marks import Mark
from raylog.raydp_jobs.pipelines.failures import PipelineFailed
from raylog.raydp_jobs.pipelines.runs import RunUnreadable
from raylog.raydp_jobs.pipelines.spec import ParquetSink, PipelineSpec, TopicSource, Transform
from raylog.raydp_jobs.pipelines.state import (
    TopicLag,
    lags,
    landed,
    older_run,
    refuse_older_run,
)
from raylog.testing import EmbeddedBroker


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
def test_a_run_of_an_older_build_that_has_told_of_its_end(tmp_path: Path, state: str) -> None:
    noted(tmp_path, state=state)
    found = older_run(tmp_path)
    assert found is not None
    assert found.state == state
    refuse_older_run("counts", tmp_path)


def test_a_file_that_is_no_run_is_named(tmp_path: Path) -> None:
    noted(tmp_path, state="running", version=2)
    with pytest.raises(RunUnreadable, match=r"run\.json is of version 2, this build knows 0 to 1"):
        older_run(tmp_path)


def test_what_landed_is_what_spark_has_committed(tmp_path: Path) -> None:
    assert landed(tmp_path) == {}
    checkpoint(tmp_path, 2, {"t": {"0": 30}})
    checkpoint(tmp_path, 10, {"t": {"0": 90}})
    (tmp_path / "commits" / ".10.crc").touch()
    assert landed(tmp_path) == {TopicPartition("t", 0): 90}


def checkpoint(folder: Path, batch_id: int, ends: dict[str, dict[str, int]]) -> None:
    """A batch that is done, as Spark notes it."""
    for name in ("offsets", "commits", "sources/0"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text('{"id": "q"}')
    (folder / "offsets" / str(batch_id)).write_text(f"v1\n{{}}\n{json.dumps(ends)}")
    (folder / "commits" / str(batch_id)).write_text("v1\n{}")


@pytest.fixture(scope="module")
def client() -> Iterator[BlockingClient]:
    """Of a broker with five records in each of two topics."""
    with EmbeddedBroker() as broker, BlockingClient(broker.bootstrap) as client:
        client.create_topics([NewTopic("t", 1), NewTopic("u", 1)])
        with client.producer() as producer:
            for n in range(10):
                producer.send("tu"[n % 2], b"%d" % n)
        yield client


def spec(folder: Path, dead_letters: str | None) -> PipelineSpec:
    return PipelineSpec(
        name="lagging",
        checkpoint=folder,
        sources={"rows": TopicSource(topics=["t", "u"], format="binary")},
        transform=Transform(sql="SELECT value FROM rows"),
        sink=ParquetSink(path=folder / "landed"),
        dead_letters=dead_letters,
    )


def test_lag_by_what_is_committed_with_the_output(client: BlockingClient, tmp_path: Path) -> None:
    """Offsets that the sink did not commit do not count."""
    mark = Mark("q", 1).encode()
    offsets = {
        TopicPartition("t", 0): CommittedOffset(2, -1, mark),
        TopicPartition("u", 0): CommittedOffset(4, -1, "somebody else's"),
    }
    client.commit_group_offsets("raylog-sink-lagging", offsets)
    assert lags(client, spec(tmp_path, "bad")) == [TopicLag("t", 3), TopicLag("u", None)]


def test_lag_of_what_lands_without_a_transaction(client: BlockingClient, tmp_path: Path) -> None:
    checkpoint(tmp_path, 0, {"t": {"0": 5}, "u": {"0": 1}})
    assert lags(client, spec(tmp_path, None)) == [TopicLag("t", 0), TopicLag("u", 4)]
