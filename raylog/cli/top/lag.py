"""Estimates how a group's lag develops, from its rates over a window."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from raylog.client.cluster import TopicPartition

WINDOW_MS = 60_000.0
SURE_MS = 20_000.0
"""A lag counts as growing only if it was observed for this long and amounts to more than this:
consumers commit every 5 s by default."""
_SAMPLES_MIN = 3
_SHARE = 0.95
"""A group that reads less than this share of the records written falls behind."""


@dataclass(frozen=True, slots=True)
class LagTrend:
    """A group's lag in records, and its trend."""

    lag: int
    written_per_s: float | None = None
    """Records written to its partitions; None if not known yet."""
    read_per_s: float | None = None
    """Records that it has committed."""
    grows: bool = False

    @property
    def growth_per_s(self) -> float | None:
        """Growth of the lag; negative if it shrinks."""
        if self.written_per_s is None or self.read_per_s is None:
            return None
        return self.written_per_s - self.read_per_s

    @property
    def behind_s(self) -> float | None:
        """Age of the next record, estimated from the write rate; None if nothing is written."""
        return self.lag / self.written_per_s if self.written_per_s else None

    @property
    def caught_up_s(self) -> float | None:
        """Time until the lag is gone at these rates; None if it does not shrink."""
        growth = self.growth_per_s
        return self.lag / -growth if self.lag and growth is not None and growth < 0 else None


@dataclass(frozen=True, slots=True)
class _Sample:
    at_ms: float
    end: int
    committed: int


class GroupLag:
    """Samples of one group over the last minute.

    Sums over different partitions cannot be compared: if the partitions change, or a sum decreases,
    the earlier samples are dropped.
    """

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()
        self._partitions: set[TopicPartition] = set()

    def add(self, at_ms: float, partitions: set[TopicPartition], end: int, committed: int) -> None:
        """Add the sums of high watermarks and committed offsets over some partitions."""
        last = self._samples[-1] if self._samples else None
        if last is not None and (
            partitions != self._partitions or end < last.end or committed < last.committed
        ):
            self._samples.clear()
        self._partitions = partitions
        self._samples.append(_Sample(at_ms, end, committed))
        while len(self._samples) > 2 and self._samples[1].at_ms <= at_ms - WINDOW_MS:
            self._samples.popleft()

    def trend(self) -> LagTrend | None:
        """Return the trend of the lag; None before the first sample."""
        if not self._samples:
            return None
        first, last = self._samples[0], self._samples[-1]
        lag = max(0, last.end - last.committed)
        past_ms = last.at_ms - first.at_ms
        if past_ms <= 0:
            return LagTrend(lag)
        written = (last.end - first.end) * 1_000 / past_ms
        read = (last.committed - first.committed) * 1_000 / past_ms
        sure = past_ms >= SURE_MS and len(self._samples) >= _SAMPLES_MIN
        behind_ms = lag * 1_000 / written if written else 0.0
        grows = sure and read < written * _SHARE and behind_ms > SURE_MS and self._rises()
        return LagTrend(lag, written, read, grows)

    def _rises(self) -> bool:
        """Whether the lowest lag of the second half is above the lowest of the first half."""
        lags = [one.end - one.committed for one in self._samples]
        middle = len(lags) // 2
        return min(lags[middle:]) > min(lags[:middle])
