"""Carries out a plan of moves: a few at a time, with progress, until all replicas have arrived.

The brokers copy the data. Moves that have begun continue without this process; the others do not
begin.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from raylog.cli.failures import EXIT_INTERRUPTED, CommandFailed, last_line
from raylog.cli.output import counted, human_bytes, print_done
from raylog.cli.progress import Progress

if TYPE_CHECKING:
    from raylog.cli.reassignment import Plan
    from raylog.client import BlockingClient, PartitionReplicas, Reassignment, TopicPartition

PER_BROKER_MAX = 5
"""How many moves a broker may take part in at once."""
_POLL_S = 0.2
_TELL_S = 1.0
_POLLS_PER_LOOK = 10
"""Minimum pause between requests for sizes, as a multiple of the time that the last one took. With
10,000 partitions, such a request is slow."""
_ORDERED_MAX = 500
_ELECTED_MAX = 100
_NAMED_MAX = 3


@dataclass(slots=True)
class Moves:
    """A plan that is being carried out.

    Invariant: each partition of the plan is in `waiting`, `begun` or `failed`, or has arrived.
    """

    client: BlockingClient
    plan: Plan
    current: Mapping[TopicPartition, PartitionReplicas]
    sizes: Mapping[TopicPartition, int]
    under_way: Collection[TopicPartition] = ()
    """Partitions of the plan that are moving already."""
    waiting: list[TopicPartition] = field(init=False)
    """Partitions whose moves have not begun, the largest first."""
    begun: dict[TopicPartition, None] = field(default_factory=dict)
    failed: dict[TopicPartition, str] = field(default_factory=dict)
    copied: dict[TopicPartition, int] = field(default_factory=dict)
    """Bytes copied so far for partitions in `begun`, over all their new replicas."""
    began_s: float = field(default_factory=time.monotonic)
    next_look_s: float = 0.0

    def __post_init__(self) -> None:
        self.begun = dict.fromkeys(self.under_way)
        self.waiting = sorted(
            (key for key in self.plan if key not in self.begun),
            key=lambda key: (-self.cost(key), key),
        )

    def cost(self, key: TopicPartition) -> int:
        """Return the bytes to copy for one partition."""
        new = {*self.plan[key]} - {*self.current[key].replicas}
        return self.sizes.get(key, 0) * len(new)

    def run(self) -> None:
        """Carry out the plan. Raises CommandFailed if moves failed, or on Ctrl-C."""
        try:
            with Progress() as progress:
                reported_s = 0.0
                while self.waiting or self.begun:
                    self._step()
                    if time.monotonic() - reported_s >= _TELL_S:
                        progress.tell(self.describe())
                        reported_s = time.monotonic()
                    time.sleep(_POLL_S)
                progress.tell(self.describe())
                self._elect(progress)
        except KeyboardInterrupt:
            raise CommandFailed(
                f"interrupted: {counted(len(self.begun), 'partition')} still move, "
                f"{len(self.waiting):,} moves were not begun",
                "Show them with: raylog rebalance --status. Cancel them with: raylog rebalance "
                "--cancel. To continue, run the command again",
                EXIT_INTERRUPTED,
            ) from None
        if self.failed:
            named = [f"{key.topic}:{key.partition} ({why})" for key, why in self.failed.items()]
            more = "" if len(named) <= _NAMED_MAX else f" and {len(named) - _NAMED_MAX:,} more"
            raise CommandFailed(
                f"{counted(len(named), 'partition')} of {len(self.plan):,} did not move: "
                f"{', '.join(named[:_NAMED_MAX])}{more}",
                "Run the command again for a new plan",
            )

    def _step(self) -> None:
        moving = self.client.list_reassignments()
        self._look_for_arrivals(moving)
        chosen = self._next(moving)
        if chosen:
            outcomes = self.client.alter_reassignments({key: self.plan[key] for key in chosen})
            for key, failure in outcomes.items():
                if failure is None:
                    self.begun[key] = None
                else:
                    self.failed[key] = f"{failure.code.name}: {failure}".rstrip(": ")
            left = {*chosen}
            self.waiting = [key for key in self.waiting if key not in left]
        self._look_at_sizes(moving)

    def _next(self, moving: Mapping[TopicPartition, Reassignment]) -> list[TopicPartition]:
        """Choose moves to begin so that no broker takes part in more than PER_BROKER_MAX."""
        busy: Counter[int] = Counter()
        for key, move in moving.items():
            busy.update(move.adding)
            busy.update(self._sources(key, move.replicas))
        chosen: list[TopicPartition] = []
        for key in self.waiting:
            if key in moving or len(chosen) == _ORDERED_MAX:
                continue
            new = {*self.plan[key]} - {*self.current[key].replicas}
            parties = new | self._sources(key, self.current[key].replicas) if new else set()
            if all(busy[one] < PER_BROKER_MAX for one in parties):
                busy.update(parties)
                chosen.append(key)
        return chosen

    def _sources(self, key: TopicPartition, replicas: Iterable[int]) -> set[int]:
        """Return the broker to copy from: the leader or, if none is known, the first replica."""
        known = self.current.get(key)
        leader = -1 if known is None else known.leader
        return {leader} if leader >= 0 else {*list(replicas)[:1]}

    def _look_for_arrivals(self, moving: Mapping[TopicPartition, Reassignment]) -> None:
        """Remove partitions from `begun` whose moves have ended.

        Raises CommandFailed if another command cancelled or changed moves.
        """
        ended = [key for key in self.begun if key not in moving]
        if not ended:
            return
        known = self._known(ended)
        called_off = 0
        for key in ended:
            del self.begun[key]
            self.copied.pop(key, None)
            found = known.get(key)
            if found is None:
                self.failed[key] = "its topic was deleted"
            elif {*found.replicas} != {*self.plan[key]}:
                self.failed[key] = "cancelled"
                called_off += 1
        if called_off:
            raise CommandFailed(
                f"another command cancelled or changed {counted(called_off, 'move')}; "
                f"{len(self.waiting):,} more were not begun",
                "Show what moves with: raylog rebalance --status",
            )

    def _known(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionReplicas]:
        """Describe at least all partitions of the topics of `keys`, except deleted topics."""
        from raylog.wire.errors import UnknownTopicOrPartition

        topics = sorted({key.topic for key in keys})
        try:
            return self.client.describe_partitions(topics)
        except UnknownTopicOrPartition:  # a topic is deleted: describe all others
            return self.client.describe_partitions()

    def _look_at_sizes(self, moving: Mapping[TopicPartition, Reassignment]) -> None:
        """Update `copied`, unless it is too early to ask again."""
        from raylog.client import ClientError, TopicPartition
        from raylog.wire.errors import KafkaError

        adding = {broker for key in self.begun if key in moving for broker in moving[key].adding}
        if not adding or time.monotonic() < self.next_look_s:
            return
        began_s = time.monotonic()
        copied: Counter[TopicPartition] = Counter()
        try:
            for directory in self.client.describe_log_dirs(sorted(adding)):
                for one in directory.partitions:
                    key = TopicPartition(one.topic, one.partition)
                    if (
                        key in self.begun
                        and key in moving
                        and directory.broker_id in moving[key].adding
                    ):
                        copied[key] += min(one.size_bytes, self.sizes.get(key, 0))
        except (ClientError, KafkaError) as silent:  # keep waiting: the moves need that broker
            print_done(f"the sizes of the moving replicas are not known: {last_line(silent)}")
        else:
            self.copied = dict(copied)
        took_s = time.monotonic() - began_s
        self.next_look_s = time.monotonic() + max(_POLL_S, _POLLS_PER_LOOK * took_s)

    def describe(self) -> str:
        """Return the progress in one line."""
        total = sum(map(self.cost, self.plan))
        open_keys = [*self.waiting, *self.begun]
        left = sum(map(self.cost, open_keys)) - sum(self.copied.values())
        arrived = len(self.plan) - len(open_keys) - len(self.failed)
        line = (
            f"{arrived:,} of {len(self.plan):,} partitions moved, {human_bytes(total - left)} of "
            f"{human_bytes(total)} copied"
        )
        spent_s = time.monotonic() - self.began_s
        if left > 0 and total > left:
            line += f", about {_duration(spent_s * left / (total - left))} left"
        return line

    def _elect(self, progress: Progress) -> None:
        """Elect the preferred leaders, for at most 100 partitions at a time."""
        from raylog.wire.errors import ElectionNotNeeded

        known = self._known(self.plan)
        keys = [
            key
            for key in sorted(self.plan)
            if key in known and key not in self.failed and known[key].leader != self.plan[key][0]
        ]
        for first in range(0, len(keys), _ELECTED_MAX):
            progress.tell(f"electing preferred leaders: {first:,} of {len(keys):,}")
            outcomes = self.client.elect_leaders(keys[first : first + _ELECTED_MAX])
            for key, failure in outcomes.items():
                if failure is not None and not isinstance(failure, ElectionNotNeeded):
                    print_done(f"{key.topic}:{key.partition} keeps its leader: {failure}")


def _duration(seconds: float) -> str:
    """Format a duration, rounded to minutes unless it is shorter."""
    whole = max(1, round(seconds))
    minutes = round(whole / 60)
    if not minutes:
        return f"{whole} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
