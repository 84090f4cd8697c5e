"""Plans of moves: which brokers should hold each partition. Nothing here talks to a cluster.

A plan maps partitions to broker ids, the preferred leader first. Files have the format of Kafka's
kafka-reassign-partitions.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from raylog.cli.failures import EXIT_USAGE, CommandFailed
from raylog.client import PartitionReplicas, Reassignment, TopicPartition

Plan = dict[TopicPartition, tuple[int, ...]]


@dataclass(slots=True)
class _Loads:
    """How many replicas and leaders each broker would have, while a plan is made."""

    racks: Mapping[int, str | None]
    """Racks of the brokers that may hold replicas."""
    held: Counter[int] = field(default_factory=Counter)
    led: Counter[int] = field(default_factory=Counter)

    def next_broker(self, taken: Sequence[int]) -> int:
        """Return the least loaded broker in a rack with the fewest brokers of `taken`."""
        racks = [self.racks.get(broker) for broker in taken]

        def cost(broker: int) -> tuple[int, int, int]:
            rack = self.racks[broker]
            return (0 if rack is None else racks.count(rack)), self.held[broker], broker

        return min((broker for broker in self.racks if broker not in taken), key=cost)

    def racks_allow(self, replicas: Sequence[int], source: int, target: int) -> bool:
        """Whether no more replicas share a rack after a move from `source` to `target`."""
        others = [self.racks.get(broker) for broker in replicas if broker != source]
        rack = self.racks[target]
        return rack is None or others.count(rack) <= others.count(self.racks[source])


def arrived(
    current: Mapping[TopicPartition, PartitionReplicas],
    moving: Mapping[TopicPartition, Reassignment],
) -> dict[TopicPartition, PartitionReplicas]:
    """Return partitions as they will be after their moves, so that plans count no replica twice."""
    return {
        key: replace(one, replicas=[n for n in one.replicas if n not in moving[key].removing])
        if key in moving
        else one
        for key, one in current.items()
    }


def plan_moves(
    current: Mapping[TopicPartition, PartitionReplicas],
    racks: Mapping[int, str | None],
    replication_factor: int | None = None,
) -> Plan:
    """Spread partitions evenly over brokers, moving as little as that allows.

    `racks` has the brokers to use, with their racks. Each broker gets its share of replicas and of
    preferred leaders; replicas of a partition go to different racks if there are enough. Without
    `replication_factor`, each partition keeps its number of replicas. Raises CommandFailed.
    """
    counts = {key: replication_factor or len(one.replicas) for key, one in current.items()}
    most = max(counts.values(), default=0)
    if most > len(racks):
        raise CommandFailed(
            f"{most} replicas need {most} brokers, found {len(racks)}",
            "Give more brokers with --brokers, or fewer replicas with --replication-factor",
            EXIT_USAGE,
        )
    loads = _Loads(racks)
    share = -(-sum(counts.values()) // len(racks)) if racks else 0
    plan = {key: _kept(current[key].replicas, counts[key], share, loads) for key in sorted(current)}
    for key, replicas in plan.items():
        while len(replicas) < counts[key]:
            replicas.append(loads.next_broker(replicas))
            loads.held[replicas[-1]] += 1
    _level(plan, current, loads)
    return {key: _led_in_turn(replicas, loads) for key, replicas in plan.items()}


def _kept(replicas: Sequence[int], count: int, share: int, loads: _Loads) -> list[int]:
    """Return the replicas that stay where they are, and count them in `loads`."""
    kept: list[int] = []
    for broker in replicas:
        if len(kept) < count and broker in loads.racks and loads.held[broker] < share:
            kept.append(broker)
            loads.held[broker] += 1
    return kept


def _level(
    plan: dict[TopicPartition, list[int]],
    current: Mapping[TopicPartition, PartitionReplicas],
    loads: _Loads,
) -> None:
    """Move replicas from fuller to emptier brokers until they differ by at most 1, if racks allow.

    Kept replicas may have left no choice for others: the less loaded brokers may already have had a
    replica of the partition.
    """
    on: dict[int, dict[TopicPartition, None]] = {broker: {} for broker in loads.racks}
    for key, replicas in plan.items():
        for broker in replicas:
            on[broker][key] = None
    while (found := _next_level(plan, current, loads, on)) is not None:
        key, source, target = found
        plan[key][plan[key].index(source)] = target
        on[target][key] = on[source].pop(key)
        loads.held[source] -= 1
        loads.held[target] += 1


def _next_level(
    plan: Mapping[TopicPartition, list[int]],
    current: Mapping[TopicPartition, PartitionReplicas],
    loads: _Loads,
    on: Mapping[int, Iterable[TopicPartition]],
) -> tuple[TopicPartition, int, int] | None:
    """Return a replica to move, its source and its target; preferably a new replica. Or None."""
    by_load = sorted(on, key=lambda broker: (loads.held[broker], broker))
    for source in reversed(by_load):
        for target in by_load:
            if loads.held[source] - loads.held[target] <= 1:
                break
            free = [
                key
                for key in on[source]
                if target not in plan[key] and loads.racks_allow(plan[key], source, target)
            ]
            if free:
                kept = [source in current[key].replicas for key in free]
                return free[kept.index(min(kept))], source, target
    return None


def _led_in_turn(replicas: Sequence[int], loads: _Loads) -> tuple[int, ...]:
    """Return the replicas, starting with the broker that leads the fewest partitions so far."""
    leader = min(replicas, key=lambda broker: (loads.led[broker], replicas.index(broker)))
    loads.led[leader] += 1
    return (leader, *(broker for broker in replicas if broker != leader))


def moves_of(plan: Plan, current: Mapping[TopicPartition, PartitionReplicas]) -> Plan:
    """Return the part of a plan that changes something."""
    return {
        key: replicas for key, replicas in plan.items() if tuple(current[key].replicas) != replicas
    }


@dataclass(frozen=True, slots=True)
class ThrottledMoves:
    """The replicas and brokers that take part in copying, in the form of the settings."""

    leading: dict[str, str]
    """Topic to the replicas that are copied from, as partition:broker pairs."""
    following: dict[str, str]
    """Topic to the replicas that are copied to, as partition:broker pairs."""
    brokers: list[int]
    """All brokers with a replica of either kind."""


def throttled_replicas(
    plan: Plan,
    current: Mapping[TopicPartition, PartitionReplicas],
    adding: Mapping[TopicPartition, Sequence[int]],
) -> ThrottledMoves:
    """Return the replicas that a plan copies from and to; `adding` are those already being copied.

    Partitions without copying are left out.
    """
    leading: dict[str, list[str]] = {}
    following: dict[str, list[str]] = {}
    brokers: set[int] = set()
    for key, wanted in sorted(plan.items()):
        made = {*adding.get(key, ())}
        sources = [broker for broker in current[key].replicas if broker not in made]
        targets = [broker for broker in wanted if broker not in sources]
        if targets:
            brokers.update(sources, targets)
            pairs = leading.setdefault(key.topic, [])
            pairs += [f"{key.partition}:{broker}" for broker in sources]
            pairs = following.setdefault(key.topic, [])
            pairs += [f"{key.partition}:{broker}" for broker in targets]
    return ThrottledMoves(
        {topic: ",".join(pairs) for topic, pairs in leading.items()},
        {topic: ",".join(pairs) for topic, pairs in following.items()},
        sorted(brokers),
    )


def read_plan(path: Path) -> Plan:
    """Read a plan from a file in Kafka's JSON format; raises CommandFailed."""
    try:
        found = json.loads(path.read_text())
        entries = found["partitions"]
        plan = {
            TopicPartition(str(one["topic"]), int(one["partition"])): tuple(
                map(int, one["replicas"])
            )
            for one in entries
        }
    except (ValueError, KeyError, TypeError) as failure:
        raise CommandFailed(
            f"{path} is not a plan: {failure!r}",
            'Expected {"version": 1, "partitions": [{"topic": "t", "partition": 0, '
            '"replicas": [1, 2]}]}',
            EXIT_USAGE,
        ) from None
    if len(plan) != len(entries):
        raise CommandFailed(f"{path} names a partition twice", exit_code=EXIT_USAGE)
    if not plan:
        raise CommandFailed(f"{path} names no partition", exit_code=EXIT_USAGE)
    return plan


def plan_document(plan: Mapping[TopicPartition, Sequence[int]]) -> dict[str, object]:
    """Return a plan in Kafka's JSON format."""
    return {
        "version": 1,
        "partitions": [
            {"topic": key.topic, "partition": key.partition, "replicas": list(replicas)}
            for key, replicas in sorted(plan.items())
        ],
    }
