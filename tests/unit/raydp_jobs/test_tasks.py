"""What a task does before its first Produce request, without Spark and without a broker."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pytest

from raylog.client.cluster import TopicPartition
from raylog.client.producer.accumulator import ProducerIdentity
from raylog.client.settings import ClientSettings
from raylog.client.transactions import SECOND
from raylog.raydp_jobs import tasks
from raylog.raydp_jobs.tasks import WriteRun
from raylog.sink.commit import TaskReport
from raylog.sink.permits import PermitRefused, Permits, PermitServer
from raylog.sink.rows import COLUMNS, Splitter, Topics
from raylog.sink.writer import WriterSettings
from tests.unit.sink.test_rows import SCHEMA

STAGE = 5


@dataclass
class Context:
    """Spark's information about an attempt of a task."""

    attempt: int = 0
    task: int = 100

    def get(self) -> "Context":
        """As the class does."""
        return self

    def attemptNumber(self) -> int:  # noqa: N802  # Spark's name
        """Of the task."""
        return self.attempt

    def stageId(self) -> int:  # noqa: N802  # Spark's name
        """Of its stage."""
        return STAGE

    def taskAttemptId(self) -> int:  # noqa: N802  # Spark's name
        """Among all tasks."""
        return self.task


@pytest.fixture
def attempts() -> dict[int, int]:
    """The newest attempt of each stage."""
    return {STAGE: 0}


@pytest.fixture
def run(attempts: dict[int, int]) -> Iterator[WriteRun]:
    """A run against no broker at all: to reach for one fails."""
    with PermitServer(Permits(attempts.get), "127.0.0.1") as permit_client:
        yield WriteRun(
            ClientSettings((("127.0.0.1", 1),)),
            SECOND,
            "x",
            ProducerIdentity(1, 0),
            Topics({"t": 2}),
            WriterSettings(delivery_timeout_ms=10),
            1_000,
            permit_client,
        )


def written(
    run: WriteRun, monkeypatch: pytest.MonkeyPatch, context: Context, *blocks: tuple[int, bytes]
) -> list[TaskReport]:
    """One attempt of the task of partition 1."""
    monkeypatch.setattr(tasks, "TaskContext", context)
    return list(run.write(1, blocks))


def test_a_task_without_rows_reports_its_partition(
    run: WriteRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert written(run, monkeypatch, Context()) == [TaskReport(TopicPartition("t", 1), 0, -1)]


@pytest.mark.parametrize("blocks", [(), ((1, b"never read"),)])
def test_a_later_attempt_is_refused_with_and_without_rows(
    run: WriteRun, monkeypatch: pytest.MonkeyPatch, blocks: tuple[tuple[int, bytes], ...]
) -> None:
    with pytest.raises(PermitRefused, match="attempt 1"):
        written(run, monkeypatch, Context(attempt=1), *blocks)


@pytest.mark.parametrize("blocks", [(), ((1, b"never read"),)])
def test_a_later_attempt_of_the_stage_is_refused_with_and_without_rows(
    run: WriteRun,
    attempts: dict[int, int],
    monkeypatch: pytest.MonkeyPatch,
    blocks: tuple[tuple[int, bytes], ...],
) -> None:
    """Rows may have been another's in the first attempt; here it seems to have none to write."""
    attempts[STAGE] = 1
    with pytest.raises(PermitRefused, match="is at attempt 1"):
        written(run, monkeypatch, Context(), *blocks)


def test_a_second_task_of_a_partition_is_refused(
    run: WriteRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(run, monkeypatch, Context())
    with pytest.raises(PermitRefused, match="written by task attempt 100"):
        written(run, monkeypatch, Context(task=101))


def test_brokers_that_cannot_be_reached_are_reported_and_not_raised(
    run: WriteRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark would repeat the task, in vain."""
    row = {**dict.fromkeys(COLUMNS), "partition": 1, "value": b"v"}
    splitter = Splitter(run.topics, 1_000, 0, 77)
    (block,) = splitter.split([pa.RecordBatch.from_pylist([row], SCHEMA)])
    (report,) = written(run, monkeypatch, Context(), block)
    assert report.failure is not None
    assert "not written in 10 ms: NotConnected" in report.failure
    assert not report.is_final
