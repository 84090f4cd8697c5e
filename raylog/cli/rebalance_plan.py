"""Plans that even out bytes, replicas and leaders over brokers. Nothing here talks to a cluster.

What a plan is after, the first before the next:

1. replicas of a partition stand in different racks, where there are enough;
2. bytes a broker are within 10 % of the mean, as far as the sizes of partitions allow;
3. replicas a broker are within 10 % of the mean, or one if that is more;
4. preferred leaders a broker differ by one at most, where replicas allow;
5. little is copied: nothing moves that is good enough where it is.

Each step makes one of these better and none of the earlier ones worse, and whether there is a step
depends on the present layout alone. So planning ends, and a plan for what a plan led to is empty.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from raylog.cli.failures import CommandFailed
from raylog.cli.leader_plan import even_leaders
from raylog.cli.reassignment import Plan
from raylog.client import TopicPartition

_TOLERANCE = 10
"""Bytes and replicas of a broker may be off the mean by one part of this many."""
_SLACK_BYTES = 64 * 1024
"""Bytes that do not matter: no broker is far from the mean by less."""
_SWAP_PARTNERS = 8
"""Brokers that one broker tries to swap replicas with: the fullest, or the emptiest."""
_TRIED_MAX = 40
"""Partitions looked at, from one broker to another: a rack or a replica there may forbid each."""
_LAST = 1 << 62
"""Above each index of a partition."""

Racks = Mapping[int, str | None]
_Step = Callable[[int], bool]
"""Something that may bring one broker nearer to a band; whether it did."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What a plan is made of."""

    replicas: Mapping[TopicPartition, Sequence[int]]
    """Broker ids, the preferred leader first, as they will be once all present moves are over."""
    sizes: Mapping[TopicPartition, int]
    """Bytes of one replica; 0 where it is missing."""
    racks: Racks
    """Of all brokers that are known. None: no rack, which is like one of its own."""
    brokers: Collection[int]
    """To be evened out. Others keep what they have, and get nothing."""
    fixed: Collection[TopicPartition] = ()
    """Partitions that stay as they are, and count as load."""


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """What one broker holds."""

    broker: int
    replicas: int
    leaders: int
    """Partitions that prefer it as leader."""
    size_bytes: int


def rebalanced(layout: Layout, moves_max: int | None = None) -> Plan:
    """The partitions to change, with their new replicas; empty where all is even.

    `moves_max` bounds the partitions of which something is copied.
    """
    work = _Work(layout, moves_max)
    while work.mend_racks() | work.even_bytes() | work.even_counts():
        continue
    even_leaders(work.replicas, work.movable, {*layout.brokers})
    return work.changes()


def emptied(layout: Layout, leaving: int) -> Plan:
    """The moves that take all replicas from one broker to `layout.brokers`, and no others.

    Raises CommandFailed where a partition has no broker left to go to.
    """
    work = _Work(layout, None)
    work.empty(leaving)
    return work.changes()


def loads_of(
    replicas: Mapping[TopicPartition, Sequence[int]],
    sizes: Mapping[TopicPartition, int],
    brokers: Iterable[int],
) -> list[BrokerLoad]:
    """What brokers hold, each with its share of 0 included, in the order of their ids."""
    held: Counter[int] = Counter()
    led: Counter[int] = Counter()
    stored: Counter[int] = Counter()
    for key, found in replicas.items():
        led.update(found[:1])
        held.update(found)
        size = sizes.get(key, 0)
        for broker in found:
            stored[broker] += size
    return [BrokerLoad(one, held[one], led[one], stored[one]) for one in sorted({*brokers, *held})]


@dataclass(frozen=True, slots=True)
class _Band:
    """Loads that are good enough, both ends inclusive."""

    low: int
    high: int

    def off(self, load: int) -> int:
        """How far a load is outside."""
        return max(self.low - load, load - self.high, 0)


@dataclass(slots=True)
class _Work:
    """A layout while a plan changes it. Partitions are numbers, in the order of their keys.

    Invariant: `on[b]` has the replicas of movable partitions on b, by size, then number.
    """

    layout: Layout
    moves_max: int | None
    keys: list[TopicPartition] = field(init=False)
    replicas: list[list[int]] = field(init=False)
    sizes: list[int] = field(init=False)
    movable: list[bool] = field(init=False)
    stored: dict[int, int] = field(init=False)
    held: dict[int, int] = field(init=False)
    on: dict[int, list[tuple[int, int]]] = field(init=False)
    moved: set[int] = field(default_factory=set)
    """Partitions that have replicas where they had none at first."""
    stored_in_all: int = field(init=False)
    """Of the brokers that are evened out."""
    held_in_all: int = field(init=False)
    loads: dict[int, int] = field(init=False)
    """A broker's bytes and replicas together, both as parts of what all have."""
    in_rack: dict[str | None, list[int]] = field(init=False)
    bytes_band: _Band = field(init=False)
    count_band: _Band = field(init=False)

    def __post_init__(self) -> None:
        layout = self.layout
        fixed = {*layout.fixed}
        self.keys = sorted(layout.replicas)
        self.replicas = [list(layout.replicas[key]) for key in self.keys]
        self.sizes = [layout.sizes.get(key, 0) for key in self.keys]
        self.movable = [key not in fixed for key in self.keys]
        brokers = sorted(layout.brokers)
        self.stored = dict.fromkeys(brokers, 0)
        self.held = dict.fromkeys(brokers, 0)
        self.on = {broker: [] for broker in brokers}
        for index, replicas in enumerate(self.replicas):
            for broker in replicas:
                if broker in self.on:
                    self.held[broker] += 1
                    self.stored[broker] += self.sizes[index]
                    if self.movable[index]:
                        self.on[broker].append((self.sizes[index], index))
        for found in self.on.values():
            found.sort()
        self.stored_in_all = sum(self.stored.values())
        self.held_in_all = sum(self.held.values())
        self.loads = dict.fromkeys(brokers, 0)
        self.in_rack = {}
        for broker in brokers:
            self._weigh(broker)
            self.in_rack.setdefault(layout.racks.get(broker), []).append(broker)
        self.bytes_band = _bytes_band(self.stored_in_all, len(brokers))
        self.count_band = _count_band(self.held_in_all, len(brokers))

    def changes(self) -> Plan:
        """The partitions that are not as they were."""
        return {
            key: tuple(new)
            for key, new in zip(self.keys, self.replicas, strict=True)
            if tuple(self.layout.replicas[key]) != tuple(new)
        }

    # -- one move ------------------------------------------------------------------------------

    def _weigh(self, broker: int) -> None:
        held, stored = self.held[broker], self.stored[broker]
        self.loads[broker] = stored * self.held_in_all + held * self.stored_in_all

    def _move(self, index: int, source: int, target: int) -> None:
        """Put a replica elsewhere; it keeps its rank."""
        replicas = self.replicas[index]
        replicas[replicas.index(source)] = target
        entry = (self.sizes[index], index)
        if source in self.on:
            found = self.on[source]
            del found[bisect_left(found, entry)]
            self.held[source] -= 1
            self.stored[source] -= self.sizes[index]
            self._weigh(source)
        self.held[target] += 1
        self.stored[target] += self.sizes[index]
        insort(self.on[target], entry)
        self._weigh(target)
        if {*replicas} <= {*self.layout.replicas[self.keys[index]]}:
            self.moved.discard(index)
        else:
            self.moved.add(index)

    def _emptiest(self, index: int, source: int) -> int | None:
        """Where a replica can go: fewest in that rack first, then the least loaded."""
        racks = self.layout.racks
        replicas = self.replicas[index]
        taken = Counter(racks.get(one) for one in replicas if one != source)
        taken[None] = 0
        for fewest in sorted({taken[rack] for rack in self.in_rack}):
            free = [
                (self.loads[one], one)
                for rack, brokers in self.in_rack.items()
                if taken[rack] == fewest
                for one in brokers
                if one not in replicas
            ]
            if free:
                return min(free)[1]
        return None

    def _neighbours(self, index: int, rack: str | None, without: int) -> int:
        """How many replicas of a partition, but for one broker's, stand in a rack."""
        if rack is None:
            return 0
        racks = self.layout.racks
        return sum(racks.get(one) == rack for one in self.replicas[index] if one != without)

    def _crowding(self, index: int, source: int, target: int) -> int:
        """What a move does to a partition's pairs of replicas in one rack: fewer if negative."""
        racks = self.layout.racks
        return self._neighbours(index, racks.get(target), source) - self._neighbours(
            index, racks.get(source), source
        )

    def _may_move(self, index: int, source: int, target: int) -> bool:
        if target in self.replicas[index] or not self._has_budget(index):
            return False
        racks = self.layout.racks
        here, there = racks.get(source), racks.get(target)
        return there is None or here == there or self._crowding(index, source, target) <= 0

    def _has_budget(self, *indexes: int) -> bool:
        more = sum(index not in self.moved for index in indexes)
        return self.moves_max is None or len(self.moved) + more <= self.moves_max

    # -- racks ---------------------------------------------------------------------------------

    def mend_racks(self) -> bool:
        """Bring replicas that share a rack apart; whether anything was done."""
        mended = [self._spread(index) for index, may in enumerate(self.movable) if may]
        return any(mended)

    def _spread(self, index: int) -> bool:
        """Spread one partition over racks, for as long as that leaves fewer of them shared."""
        done = False
        while self._has_budget(index):
            replicas = self.replicas[index]
            named = [self.layout.racks.get(one) for one in replicas]
            shared = Counter(named)
            shared[None] = 0
            crowded = [
                one
                for one, rack in zip(replicas, named, strict=True)
                if one in self.on and shared[rack] > 1
            ]
            if not crowded:
                return done
            source = max(
                crowded, key=lambda one: (shared[self.layout.racks[one]], self.loads[one], one)
            )
            target = self._emptiest(index, source)
            if target is None or self._crowding(index, source, target) >= 0:
                return done
            self._move(index, source, target)
            done = True
        return done

    # -- bytes ---------------------------------------------------------------------------------

    def even_bytes(self) -> bool:
        """Bring brokers into the band of bytes; whether anything was done."""
        return self._until_stuck(self.stored, self.bytes_band, self._bytes_step)

    def _until_stuck(self, loads: dict[int, int], band: _Band, step: _Step) -> bool:
        """Take steps for the broker that is farthest off, until there is none for any broker."""
        done = False
        stuck: set[int] = set()
        fresh = True
        while True:
            off = [one for one in loads if one not in stuck and band.off(loads[one])]
            if off:
                worst = max(off, key=lambda one: (band.off(loads[one]), -one))
                if step(worst):
                    done, fresh = True, False
                else:
                    stuck.add(worst)
            elif fresh or not stuck:
                return done
            else:  # something has moved since: those that were stuck may not be any more
                stuck.clear()
                fresh = True

    def _pairs(self, broker: int, loads: dict[int, int], band: _Band) -> list[tuple[int, int]]:
        """From where to where a replica may go for a broker's sake, the most hopeful first."""
        over = loads[broker] > band.high
        others = sorted((one for one in loads if one != broker), key=lambda n: (loads[n], n))
        if over:
            return [(broker, one) for one in others if loads[one] < loads[broker]]
        return [(one, broker) for one in reversed(others) if loads[one] > loads[broker]]

    def _bytes_step(self, broker: int) -> bool:
        pairs = self._pairs(broker, self.stored, self.bytes_band)
        for source, target in pairs:
            index = self._fitting(source, target)
            if index is not None:
                self._move(index, source, target)
                return True
        for source, target in pairs[:_SWAP_PARTNERS]:
            swap = self._fitting_swap(source, target)
            if swap is not None:
                self._move(swap[0], source, target)
                self._move(swap[1], target, source)
                return True
        return False

    def _wanted(self, source: int, target: int) -> int:
        """How much to move so that neither goes past the middle of the band."""
        middle = (self.bytes_band.low + self.bytes_band.high) // 2
        return max(0, min(self.stored[source] - middle, middle - self.stored[target]))

    def _gain(self, source: int, target: int, size: int) -> int:
        """How much nearer to the band two brokers are once a size has gone from one to the other.

        Of all sizes those with a gain are one range, for each distance is convex.
        """
        off = self.bytes_band.off
        here, there = self.stored[source], self.stored[target]
        return off(here) + off(there) - off(here - size) - off(there + size)

    def _fitting(self, source: int, target: int) -> int | None:
        """A partition whose move brings both nearer to the band: the largest that goes not too far.

        Else the smallest that goes too far, and still makes it better.
        """
        found = self.on[source]
        start = bisect_right(found, (self._wanted(source, target), _LAST))
        for at in range(start - 1, max(start - 1 - _TRIED_MAX, -1), -1):
            size, index = found[at]
            if self._gain(source, target, size) <= 0:
                break
            if self._may_move(index, source, target):
                return index
        for at in range(start, min(start + _TRIED_MAX, len(found))):
            size, index = found[at]
            if self._gain(source, target, size) <= 0:
                break
            if self._may_move(index, source, target):
                return index
        return None

    def _fitting_swap(self, source: int, target: int) -> tuple[int, int] | None:
        """Two partitions to swap: the difference fits best, then as little as can be is copied."""
        wanted = self._wanted(source, target)
        theirs = self.on[target]
        best: tuple[tuple[int, int], int, int] | None = None
        for size, index in self.on[source]:
            at = bisect_left(theirs, (size - wanted, -1))
            if at == len(theirs):
                continue
            other_size, other = theirs[at]
            more = size - other_size
            rank = (-more, size + other_size)
            if (
                more > 0
                and (best is None or rank < best[0])
                and self._gain(source, target, more) > 0
                and self._may_move(index, source, target)
                and self._may_move(other, target, source)
                and self._has_budget(index, other)
            ):
                best = (rank, index, other)
        return None if best is None else best[1:]

    # -- counts --------------------------------------------------------------------------------

    def even_counts(self) -> bool:
        """Bring brokers into the band of replicas; whether anything was done."""
        return self._until_stuck(self.held, self.count_band, self._count_step)

    def _count_step(self, broker: int) -> bool:
        band = self.count_band
        for source, target in self._pairs(broker, self.held, band):
            if self.held[source] <= band.low or self.held[target] >= band.high:
                return False  # so are all others that come after
            for size, index in self.on[source][:_TRIED_MAX]:  # the smallest: little is copied
                if self._gain(source, target, size) < 0:
                    break
                if self._may_move(index, source, target):
                    self._move(index, source, target)
                    return True
        return False

    # -- emptying ------------------------------------------------------------------------------

    def empty(self, leaving: int) -> None:
        """Move all replicas of a broker, the largest first, to where the least is."""
        there = [index for index, found in enumerate(self.replicas) if leaving in found]
        for index in sorted(there, key=lambda one: (-self.sizes[one], one)):
            target = self._emptiest(index, leaving)
            if target is None:
                count = len(self.replicas[index])
                raise CommandFailed(
                    f"{self.keys[index].topic}:{self.keys[index].partition} has {count} "
                    f"replicas, but without broker {leaving} there are only {len(self.on)} live "
                    "brokers",
                    "Start another broker first, or reduce the replicas: raylog topics reassign "
                    f"-t {self.keys[index].topic} -r {count - 1} --execute",
                )
            self._move(index, leaving, target)


def _bytes_band(total: int, brokers: int) -> _Band:
    mean = total // max(1, brokers)
    off = max(mean // _TOLERANCE, _SLACK_BYTES)
    return _Band(mean - off, mean + off)


def _count_band(total: int, brokers: int) -> _Band:
    floor, rest = divmod(total, max(1, brokers))
    return _Band(floor - floor // _TOLERANCE, floor + max(bool(rest), floor // _TOLERANCE))
