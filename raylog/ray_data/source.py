"""Reads topics as Ray datasets: `read` and its datasource."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import ray
from ray.data import Datasource, ReadTask
from ray.data.block import BlockMetadata

from raylog.client.cluster import TopicPartition
from raylog.client.settings import ClientSettings, parse_bootstrap
from raylog.client.sockets import connected
from raylog.ray_data.columns import SCHEMA
from raylog.ray_data.offsets import OffsetFinder
from raylog.ray_data.planning import Bound, Extent, OffsetRange, Positions, ranges_between, split
from raylog.ray_data.reading import ReadSettings, read_range

if TYPE_CHECKING:
    from ray.data import Dataset
    from ray.data.context import DataContext

READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"


@dataclass(frozen=True, slots=True)
class TopicReader:
    """The topics, client settings and isolation level of a read."""

    topics: Sequence[str]
    client: ClientSettings
    settings: ReadSettings
    read_committed: bool

    @classmethod
    def of(
        cls,
        bootstrap: str | Iterable[str],
        topics: str | Sequence[str],
        isolation: str,
        settings: ReadSettings | None,
    ) -> TopicReader:
        """Create a reader from user input. Raises ValueError and InvalidSetting."""
        if isolation not in (READ_COMMITTED, READ_UNCOMMITTED):
            raise ValueError(
                f"expected isolation {READ_COMMITTED!r} or {READ_UNCOMMITTED!r}, "
                f"found {isolation!r}"
            )
        settings = settings or ReadSettings()
        return cls(
            [topics] if isinstance(topics, str) else list(topics),
            settings.client or ClientSettings(parse_bootstrap(bootstrap)),
            settings,
            isolation == READ_COMMITTED,
        )

    def positions(self, at: Bound) -> Positions:
        """Return the offset of each partition at a bound."""
        with connected(self.client) as core:
            finder = OffsetFinder(core, self.topics, read_committed=self.read_committed)
            return finder.resolved(at, finder.extents())

    def dataset(self, start: Bound, end: Bound) -> Dataset:
        """Return the records between two bounds, which are looked up now."""
        with connected(self.client) as core:
            finder = OffsetFinder(core, self.topics, read_committed=self.read_committed)
            extents = finder.sized(finder.extents())
            starts, ends = finder.resolved(start, extents), finder.resolved(end, extents)
        return self.between(starts, ends, extents)

    def between(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        extents: Mapping[TopicPartition, Extent],
    ) -> Dataset:
        """Return the records between offsets."""
        settings = self.settings
        parts = split(
            ranges_between(starts, ends, extents),
            records_max=settings.records_per_task,
            bytes_max=settings.bytes_per_task,
        )
        source = LogDatasource(parts, self.client, settings, read_committed=self.read_committed)
        found: Dataset = ray.data.read_datasource(source, override_num_blocks=max(1, len(parts)))
        return found


class LogDatasource(Datasource):
    """A datasource of offset ranges, with one task each. `TopicReader.dataset` creates one."""

    def __init__(
        self,
        parts: Sequence[OffsetRange],
        client: ClientSettings,
        settings: ReadSettings,
        *,
        read_committed: bool,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Ray's
        self._parts = parts
        self._read: Callable[..., Iterator[pa.Table]] = partial(
            read_range, client=client, settings=settings, read_committed=read_committed
        )

    def get_name(self) -> str:
        """Return the name of the tasks."""
        return "Raylog"

    def estimate_inmemory_data_size(self) -> int:
        """Return the stored bytes; the compression ratio is unknown."""
        return sum(part.size_bytes for part in self._parts)

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        """Return a task for each range. Tasks do not look up the end of the log again.

        An empty source has one task, because a dataset without tasks has no schema.
        """
        if not self._parts:
            nothing = BlockMetadata(0, 0, None, None)
            return [ReadTask(lambda: [SCHEMA.empty_table()], nothing, SCHEMA)]
        return [
            ReadTask(
                partial(self._read, part),
                BlockMetadata(None, part.size_bytes, None, None),
                SCHEMA,
                per_task_row_limit,
            )
            for part in self._parts
        ]


def read(
    bootstrap: str | Iterable[str],
    topics: str | Sequence[str],
    *,
    start: Bound = "earliest",
    end: Bound = "latest",
    isolation: str = READ_COMMITTED,
    settings: ReadSettings | None = None,
) -> Dataset:
    """Read the records between two bounds, which are looked up once, now.

    The columns are described in `raylog.ray_data.columns`. Raises OffsetsUnavailable for offsets
    outside of the log, and UnknownTopicOrPartition.
    """
    return TopicReader.of(bootstrap, topics, isolation, settings).dataset(start, end)


def positions(
    bootstrap: str | Iterable[str],
    topics: str | Sequence[str],
    at: Bound = "latest",
    *,
    isolation: str = READ_COMMITTED,
    settings: ReadSettings | None = None,
) -> Positions:
    """Return the offset of each partition at a bound, so that several reads begin or end there."""
    return TopicReader.of(bootstrap, topics, isolation, settings).positions(at)
