"""Looks up the bounds of partitions once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from raylog.client.admin.topics import TopicAdmin
from raylog.client.cluster import TopicPartition
from raylog.client.core import Core
from raylog.client.errors import NotSupported
from raylog.client.io import run_blocking
from raylog.client.offsets import EARLIEST, LATEST, list_offsets
from raylog.ray_data.planning import BadBound, Bound, Extent, Positions, resolve
from raylog.wire.errors import ClusterAuthorizationFailed


class OffsetFinder:
    """The bounds of all partitions of some topics, at one isolation level."""

    def __init__(self, core: Core, topics: Sequence[str], *, read_committed: bool) -> None:
        self._core = core
        self._topics = topics
        self._read_committed = read_committed

    def extents(self) -> dict[TopicPartition, Extent]:
        """Return each partition's bounds, without sizes. Raises UnknownTopicOrPartition."""
        keys = run_blocking(self._core.partitions_of(self._topics))
        earliest = self._at(keys, EARLIEST)
        latest = self._at(keys, LATEST)
        return {key: Extent(earliest[key], latest[key]) for key in keys}

    def sized(self, extents: dict[TopicPartition, Extent]) -> dict[TopicPartition, Extent]:
        """Return the same bounds with sizes; 0 if they are unknown or not authorized."""
        stored = run_blocking(self._stored_bytes())
        return {
            key: replace(extent, size_bytes=stored.get(key, 0)) for key, extent in extents.items()
        }

    def resolved(self, bound: Bound, extents: dict[TopicPartition, Extent]) -> Positions:
        """Return the offsets of a bound. Raises OffsetsUnavailable or BadBound."""
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
        """Return the bytes of each partition's largest replica; empty if unavailable."""
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
