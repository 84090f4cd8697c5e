"""1,000 members and 10,000 partitions are divided in time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from raylog.assignors.api import Assignor, Member, Topic
from raylog.assignors.cooperative_sticky import CooperativeStickyAssignor
from raylog.assignors.range import RangeAssignor
from raylog.assignors.roundrobin import RoundRobinAssignor
from raylog.assignors.sticky import StickyAssignor
from raylog.assignors.uniform import UniformAssignor
from tests.support.assigning import having

SECONDS = {
    RangeAssignor: 1,
    RoundRobinAssignor: 1,
    UniformAssignor: 1,
    StickyAssignor: 5,
    CooperativeStickyAssignor: 5,
}
TOPICS = {f"t{index:02}": Topic(f"t{index:02}", 100) for index in range(100)}


def alike() -> list[Member]:
    """All subscribe to everything."""
    return [Member(f"m{index:04}", frozenset(TOPICS)) for index in range(1_000)]


def different() -> list[Member]:
    """Each subscribes to a random half."""
    chance = random.Random(1)
    return [
        Member(f"m{index:04}", frozenset(chance.sample(sorted(TOPICS), 50)))
        for index in range(1_000)
    ]


@pytest.mark.parametrize("group", [alike, different])
@pytest.mark.parametrize("assignor", SECONDS)
def test_a_large_group_is_divided_in_time(
    assignor: type[Assignor], group: Callable[[], list[Member]]
) -> None:
    """CPU time, so that a busy machine does not fail it; fresh, then after 100 members left."""
    members = group()
    started = time.process_time()
    fresh = assignor().assign(members, TOPICS)
    assert time.process_time() - started <= SECONDS[assignor]
    left = having(members[100:], fresh)
    started = time.process_time()
    after = assignor().assign(left, TOPICS)
    assert time.process_time() - started <= SECONDS[assignor]
    for found in (fresh, after):
        assert sum(len(p) for each in found.values() for p in each.partitions.values()) == 10_000
