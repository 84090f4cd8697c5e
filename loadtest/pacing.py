"""When requests are due. It depends on the rate alone, not on how long answers take."""

from __future__ import annotations

_US_PER_S = 1_000_000


class Load:
    """The factor of all users' rates over time (µs of the run's clock).

    Nothing is due before the first change.
    """

    __slots__ = ("changes",)

    def __init__(self) -> None:
        self.changes: list[tuple[int, float]] = []
        """(start, factor), in order."""

    def change(self, at_us: int, factor: float) -> None:
        """Multiply all rates by `factor` from a time on; 0 pauses them."""
        if self.changes:
            at_us = max(at_us, self.changes[-1][0])
        self.changes.append((at_us, factor))


class Pace:
    """An open loop: evenly spread requests at a rate that a load changes.

    A request that is due while its user is delayed keeps its intended time, at the factor of that
    time.
    """

    __slots__ = ("_changes", "_part", "_place", "_rate", "_seen_us")

    def __init__(self, rate: float, load: Load, phase: float = 0.0) -> None:
        """`rate` per second at factor 1.

        `phase`, 0 to 1, is the elapsed part of the first request.
        """
        self._rate = rate
        self._changes = load.changes
        self._place = 0
        """Index of the change in force at `_seen_us`."""
        self._seen_us = 0
        self._part = phase

    def due(self, now_us: int, at_most: int) -> list[int]:
        """The intended times of due requests that were not returned before, oldest first.

        Requests beyond `at_most` are returned by the next call.
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
        """The intended times up to a time at one factor."""
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
        """When the next request is due at the current load; None if none will be."""
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
