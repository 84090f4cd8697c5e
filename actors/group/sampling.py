"""Samples a group coordinator's groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from raylog.actors.coordination.rules.step import Counted
from raylog.actors.group.hosting import ShardHost
from raylog.actors.group.rules.consumer.group import ConsumerGroup
from raylog.actors.metrics.families import coordinators as families
from raylog.actors.metrics.samples import Samples
from raylog.actors.runtime.base import Runtime

TURN = 1_000
"""Groups handled in one turn of the event loop."""


async def sample_groups(runtime: Runtime, shards: Iterable[ShardHost], samples: Samples) -> None:
    """Sample the numbers of groups and members."""
    states: Counter[tuple[str, str]] = Counter()
    members: Counter[str] = Counter()
    looked_at = 0
    for host in shards:
        if not host.is_active:
            continue
        shard = host.shard
        for group_id in shard.group_ids():
            looked_at += 1
            if looked_at % TURN == 0:
                await runtime.sleep(0)
            group = shard.groups.get(group_id)
            if group is None:
                states["classic", "Empty"] += 1
            elif isinstance(group, ConsumerGroup):
                states["consumer", group.state_name()] += 1
                members["consumer"] += len(group.state.profiles)
            else:
                states["classic", group.state_name()] += 1
                members["classic"] += group.weight()
    for (kind, state), count in states.items():
        samples.add(families.GROUPS, count, kind, state)
    for kind in ("classic", "consumer"):
        samples.add(families.MEMBERS, members[kind], kind)


def sample_rebalances(counted: Counter[Counted], leavings: int, samples: Samples) -> None:
    """Sample the groups' rebalances."""
    samples.add(families.REBALANCES, counted[Counted.REBALANCE])
    samples.add(families.LEAVINGS, leavings)
