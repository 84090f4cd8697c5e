"""Continuous reading: a sequence of bounded datasets, each starting where the last one ended."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from raylog.client.cluster import TopicPartition
from raylog.client.core import Core
from raylog.client.sockets import connected
from raylog.ray_data.offsets import OffsetFinder
from raylog.ray_data.planning import Bound, Extent, Positions, limited
from raylog.ray_data.reading import ReadSettings
from raylog.ray_data.source import READ_COMMITTED, TopicReader
from raylog.sink.batches import UNKNOWN_CLUSTER, KafkaRange
from raylog.sink.marks import Mark
from raylog.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from ray.data import Dataset

POLL_INTERVAL_MS = 1_000


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A bounded part of the stream. Its offsets include partitions without new records."""

    mark: Mark
    """The number of the batch and the id of its stream."""
    dataset: Dataset
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    """The start of the next batch."""
    cluster_id: str = UNKNOWN_CLUSTER
    """The id of the source cluster."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def source(self) -> KafkaRange:
        """The range of offsets, for the sink."""
        return KafkaRange(self.starts, self.ends, self.cluster_id, self.topic_ids)


class MicroBatches:
    """Iterates over a stream's batches and waits for new records.

    For use by one thread; any thread may call `stop`. Requesting the next batch completes the
    current one. An iteration that is aborted and started again gets the same batch under the same
    mark, and a sink that has written it skips it.
    """

    def __init__(
        self,
        reader: TopicReader,
        start: Bound,
        end: Bound | None,
        *,
        records_per_batch: int | None,
        poll_interval_ms: int,
    ) -> None:
        self._reader = reader
        self._start = start
        self._end = end
        self._records_per_batch = records_per_batch
        self._poll_interval_ms = poll_interval_ms
        self._query_id = uuid.uuid4().hex
        self._batch_id = 0
        self._stopped = threading.Event()
        self._handed_out: MicroBatch | None = None
        self.positions: Positions = {}
        """The ends of the completed batches; empty before the first batch is returned."""

    def stop(self) -> None:
        """End the iteration before the next batch."""
        self._stopped.set()

    def __iter__(self) -> Iterator[MicroBatch]:
        with connected(self._reader.client) as core:
            yield from self._batches(core)

    def _batches(self, core: Core) -> Iterator[MicroBatch]:
        if self._handed_out is not None:
            yield from self._hand_out(self._handed_out)
        reader = self._reader
        finder = OffsetFinder(core, reader.topics, read_committed=reader.read_committed)
        extents = finder.extents()
        if not self.positions:
            self.positions = finder.resolved(self._start, extents)
        last = None if self._end is None else finder.resolved(self._end, extents)
        while not self._stopped.is_set():
            starts = {key: self.positions.get(key, at.earliest) for key, at in extents.items()}
            ends = limited(starts, _ends(extents, last), self._records_per_batch)
            if ends != starts:
                dataset = reader.between(starts, ends, finder.sized(extents))
                mark = Mark(self._query_id, self._batch_id)
                batch = MicroBatch(mark, dataset, starts, ends, *_identity(core, extents))
                yield from self._hand_out(batch)
            elif last is not None:
                return
            else:
                self._stopped.wait(self._poll_interval_ms / 1000)
            extents = finder.extents()

    def _hand_out(self, batch: MicroBatch) -> Iterator[MicroBatch]:
        """Yield a batch and, when the next one is requested, mark it complete."""
        self._handed_out = batch
        yield batch
        self._handed_out = None
        self.positions = dict(batch.ends)
        self._batch_id = batch.mark.batch_id + 1


def _identity(core: Core, keys: Iterable[TopicPartition]) -> tuple[str, dict[str, str]]:
    """Return the ids of the cluster and the topics, from metadata."""
    views = [core.cluster.topic(topic) for topic in {key.topic for key in keys}]
    ids = {view.name: view.topic_id.hex() for view in views if view.topic_id != ZERO_UUID}
    return core.cluster.cluster_id or UNKNOWN_CLUSTER, ids


def _ends(extents: Mapping[TopicPartition, Extent], last: Positions | None) -> Positions:
    """Return the current ends, leaving out partitions created since `last` was looked up."""
    if last is None:
        return {key: extent.latest for key, extent in extents.items()}
    return {key: last.get(key, extent.earliest) for key, extent in extents.items()}


def read_continuing(
    bootstrap: str | Iterable[str],
    topics: str | Sequence[str],
    *,
    start: Bound = "earliest",
    end: Bound | None = None,
    isolation: str = READ_COMMITTED,
    records_per_batch: int | None = None,
    poll_interval_ms: int = POLL_INTERVAL_MS,
    settings: ReadSettings | None = None,
) -> MicroBatches:
    """Read continuously, or up to `end`, in batches of about `records_per_batch` offsets.

    With `records_per_batch=None`, a batch has everything available. Without new records, the
    brokers are polled every `poll_interval_ms`. New partitions are read from their beginning.
    """
    return MicroBatches(
        TopicReader.of(bootstrap, topics, isolation, settings),
        start,
        end,
        records_per_batch=records_per_batch,
        poll_interval_ms=poll_interval_ms,
    )
