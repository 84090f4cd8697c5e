"""What a run tells of itself, and what is made of it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raylog.actors.runtime.processes import record_of
from raylog.client import BlockingClient, NewTopic, TopicPartition
from raylog.client.groups import CommittedOffset
from raylog.raydp_jobs.marks import Mark
from raylog.raydp_jobs.pipelines.spec import ParquetSink, PipelineSpec, TopicSource, Transform
from raylog.raydp_jobs.pipelines.state import (
    RunState,
    TopicLag,
    behind,
    lags,
    landed,
    read_state,
    state_path,
)
from raylog.testing import EmbeddedBroker

PROGRESS: dict[str, Any] = {
    "batchId": 3,
    "numInputRows": 50,
    "durationMs": {"triggerExecution": 500, "addBatch": 400},
    "sources": [{"endOffset": {"t": {"0": 5}}, "latestOffset": {"t": {"0": 7, "1": 4}}}],
}


@pytest.fixture
def run() -> RunState:
    """A run of this very process."""
    this = record_of("counts", os.getpid())
    assert this is not None
    return RunState("counts", this.pid, this.started, "running", 1_000)


def test_a_run_is_written_and_read(run: RunState, tmp_path: Path) -> None:
    assert read_state(tmp_path) is None
    run.write(tmp_path)
    assert read_state(tmp_path) == run
    assert [path.name for path in state_path(tmp_path).parent.iterdir()] == ["run.json"]


def test_a_run_whose_process_is_another_now_has_died(run: RunState) -> None:
    assert run.is_running
    assert run.as_found() == run
    died = replace(run, started="another boot")
    assert not died.is_running
    assert died.as_found().state == "died"


@pytest.mark.parametrize("state", ["stopped", "failed"])
def test_a_run_that_has_told_of_its_end(run: RunState, state: str) -> None:
    ended = replace(run, state=state)
    assert not ended.is_running
    assert ended.as_found() == ended


def test_a_batch(run: RunState) -> None:
    found = replace(run, rows=7).after(PROGRESS)
    assert (found.batch_id, found.batch_rows, found.rows) == (3, 50, 57)
    assert (found.rows_per_s, found.behind) == (100.0, 6)
    assert found.told() == "batch 3: 50 rows, 100 rows/s, 6 behind"


def test_how_far_behind_is_unknown_if_spark_does_not_tell() -> None:
    assert behind({"sources": [{"endOffset": None, "latestOffset": None}]}) is None


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
