"""Plans that balance bytes, replicas and leaders over brokers. Nothing here talks to a cluster.

The goals of a plan, the most important first:

1. Replicas of a partition are in different racks, if there are enough.
2. Each broker's bytes are within 10 % of the mean, as far as the sizes of partitions allow.
3. Each broker's replicas are within 10 % of the mean, or within 1 if that is more.
4. Brokers differ by at most one preferred leader, if the replicas allow it.
5. Little is copied: a replica that is good enough where it is does not move.

Each step improves one goal and worsens no earlier one, and whether there is a step depends only on
the current layout. So planning ends, and planning again after a complete plan changes nothing.
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
"""A broker's bytes and replicas may differ from the mean by the mean divided by this."""
_SLACK_BYTES = 64 * 1024
"""A smaller difference from the mean in bytes does not matter."""
_SWAP_PARTNERS = 8
"""How many brokers one broker tries to swap replicas with: the fullest, or the emptiest."""
_TRIED_MAX = 40
"""Partitions tried per pair of brokers: a rack or a replica on the target may rule out each."""
_LAST = 1 << 62
"""Greater than any partition index."""

Racks = Mapping[int, str | None]
_Step = Callable[[int], bool]
"""Tries to bring one broker nearer to a band; returns whether it did."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The input of a plan."""

    replicas: Mapping[TopicPartition, Sequence[int]]
    """Broker ids, the preferred leader first, as they will be after all current moves."""
    sizes: Mapping[TopicPartition, int]
    """Bytes of one replica; 0 if missing."""
    racks: Racks
    """Racks of all known brokers. A broker without a rack (None) shares no rack with others."""
    brokers: Collection[int]
    """The brokers to balance. Others keep their replicas and get no new ones."""
    fixed: Collection[TopicPartition] = ()
    """Partitions that do not move, but count as load."""


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """The load of one broker."""

    broker: int
    replicas: int
    leaders: int
    """Partitions whose preferred leader it is."""
    size_bytes: int


def rebalanced(layout: Layout, moves_max: int | None = None) -> Plan:
    """Return the partitions to change, with their new replicas; empty if all is balanced.

    `moves_max` limits the number of partitions that are copied.
    """
    work = _Work(layout, moves_max)
    while work.mend_racks() | work.even_bytes() | work.even_counts():
        continue
    even_leaders(work.replicas, work.movable, {*layout.brokers})
    return work.changes()


def emptied(layout: Layout, leaving: int) -> Plan:
    """Return the moves of all replicas from one broker to `layout.brokers`, and no others.

    Raises CommandFailed if there is no broker left for a partition.
    """
    work = _Work(layout, None)
    work.empty(leaving)
    return work.changes()


def loads_of(
    replicas: Mapping[TopicPartition, Sequence[int]],
    sizes: Mapping[TopicPartition, int],
    brokers: Iterable[int],
) -> list[BrokerLoad]:
    """Return the loads of `brokers` and of all brokers with replicas, in order of their ids."""
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
    """The range of loads that are good enough, both ends inclusive."""

    low: int
    high: int

    def off(self, load: int) -> int:
        """Return how far a load is outside the band."""
        return max(self.low - load, load - self.high, 0)


@dataclass(slots=True)
class _Work:
    """A layout while a plan changes it. Partitions are indexes, in the order of their keys.

    Invariant: `on[b]` has the replicas of movable partitions on b, by size, then index.
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
    """Partitions with a replica on a broker that had none at first."""
    stored_in_all: int = field(init=False)
    """Total of the brokers to balance."""
    held_in_all: int = field(init=False)
    loads: dict[int, int] = field(init=False)
    """A broker's share of all bytes plus its share of all replicas, scaled to an integer."""
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
        """Return the partitions whose replicas have changed."""
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
        """Move a replica; it keeps its position in the list."""
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
        """Return the target for a replica, or None: fewest in the rack first, then least loaded."""
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
        """Count a partition's replicas in a rack, except the one on broker `without`."""
        if rack is None:
            return 0
        racks = self.layout.racks
        return sum(racks.get(one) == rack for one in self.replicas[index] if one != without)

    def _crowding(self, index: int, source: int, target: int) -> int:
        """Return by how much a move changes the number of replica pairs that share a rack."""
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
        """Move replicas that share a rack to other racks; return whether anything changed."""
        mended = [self._spread(index) for index, may in enumerate(self.movable) if may]
        return any(mended)

    def _spread(self, index: int) -> bool:
        """Spread one partition over racks while that helps; return whether anything changed."""
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
        """Bring brokers into the band of bytes; return whether anything changed."""
        return self._until_stuck(self.stored, self.bytes_band, self._bytes_step)

    def _until_stuck(self, loads: dict[int, int], band: _Band, step: _Step) -> bool:
        """Take steps for the broker farthest off until no step is left; return whether any was."""
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
            else:  # something has moved since, so stuck brokers may have a step now
                stuck.clear()
                fresh = True

    def _pairs(self, broker: int, loads: dict[int, int], band: _Band) -> list[tuple[int, int]]:
        """Return sources and targets of moves that may help a broker, the most promising first."""
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
        """Return how much to move so that neither passes the middle of the band."""
        middle = (self.bytes_band.low + self.bytes_band.high) // 2
        return max(0, min(self.stored[source] - middle, middle - self.stored[target]))

    def _gain(self, source: int, target: int, size: int) -> int:
        """Return how much nearer to the band two brokers get, in total, if `size` bytes move.

        Sizes with a gain form a single range, because each distance is convex.
        """
        off = self.bytes_band.off
        here, there = self.stored[source], self.stored[target]
        return off(here) + off(there) - off(here - size) - off(there + size)

    def _fitting(self, source: int, target: int) -> int | None:
        """Return a partition whose move has a gain: the largest of at most `_wanted` bytes.

        Otherwise the smallest above that which still has a gain, or None.
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
        """Return two partitions to swap, or None: the best difference, then the fewest bytes."""
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
        """Bring brokers into the band of replicas; return whether anything changed."""
        return self._until_stuck(self.held, self.count_band, self._count_step)

    def _count_step(self, broker: int) -> bool:
        band = self.count_band
        for source, target in self._pairs(broker, self.held, band):
            if self.held[source] <= band.low or self.held[target] >= band.high:
                return False  # the same is true of all later pairs
            for size, index in self.on[source][:_TRIED_MAX]:  # the smallest first, to copy little
                if self._gain(source, target, size) < 0:
                    break
                if self._may_move(index, source, target):
                    self._move(index, source, target)
                    return True
        return False

    # -- emptying ------------------------------------------------------------------------------

    def empty(self, leaving: int) -> None:
        """Move all replicas of a broker, the largest first, to where `_emptiest` puts them."""
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
