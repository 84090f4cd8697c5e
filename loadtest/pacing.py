"""When requests are due: by the rate alone, whatever the answers take."""

from __future__ import annotations

_US_PER_S = 1_000_000


class Pace:
    """An open loop: requests at a rate that a factor changes, spread evenly.

    A request that is due while its user is held up keeps its intended time.
    """

    def __init__(self, rate: float, now_us: int, phase: float = 0.0) -> None:
        """`rate` per s at factor 1; `phase`, from 0 to 1, is how much of the first is over."""
        self._rate = rate
        self._seen_us = now_us
        self._part = phase

    def due(self, now_us: int, factor: float, at_most: int) -> list[int]:
        """The intended times of requests that are due and were not handed out yet, oldest first.

        Those beyond `at_most` come with the next call.
        """
        per_us = self._rate * factor / _US_PER_S
        passed_us = now_us - self._seen_us
        if passed_us <= 0:
            return []
        if per_us <= 0:
            self._seen_us = now_us
            return []
        whole = self._part + passed_us * per_us
        count = int(whole)
        if count > at_most:
            count = at_most
            times = self._times(count, per_us)
            self._seen_us, self._part = times[-1], 0.0
            return times
        times = self._times(count, per_us)
        self._seen_us, self._part = now_us, whole - count
        return times

    def _times(self, count: int, per_us: float) -> list[int]:
        seen_us, part = self._seen_us, self._part
        return [seen_us + int((number - part) / per_us) for number in range(1, count + 1)]

    def overdue(self, now_us: int, factor: float) -> int:
        """How many are due that were not handed out."""
        return int(self._part + max(0, now_us - self._seen_us) * self._rate * factor / _US_PER_S)

    def next_us(self, factor: float) -> int | None:
        """When the next one is due; None if none will be at this factor."""
        per_us = self._rate * factor / _US_PER_S
        if per_us <= 0:
            return None
        return self._seen_us + int((1 - self._part) / per_us) + 1
