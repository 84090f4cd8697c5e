"""Writes datasets to topics exactly once: each batch is one transaction across all tasks.

The driver is `raylog.sink.driver.SinkDriver`, as for the Spark sink. This module runs it on Ray. A
run of a batch has these steps:

| step | how | notes |
|---|---|---|
| execute the dataset | Ray Data, streaming | only its operators hold data |
| split each block by output partition | a Ray task with a return value per partition | |
| wait for all of them | | the transaction opens with the first Produce, which comes after this |
| write each output partition | a Ray task, the only writer | in the order of the blocks |
| compare, commit | `BatchMachine` | |

It uses plain tasks instead of Ray Data's shuffle, which starts actors or sorts all rows, takes
seconds for a micro-batch, and passes on a partition as a whole. Here a task holds one block or one
part of a block. Parts wait in the object store, which spills to disk.

Ray retries no task (`max_retries=0`). Sequence numbers would merge a second writer of a partition
into the first one. If a block's rows are not deterministic, a second split would not match the
other parts of the first one. In case Ray retries nevertheless, a writer needs the partition's
permit, which the driver grants once per run. Any loss fails the run. The next run has another
epoch, which fences what is left of this run, and executes the dataset again.
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
from raylog.sink.batches import Batch, BatchFailed, KafkaRange
from raylog.sink.commit import Event, TaskReport, WriteLost, Written
from raylog.sink.driver import SinkDriver, SinkSettings
from raylog.sink.marks import Job, Mark
from raylog.sink.permits import Permits, PermitServer
from raylog.sink.rows import BadColumns, BadRow, Topics

if TYPE_CHECKING:
    from ray.data import Dataset

    from raylog.ray_data.continuing import MicroBatch

Refs = list[Any]
"""Ray object references; the type does not say what object they refer to."""

_ROWS_PER_BLOCK = 20_000
"""For blocks that a task has in memory anyway; fewer rows would make small record batches."""
_CUTS_MAX = 32
"""The maximum number of blocks that are being split or waiting for it."""
_REASON_CHARS_MAX = 400


class Sink(Closing):
    """Writes batches to topics, one transaction each, for one program at a time.

    `sink_id` determines the transactional id and the group. Nothing else may use them.
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
        """Write the result of a batch of `read_continuing`, together with its offsets.

        Returns whether it was new. Raises BatchFailed, SourceMismatch and StateLost.
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
        """Write a dataset unless one of the last jobs was `job_id`. Commits `offsets` with it.

        `source_bootstrap` names the cluster of the offsets; None is the sink's own. Returns whether
        the dataset was written now. Raises BatchFailed.
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
        """Return the `start` for a new `read_continuing`; `otherwise` if nothing was written.

        Fences an earlier writer and ends its transaction first. `topics` restricts the result to
        these topics, `source_bootstrap` to another cluster. Raises StateLost.
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
        """Forget what was written, so that any read may start, at `positions` if given.

        `source_bootstrap` names the cluster of the positions; None is the sink's own.
        """
        self._driver.reset(positions, source_bootstrap=source_bootstrap)

    def close(self) -> None:
        """Close all connections."""
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
        """Have the tasks write once. Raises BatchFailed for rows that no run can write."""
        host = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]  # Ray's
        # Each run starts its tasks once, so the attempt of a stage is always 0.
        with PermitServer(Permits(lambda _: 0), host) as permit_client:
            run = self._driver.run_of(RayRun, identity, topics, permit_client)
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
    """Write a dataset in one transaction unless it is written. Returns whether it was new.

    Give either `job_id`, which identifies the dataset (the sink remembers the last 1,000), or
    `batch`, whose result the dataset is and whose offsets are committed. With `job_id`, `offsets`
    of the sink's cluster or of `source_bootstrap` may be committed too. Raises BatchFailed.
    """
    if (job_id is None) == (batch is None):
        raise ValueError("expected either job_id or batch")
    if batch is not None and offsets is not None:
        raise ValueError("expected no offsets with a batch, which has its own")
    with Sink(bootstrap, topics, sink_id, settings) as sink:
        if batch is not None:
            return sink.write(dataset, batch)
        assert job_id is not None, "checked above"
        return sink.write_job(dataset, job_id, offsets, source_bootstrap=source_bootstrap)


class _TaskLost(Exception):
    """One of the sink's tasks failed. Another run may write the same rows."""


def _cut_blocks(dataset: Dataset, topics: Topics, settings: SinkSettings) -> list[Refs]:
    """Return the parts of all blocks by output partition, in the order of blocks.

    Raises what the dataset raises.
    """
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
    """Yield references to the dataset's blocks, in streaming order."""
    for bundle in dataset.iter_internal_ref_bundles():
        yield from bundle.block_refs


def _wait_for_one(waiting: Refs) -> Refs:
    """Wait until a task is done. Raises _TaskLost and BatchFailed."""
    done, left = ray.wait(waiting, num_returns=1, fetch_local=False)
    with _failing():
        ray.get(done)
    return left


def _written(run: RayRun, by_target: list[Refs]) -> Event:
    """Write all output partitions, one task each. If one fails, cancel the others.

    Raises _TaskLost or BatchFailed.
    """
    task = ray.remote(_write_partition).options(max_retries=0, name="raylog-write")
    reports = [task.remote(run, target, parts) for target, parts in enumerate(by_target)]
    try:
        with _failing():
            return Written(ray.get(reports))
    except BaseException:
        for report in reports:
            ray.cancel(report)  # the next run fences what is left of it
        raise


def _write_partition(run: RayRun, target: int, parts: Sequence[Any]) -> TaskReport:
    return run.write(target, parts)


@contextmanager
def _failing() -> Iterator[None]:
    """Translate errors: BatchFailed for rows that no run can write, else _TaskLost."""
    try:
        yield
    except RayError as failure:
        cause = failure.cause if isinstance(failure, RayTaskError) else failure
        if isinstance(cause, BadRow | BadColumns):
            raise BatchFailed(str(cause)) from failure
        text = f"{type(cause).__name__}: {cause}"
        raise _TaskLost(text[:_REASON_CHARS_MAX]) from failure
