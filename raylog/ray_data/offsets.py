"""Where partitions begin and end, asked of the brokers once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

from raylog.client.admin.topics import TopicAdmin
from raylog.client.cluster import TopicPartition
from raylog.client.core import Core
from raylog.client.errors import NotSupported
from raylog.client.io import run_blocking
from raylog.client.offsets import EARLIEST, LATEST, list_offsets
from raylog.client.settings import ClientSettings
from raylog.client.sockets import BlockingIo
from raylog.ray_data.planning import BadBound, Bound, Extent, Positions, resolve
from raylog.wire.errors import ClusterAuthorizationFailed


@contextmanager
def connected(settings: ClientSettings) -> Iterator[Core]:
    """Connections of the driver or of one task."""
    io = BlockingIo()
    core = Core(io, settings)
    try:
        yield core
    finally:
        core.close()
        io.close()


class OffsetFinder:
    """Bounds of all partitions of some topics, as one reader sees them."""

    def __init__(self, core: Core, topics: Sequence[str], *, read_committed: bool) -> None:
        self._core = core
        self._topics = topics
        self._read_committed = read_committed

    def extents(self) -> dict[TopicPartition, Extent]:
        """What each partition holds, sizes left out; raises UnknownTopicOrPartition."""
        keys = run_blocking(self._core.partitions_of(self._topics))
        earliest = self._at(keys, EARLIEST)
        latest = self._at(keys, LATEST)
        return {key: Extent(earliest[key], latest[key]) for key in keys}

    def sized(self, extents: dict[TopicPartition, Extent]) -> dict[TopicPartition, Extent]:
        """The same with sizes; 0 where nobody may know."""
        stored = run_blocking(self._stored_bytes())
        return {
            key: replace(extent, size_bytes=stored.get(key, 0)) for key, extent in extents.items()
        }

    def resolved(self, bound: Bound, extents: dict[TopicPartition, Extent]) -> Positions:
        """The offset that a bound stands for; raises OffsetsUnavailable, BadBound."""
        if not isinstance(bound, datetime):
            return resolve(bound, extents, {})
        if bound.tzinfo is None:
            raise BadBound(f"expected a time with a time zone, found {bound}")
        found = self._at(extents, int(bound.timestamp() * 1000))
        return resolve(bound, extents, {key: at for key, at in found.items() if at >= 0})

    def _at(self, keys: Collection[TopicPartition], when: int) -> Positions:
        wanted = dict.fromkeys(keys, when)
        found = run_blocking(list_offsets(self._core, wanted, read_committed=self._read_committed))
        return {key: one.offset for key, one in found.items()}

    async def _stored_bytes(self) -> Positions:
        """Bytes of each partition's largest replica; empty if we may not ask or nobody can tell."""
        sizes: Positions = {}
        try:
            directories = await TopicAdmin(self._core).describe_log_dirs()
        except (ClusterAuthorizationFailed, NotSupported):
            return sizes
        for directory in directories:
            for one in directory.partitions:
                key = TopicPartition(one.topic, one.partition)
                sizes[key] = max(one.size_bytes, sizes.get(key, 0))
        return sizes
