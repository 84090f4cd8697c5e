"""The asyncio consumer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from raylog.client.arrow import TABLE_BYTES, require_arrow
from raylog.client.cluster import TopicPartition
from raylog.client.consumer.fetched import ConsumedRecords
from raylog.client.consumer.fetcher import Fetcher
from raylog.client.consumer.membership import GroupMetadata

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # it has no types

POLL_RECORDS_MAX = 10_000


class AsyncConsumer:
    """Reads assigned partitions. For one task."""

    def __init__(self, consumer: Fetcher) -> None:
        self._consumer = consumer

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """Read these partitions only, each from an offset, EARLIEST or LATEST."""
        self._consumer.assign(starts)

    def seek(self, key: TopicPartition, offset: int) -> None:
        """Go on from an offset, EARLIEST or LATEST."""
        self._consumer.seek(key, offset)

    async def seek_to_timestamp(self, keys: Iterable[TopicPartition], timestamp_ms: int) -> None:
        """Go on from the first record not older than a time; from the end if there is none."""
        await self._consumer.seek_to_timestamp(keys, timestamp_ms)

    def assignment(self) -> list[TopicPartition]:
        """The partitions being read."""
        return self._consumer.assignment()

    async def position(self, key: TopicPartition) -> int:
        """Offset of the next record."""
        return await self._consumer.position(key)

    def group_metadata(self) -> GroupMetadata:
        """For whom a transactional producer commits offsets; raises InvalidSetting."""
        return self._consumer.group_metadata()

    async def poll(
        self, timeout_ms: float = 1_000, max_records: int = POLL_RECORDS_MAX
    ) -> list[ConsumedRecords]:
        """Records that are here, or the first that come within a time; maybe none."""
        return await self._consumer.poll(timeout_ms, max_records)

    async def poll_table(
        self,
        timeout_ms: float = 1_000,
        max_records: int | None = None,
        max_bytes: int = TABLE_BYTES,
    ) -> pa.Table:
        """The same as a table, of `raylog.client.arrow.tables.SCHEMA`; maybe without rows.

        Batches come whole, so the limits may be exceeded by less than one. Needs raylog[arrow].
        """
        require_arrow()
        from raylog.client.arrow.tables import poll_table

        return await poll_table(
            self._consumer, timeout_ms, max_records=max_records, max_bytes=max_bytes
        )

    async def close(self) -> None:
        """End the consumer's connections."""
        self._consumer.close()
