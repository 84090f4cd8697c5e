"""Datasets to topics, exactly once: each batch is one transaction across all tasks.

The driver is `raydp_jobs.driver.SinkDriver`, the Spark sink's; here is Ray. A run of a batch:

| step | how | |
|---|---|---|
| execute the dataset | Ray Data, as it streams | nothing is held but what its operators hold |
| cut each block by output partition | a Ray task, a return value for each | |
| wait for all of them | | the transaction opens with the first Produce, so after this |
| write each output partition | a Ray task, the only writer | in the order of the blocks |
| compare, commit | `BatchMachine` | |

Plain tasks and not Ray Data's own shuffle: that starts actors or sorts all rows, which takes
seconds for a micro-batch, and hands a partition on as a whole. Here a task holds one block or one
part of a block; parts wait in the object store, which spills to disk.

No task is repeated by Ray (`max_retries=0`). A second writer of a partition would be merged into
the first by sequence numbers; a second cut of a block whose rows are not the same every time would
not fit the other parts of the first one. Whatever Ray does nevertheless, a writer asks for the
partition's permit, which the driver gives once a run. Any loss costs the run. The next one has
another epoch, which fences what is left of this one, and executes the dataset again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError, RayTaskError

from raylog.client.closing import Closing
from raylog.client.cluster import TopicPartition
from raylog.client.producer.accumulator import ProducerIdentity
from raylog.ray_data.planning import EARLIEST_WORD, Bound
from raylog.ray_data.tasks import RayRun, cut
from raylog.raydp_jobs.batches import Batch, BatchFailed, KafkaRange
from raylog.raydp_jobs.commit import Event, TaskReport, WriteLost, Written
from raylog.raydp_jobs.driver import SinkDriver, SinkSettings
from raylog.raydp_jobs.marks import Job, Mark
from raylog.raydp_jobs.permits import PermitOffice, Permits
from raylog.raydp_jobs.rows import BadColumns, BadRow, Topics

if TYPE_CHECKING:
    from ray.data import Dataset

    from raylog.ray_data.continuing import MicroBatch

Refs = list[Any]
"""References to objects of Ray, whose type says nothing of what they refer to."""

_ROWS_PER_BLOCK = 20_000
"""Of a block that a task has in its memory anyway: fewer make small record batches."""
_CUTS_MAX = 32
"""Blocks that are being cut or wait for it."""
_REASON_CHARS_MAX = 400


class Sink(Closing):
    """Writes batches to topics, one transaction each. For one writing program at a time.

    `sink_id` names the transactional id and the group, which nothing else may use.
    """

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        topics: str | Sequence[str],
        sink_id: str,
        settings: SinkSettings | None = None,
    ) -> None:
        settings = settings or SinkSettings(rows_per_block=_ROWS_PER_BLOCK)
        self._driver = SinkDriver(bootstrap, topics, sink_id, settings)

    def write(self, dataset: Dataset, batch: MicroBatch) -> bool:
        """Write what was made of a batch of `read_continuing`, with its offsets.

        Returns whether it was new. Raises BatchFailed, SourceMismatch, StateLost.
        """
        return self._write(dataset, batch.mark, (batch.source,))

    def write_job(
        self,
        dataset: Dataset,
        job_id: str,
        offsets: Mapping[TopicPartition, int] | None = None,
        *,
        source_bootstrap: str | None = None,
    ) -> bool:
        """Write unless one of the last jobs was `job_id`; `offsets` are committed with it.

        `source_bootstrap` is of the cluster that these are of; None: of the sink's own. Returns
        whether it was written now. Raises BatchFailed.
        """
        sources: Sequence[KafkaRange] = ()
        if offsets and source_bootstrap is not None:
            sources = (self._driver.clusters.identified(KafkaRange({}, offsets), source_bootstrap),)
        elif offsets:
            sources = (KafkaRange({}, offsets, self._driver.cluster_id),)
        return self._write(dataset, Job(job_id), sources)

    def positions(
        self,
        otherwise: Bound = EARLIEST_WORD,
        *,
        topics: Collection[str] | None = None,
        source_bootstrap: str | None = None,
    ) -> Bound:
        """Where a new reading goes on: `start` of `read_continuing`; `otherwise` at the first.

        Fences and ends first what an earlier writer left open. `topics`: of these alone;
        `source_bootstrap`: of those on another cluster. Raises StateLost.
        """
        found = self._driver.committed(source_bootstrap)
        return {
            key: offset for key, offset in found.items() if topics is None or key.topic in topics
        } or otherwise

    def reset(
        self,
        positions: Mapping[TopicPartition, int] | None = None,
        *,
        source_bootstrap: str | None = None,
    ) -> None:
        """Forget what was written, so that any reading may begin, at `positions` where they are.

        `source_bootstrap` is of the cluster that these are of; None: of the sink's own.
        """
        self._driver.reset(positions, source_bootstrap=source_bootstrap)

    def close(self) -> None:
        """End all connections."""
        self._driver.close()

    def _write(
        self,
        dataset: Dataset,
        mark: Mark | Job,
        sources: Sequence[KafkaRange],
    ) -> bool:
        topics = self._driver.topics()
        batch = Batch(mark, topics.targets(), sources)
        return self._driver.write(batch, partial(self._run, dataset, topics))

    def _run(self, dataset: Dataset, topics: Topics, identity: ProducerIdentity) -> Event:
        """Let the tasks write once; raises BatchFailed for rows that no run could write."""
        host = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]  # Ray's
        with PermitOffice(Permits(_never_repeated), host) as desk:
            run = self._driver.run_of(RayRun, identity, topics, desk)
            try:
                return _written(run, _cut_blocks(dataset, topics, self._driver.settings))
            except _TaskLost as failure:
                return WriteLost(str(failure))


def write(
    dataset: Dataset,
    bootstrap: str | Iterable[str],
    topics: str | Sequence[str],
    sink_id: str,
    *,
    job_id: str | None = None,
    batch: MicroBatch | None = None,
    offsets: Mapping[TopicPartition, int] | None = None,
    source_bootstrap: str | None = None,
    settings: SinkSettings | None = None,
) -> bool:
    """Write a dataset in one transaction unless it is written; returns whether it was new.

    Either `job_id` says which dataset it is (the sink remembers the last 1,000), and `offsets` may
    be committed with it, of the sink's cluster or that of `source_bootstrap`; or it was made of
    `batch`, whose offsets are. Raises BatchFailed.
    """
    if (job_id is None) == (batch is None):
        raise ValueError("expected either job_id or batch")
    if batch is not None and offsets is not None:
        raise ValueError("a batch has offsets of its own")
    with Sink(bootstrap, topics, sink_id, settings) as sink:
        if batch is not None:
            return sink.write(dataset, batch)
        assert job_id is not None, "checked above"
        return sink.write_job(dataset, job_id, offsets, source_bootstrap=source_bootstrap)


class _TaskLost(Exception):
    """One of the sink's own tasks failed; the same rows may be written by another run."""


def _cut_blocks(dataset: Dataset, topics: Topics, settings: SinkSettings) -> list[Refs]:
    """Parts of all blocks by output partition, in the blocks' order. Raises as the dataset does."""
    count = len(topics.targets())
    task = ray.remote(cut).options(num_returns=count, max_retries=0, name="raylog-cut")
    by_target: list[Refs] = [[] for _ in range(count)]
    waiting: Refs = []
    for number, block in enumerate(_blocks(dataset)):
        found: Any = task.remote(block, topics, number, settings)
        parts = [found] if count == 1 else found
        for refs, part in zip(by_target, parts, strict=True):
            refs.append(part)
        waiting.append(parts[0])
        if len(waiting) >= _CUTS_MAX:
            waiting = _wait_for_one(waiting)
    while waiting:
        waiting = _wait_for_one(waiting)
    return by_target


def _blocks(dataset: Dataset) -> Iterator[Any]:
    """References to the dataset's blocks, as they come."""
    for bundle in dataset.iter_internal_ref_bundles():
        yield from bundle.block_refs


def _wait_for_one(waiting: Refs) -> Refs:
    """Wait until one of the tasks is done; raises _TaskLost, BatchFailed."""
    done, left = ray.wait(waiting, num_returns=1, fetch_local=False)
    with _failing():
        ray.get(done)
    return left


def _written(run: RayRun, by_target: list[Refs]) -> Event:
    """Write all output partitions, a task each; if one is lost the others are ended.

    Raises _TaskLost, BatchFailed.
    """
    task = ray.remote(_write_partition).options(max_retries=0, name="raylog-write")
    reports = [task.remote(run, target, parts) for target, parts in enumerate(by_target)]
    try:
        with _failing():
            return Written(ray.get(reports))
    except BaseException:
        for report in reports:
            ray.cancel(report)  # what is left of it is fenced by the next run
        raise


def _write_partition(run: RayRun, target: int, parts: Sequence[Any]) -> TaskReport:
    return run.write(target, parts)


def _never_repeated(stage_id: int) -> int:
    """Attempt of the writing stage: each run starts its tasks once."""
    del stage_id
    return 0


@contextmanager
def _failing() -> Iterator[None]:
    """Raises BatchFailed for rows that no run could write, _TaskLost for all else."""
    try:
        yield
    except RayError as failure:
        cause = failure.cause if isinstance(failure, RayTaskError) else failure
        if isinstance(cause, BadRow | BadColumns):
            raise BatchFailed(str(cause)) from failure
        text = f"{type(cause).__name__}: {cause}"
        raise _TaskLost(text[:_REASON_CHARS_MAX]) from failure
