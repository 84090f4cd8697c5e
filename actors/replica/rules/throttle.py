"""Replication quotas (KIP-73): when throttled partitions may be copied, and when they wait.

A topic lists its throttled replicas (`leader.` and `follower.replication.throttled.replicas`). A
broker sets the rates in bytes per second at which these send as leaders and receive as followers. A
broker has a `Throttle` for each side in each of its replica processes; the active ones share the
rate.

The rate is kept as a clock, not as Kafka's samples: copied bytes take time at the rate, and nothing
more is copied until that time has come. This takes constant time, and tells when to check again. It
allows what Kafka's samples do: after idle time the bytes of one window
(`replication.quota.window.size.seconds`) at once, and the answer that exceeds the rate is sent
whole. The wait is at most all windows together (`replication.quota.window.num`), so that something
is copied at any rate, even 0.

| event        | effects                                                                        |
|--------------|--------------------------------------------------------------------------------|
| RateChanged  | Release of all held back, which try again                                      |
| ShareChanged | none: the rate is divided by a new number of processes                         |
| Moved        | none: the time that it takes at the rate is added                              |
| HeldBack     | WakeAfter, unless one is pending                                               |
| Woken        | Release of a few, the longest waiting first; WakeAfter while others are held   |

Held-back partitions are released a few at a time, so that a wake-up has a constant cost.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import assert_never

UNLIMITED = 2**63 - 1
"""Default of Kafka's keys: no limit."""
EVERY_REPLICA = "*"
RELEASED_AT_ONCE = 10
_DIGITS_MAX = 10
STEP_MS = 5
"""Delay between releases while nothing is owed."""


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """The throttled replicas of a topic, for one side."""

    pairs: frozenset[tuple[int, int]] = frozenset()
    """(partition, broker id)."""
    every: bool = False

    def covers(self, partition: int, broker_id: int) -> bool:
        """Whether a broker's replica of a partition is throttled."""
        return self.every or (partition, broker_id) in self.pairs


NONE_THROTTLED = ThrottledReplicas()


@lru_cache(maxsize=256)
def throttled_replicas(text: str) -> ThrottledReplicas:
    """Parse a topic's list: `partition:broker,...`, or `*` for every replica."""
    items = [item.strip() for item in text.split(",")]
    if EVERY_REPLICA in items:
        return ThrottledReplicas(every=True)
    pairs = [item.split(":") for item in items if item]
    return ThrottledReplicas(
        frozenset(
            (int(one), int(broker))
            for one, broker in pairs
            if max(len(one), len(broker)) <= _DIGITS_MAX  # as in Kafka, longer ids match no broker
        )
    )


@dataclass(frozen=True, slots=True)
class RateChanged:
    """Event: the broker's rate (bytes per second) or the topics' lists have changed."""

    rate: int
    now_ms: float


@dataclass(frozen=True, slots=True)
class ShareChanged:
    """Event: this number of the broker's processes share the rate."""

    processes: int
    now_ms: float


@dataclass(frozen=True, slots=True)
class Moved:
    """Event: a throttled replica's bytes were sent or received."""

    who: Hashable
    bytes: int
    now_ms: float


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Event: a partition or fetcher has to wait."""

    who: Hashable
    now_ms: float


@dataclass(frozen=True, slots=True)
class Woken:
    """Event: the time of a WakeAfter has come."""

    now_ms: float


@dataclass(frozen=True, slots=True)
class WakeAfter:
    """Effect: send Woken after this time; replaces an earlier WakeAfter."""

    delay_ms: float


@dataclass(frozen=True, slots=True)
class Release:
    """Effect: let these try again; those over the limit are held back once more."""

    who: tuple[Hashable, ...]


Event = RateChanged | ShareChanged | Moved | HeldBack | Woken
Effect = WakeAfter | Release


@dataclass(slots=True)
class Throttle:
    """One side of one process, leading or following.

    Invariant: while anything is held back, a WakeAfter is pending.
    """

    window_ms: int = 1_000
    windows: int = 11
    rate: int = UNLIMITED
    """Bytes per second of the whole broker."""
    _processes: int = field(default=1, init=False)
    _paid_until_ms: float = field(default=float("-inf"), init=False)
    """When everything copied so far is paid for at the rate."""
    _held: dict[Hashable, None] = field(default_factory=dict, init=False)
    _is_wake_due: bool = field(default=False, init=False)
    _asked: dict[Hashable, float] = field(default_factory=dict, init=False)
    """Who was allowed to ask for records that have not arrived yet, and when."""

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit at all."""
        return self.rate < UNLIMITED

    def is_over(self, now_ms: float, unsent: int = 0) -> bool:
        """Whether more was copied than the rate allows so far, with `unsent` more bytes."""
        return self.is_limited and self._paid_after(unsent, now_ms) > now_ms

    def lets_ask(self, who: Hashable, now_ms: float) -> bool:
        """Whether `who` may ask for records, whose size is unknown until they arrive.

        Within one window only a few may ask without having had their answer, so that not all
        waiting ones are answered at once.
        """
        if self.is_over(now_ms):
            return False
        for one, asked_ms in tuple(self._asked.items()):
            if now_ms - asked_ms < self.window_ms:
                break
            del self._asked[one]
        if who not in self._asked and len(self._asked) >= RELEASED_AT_ONCE:
            return False
        self._asked.pop(who, None)
        self._asked[who] = now_ms
        return True

    def handle(self, event: Event) -> list[Effect]:
        """Apply an event."""
        match event:
            case RateChanged(rate, now_ms):
                self._rescale(rate, self._processes, now_ms)
                self._is_wake_due = False
                return self._released(len(self._held))
            case ShareChanged(processes, now_ms):
                self._rescale(self.rate, max(1, processes), now_ms)
                return []
            case Moved(who, count, now_ms):
                self._asked.pop(who, None)
                self._pay(count, now_ms)
                return []
            case HeldBack(who, now_ms):
                self._held[who] = None
                return [] if self._is_wake_due else [self._wake(now_ms)]
            case Woken(now_ms):
                return self._woken(now_ms)
            case _:
                assert_never(event)

    def _woken(self, now_ms: float) -> list[Effect]:
        self._is_wake_due = False
        effects = [] if self.is_over(now_ms) else self._released(RELEASED_AT_ONCE)
        if self._held:
            effects.append(self._wake(now_ms))
        return effects

    def _wake(self, now_ms: float) -> WakeAfter:
        self._is_wake_due = True
        return WakeAfter(max(self._paid_until_ms - now_ms, STEP_MS))

    def _released(self, count: int) -> list[Effect]:
        released = tuple(islice(self._held, count))
        for one in released:
            del self._held[one]
        return [Release(released)] if released else []

    def _pay(self, count: int, now_ms: float) -> None:
        if self.is_limited:
            self._paid_until_ms = self._paid_after(count, now_ms)

    def _paid_after(self, count: int, now_ms: float) -> float:
        """When everything copied so far and `count` more bytes are paid for."""
        if not count:
            return self._paid_until_ms
        latest_ms = now_ms + self.windows * self.window_ms
        if self.rate == 0:
            return latest_ms
        cost_ms = 1_000 * count * self._processes / self.rate
        begin_ms = max(self._paid_until_ms, now_ms - self.window_ms)
        return min(begin_ms + cost_ms, latest_ms)

    def _rescale(self, rate: int, processes: int, now_ms: float) -> None:
        """Scale the time still owed to the new rate."""
        owed_ms = self._paid_until_ms - now_ms
        if owed_ms > 0 and (rate, processes) != (self.rate, self._processes):
            before = self.rate / self._processes
            slower = before * processes / rate if rate else float(self.windows)
            latest_ms = float(self.windows * self.window_ms)
            self._paid_until_ms = now_ms + min(owed_ms * slower, latest_ms)
        self.rate, self._processes = rate, processes
