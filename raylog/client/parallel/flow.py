"""Back-pressure: pauses partitions with too many unfinished records."""

from __future__ import annotations

from raylog.client.parallel.effects import Effect, Pause, Resume, WindowSettings
from raylog.client.parallel.partitions import Partition


class Flow:
    """Counts records fetched but not finished. Each partition gets an equal share of the buffer.

    A partition is paused when it fills its share, and resumed at half of it, so a stuck partition
    takes no room from others. A partition whose next record is not due yet is paused until then.
    """

    def __init__(self, settings: WindowSettings, effects: list[Effect]) -> None:
        self.records = 0
        self.bytes = 0
        self._settings = settings
        self._effects = effects
        self._share_records = settings.buffer_records
        self._share_bytes = settings.buffer_bytes

    def shares(self, partitions: int) -> None:
        """Divide the buffer among this many partitions."""
        self._share_records = max(1, self._settings.buffer_records // max(1, partitions))
        self._share_bytes = max(1, self._settings.buffer_bytes // max(1, partitions))

    def add(self, partition: Partition, size: int) -> None:
        """Add a record to the counts."""
        partition.records += 1
        partition.bytes += size
        self.records += 1
        self.bytes += size

    def remove(self, partition: Partition, size: int) -> None:
        """Subtract a record from the counts, unless the partition was forgotten meanwhile."""
        if partition.records:
            partition.records -= 1
            partition.bytes -= size
            self.records -= 1
            self.bytes -= size

    def forget(self, partition: Partition) -> None:
        """Subtract all records of a partition."""
        self.records -= partition.records
        self.bytes -= partition.bytes
        partition.records = partition.bytes = 0
        partition.lanes.clear()

    def balance(self, partition: Partition) -> None:
        """Pause or resume a partition according to its counts."""
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
