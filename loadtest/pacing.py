"""When requests are due: by the rate alone, whatever the answers take."""

from __future__ import annotations

_US_PER_S = 1_000_000


class Load:
    """Which share of their rates users make, from which time on (µs of the run's clock).

    Nothing is due before the first change.
    """

    __slots__ = ("changes",)

    def __init__(self) -> None:
        self.changes: list[tuple[int, float]] = []
        """(from when, factor), in order."""

    def change(self, at_us: int, factor: float) -> None:
        """From a time on, all rates are multiplied by `factor`; 0 pauses them."""
        if self.changes:
            at_us = max(at_us, self.changes[-1][0])
        self.changes.append((at_us, factor))


class Pace:
    """An open loop: requests at a rate that a load changes, spread evenly.

    A request that is due while its user is held up keeps its intended time: that of the factor
    which held then.
    """

    __slots__ = ("_changes", "_part", "_place", "_rate", "_seen_us")

    def __init__(self, rate: float, load: Load, phase: float = 0.0) -> None:
        """`rate` per s at factor 1; `phase`, from 0 to 1, is how much of the first is over."""
        self._rate = rate
        self._changes = load.changes
        self._place = 0
        """The change that held at `_seen_us`."""
        self._seen_us = 0
        self._part = phase

    def due(self, now_us: int, at_most: int) -> list[int]:
        """The intended times of requests that are due and were not handed out yet, oldest first.

        Those beyond `at_most` come with the next call.
        """
        changes = self._changes
        times: list[int] = []
        while self._place < len(changes):
            from_us, factor = changes[self._place]
            is_over = self._place + 1 < len(changes) and changes[self._place + 1][0] <= now_us
            to_us = changes[self._place + 1][0] if is_over else now_us
            self._seen_us = max(self._seen_us, from_us)
            times += self._walk(to_us, factor, at_most - len(times))
            if not is_over or self._seen_us < to_us:
                break
            self._place += 1
        return times

    def _walk(self, to_us: int, factor: float, at_most: int) -> list[int]:
        """Those up to a time at one factor."""
        passed_us = to_us - self._seen_us
        if passed_us <= 0:
            return []
        per_us = self._rate * factor / _US_PER_S
        whole = self._part + passed_us * per_us
        count = int(whole)
        if count > at_most:
            times = self._times(at_most, per_us)
            if times:
                self._seen_us, self._part = times[-1], 0.0
            return times
        times = self._times(count, per_us)
        self._seen_us, self._part = to_us, whole - count
        return times

    def _times(self, count: int, per_us: float) -> list[int]:
        seen_us, part = self._seen_us, self._part
        return [seen_us + int((number - part) / per_us) for number in range(1, count + 1)]

    def next_us(self) -> int | None:
        """When the next one is due, as far as the load is known; None if none will be."""
        place, part, seen_us = self._place, self._part, self._seen_us
        while place < len(self._changes):
            from_us, factor = self._changes[place]
            seen_us, per_us = max(seen_us, from_us), self._rate * factor / _US_PER_S
            place += 1
            due_us = seen_us + int((1 - part) / per_us) + 1 if per_us > 0 else None
            if place == len(self._changes):
                return due_us
            ends_us = max(seen_us, self._changes[place][0])
            if due_us is not None and due_us <= ends_us:
                return due_us
            part, seen_us = part + (ends_us - seen_us) * per_us, ends_us
        return None
