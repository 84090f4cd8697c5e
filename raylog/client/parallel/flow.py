"""Back-pressure: which partitions are paused because enough of them is held."""

from __future__ import annotations

from raylog.client.parallel.effects import Effect, Pause, Resume, WindowSettings
from raylog.client.parallel.partitions import Partition


class Flow:
    """Counts what is fetched and not finished. Each partition has an equal share of the buffer.

    A partition is paused from its share on, and goes on at half of it; so one that is stuck takes
    no other's room. One whose next record is not due yet is paused until it is.
    """

    def __init__(self, settings: WindowSettings, effects: list[Effect]) -> None:
        self.records = 0
        self.bytes = 0
        self._settings = settings
        self._effects = effects
        self._share_records = settings.buffer_records
        self._share_bytes = settings.buffer_bytes

    def shares(self, partitions: int) -> None:
        """Divide the buffer among so many partitions."""
        self._share_records = max(1, self._settings.buffer_records // max(1, partitions))
        self._share_bytes = max(1, self._settings.buffer_bytes // max(1, partitions))

    def add(self, partition: Partition, size: int) -> None:
        """Count a record in."""
        partition.records += 1
        partition.bytes += size
        self.records += 1
        self.bytes += size

    def remove(self, partition: Partition, size: int) -> None:
        """Count a record out; nothing if the partition was forgotten meanwhile."""
        if partition.records:
            partition.records -= 1
            partition.bytes -= size
            self.records -= 1
            self.bytes -= size

    def forget(self, partition: Partition) -> None:
        """Count out all of a partition."""
        self.records -= partition.records
        self.bytes -= partition.bytes
        partition.records = partition.bytes = 0
        partition.lanes.clear()

    def balance(self, partition: Partition) -> None:
        """Pause or resume a partition as what is held of it says."""
        if partition.progress is None:
            return
        judge = self._stays_paused if partition.is_paused else self._is_full
        wanted = judge(partition)
        if wanted != partition.is_paused:
            partition.is_paused = wanted
            keys = (partition.key,)
            self._effects.append(Pause(keys) if wanted else Resume(keys))

    def _is_full(self, partition: Partition) -> bool:
        return (
            partition.waits_until_ms is not None
            or partition.records >= self._share_records
            or partition.bytes >= self._share_bytes
        )

    def _stays_paused(self, partition: Partition) -> bool:
        return (
            partition.waits_until_ms is not None
            or 2 * partition.records > self._share_records
            or 2 * partition.bytes > self._share_bytes
        )
