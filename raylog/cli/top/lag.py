"""How a group's lag develops: rates over a window, and an estimate of what comes next."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

WINDOW_MS = 60_000.0
SURE_MS = 20_000.0
"""Growth over less time is not believed: consumers commit every 5 s by default."""
_SAMPLES_MIN = 3
_SHARE = 0.95
"""A group that reads less than this part of what is written falls behind."""


@dataclass(frozen=True, slots=True)
class LagTrend:
    """A group's lag in records, and where it goes."""

    lag: int
    written_per_s: float | None = None
    """Records written to its partitions; None: not known yet."""
    read_per_s: float | None = None
    """Records that it has committed."""
    grows: bool = False

    @property
    def growth_per_s(self) -> float | None:
        """By how much the lag grows; negative: it shrinks."""
        if self.written_per_s is None or self.read_per_s is None:
            return None
        return self.written_per_s - self.read_per_s

    @property
    def behind_s(self) -> float | None:
        """How old the next record is, at the rate of writing; None: nothing is written."""
        return self.lag / self.written_per_s if self.written_per_s else None

    @property
    def caught_up_s(self) -> float | None:
        """When the lag will be gone at these rates; None: it does not shrink."""
        growth = self.growth_per_s
        return self.lag / -growth if self.lag and growth is not None and growth < 0 else None


@dataclass(frozen=True, slots=True)
class _Sample:
    at_ms: float
    end: int
    committed: int


class GroupLag:
    """Samples of one group over the last minute.

    Sums over other partitions than before cannot be compared: when a group begins or ends with
    some, its samples start anew.
    """

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()
        self._partitions = 0

    def add(self, at_ms: float, partitions: int, end: int, committed: int) -> None:
        """Take the sums of high watermarks and committed offsets over the group's partitions."""
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
        """Where the lag goes; None before the first sample."""
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
        """Whether the lag is nowhere lower in the second half than it was in all of the first."""
        lags = [one.end - one.committed for one in self._samples]
        middle = len(lags) // 2
        return min(lags[middle:]) > min(lags[:middle])
