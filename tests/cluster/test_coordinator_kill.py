"""The group coordinator is killed during rebalances: groups settle with all their commits.

A member that has finished a rebalance keeps its generation.
"""

from __future__ import annotations

import os
import random
import signal
import time

import pytest

from raylog.actors.names import GROUP
from raylog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.support.member_processes import CommitWatcher
from tests.support.member_threads import ClassicMember, ConsumerMember, Place, RawMember
from tests.support.ray_clusters import NewCluster, Note, RayCluster, create, slowness, wait_until
from tests.support.wire_client import WireClient

TIMES = 20
PARTITIONS = 12
TOPIC, NAME = "t", "g"
LASTING = 3
"""Members that stay; another comes and goes."""
SETTLES_S = 10.0
KILLED_WITHIN_S = 0.4
"""After a rebalance has begun, so long at most."""
KEEPS_S = 1.0
"""After a kill in quiet times, members are looked at for so long."""
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.consumer.heartbeat.interval.ms": "5000"}


class _Group:
    """Members of one kind on one cluster."""

    def __init__(self, cluster: RayCluster, kind: type[RawMember]) -> None:
        self.cluster, self.kind = cluster, kind
        self.members = [self._new(f"m{number}") for number in range(LASTING)]
        self._numbers = iter(range(LASTING, 1 << 20))

    def _new(self, name: str) -> RawMember:
        member = self.kind(name, self.cluster.bootstrap, NAME, TOPIC, PARTITIONS)
        member.start()
        return member

    def change(self) -> RawMember | None:
        """Begin a rebalance: a fourth member comes, or goes; returns one that goes."""
        if len(self.members) == LASTING:
            self.members.append(self._new(f"m{next(self._numbers)}"))
            return None
        return self.members.pop()

    def places(self, since: float = 0.0) -> list[Place] | None:
        """Where all are, if they share the partitions in one generation.

        Each has committed there since a time.
        """
        places = [one.place if one.confirmed_at >= since else None for one in list(self.members)]
        known = [place for place in places if place is not None]
        owned = sorted(p for place in known for p in place.partitions)
        generations = {place.generation for place in known}
        whole = len(known) == len(places) and len(generations) == 1
        return known if whole and owned == list(range(PARTITIONS)) else None

    def until_settled(self, seconds: float, since: float = 0.0) -> list[Place]:
        """Wait for that."""
        try:
            return wait_until(lambda: self.places(since), "the group to settle", seconds) or []
        except AssertionError as failure:
            failures = [(one.name, one.place, one.failures) for one in self.members]
            raise AssertionError(f"{failure}: {failures}") from None

    def committed(self) -> dict[int, int]:
        """What the coordinator has."""
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=NAME, topics=None)])
        with WireClient("127.0.0.1", self.cluster.ports[0]) as client:
            (found,) = client.ask(asked, 8).groups
        assert not found.error_code
        return {p.partition_index: p.committed_offset for t in found.topics for p in t.partitions}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", [ClassicMember, ConsumerMember])
def test_coordinator_killed_while_rebalancing(
    new_cluster: NewCluster, kind: type[RawMember], note: Note
) -> None:
    cluster = new_cluster(settings=SETTINGS)
    cluster.start()
    create(cluster.bootstrap, TOPIC, PARTITIONS)
    chance, slow = random.Random(kind.__name__), slowness()
    group = _Group(cluster, kind)
    group.until_settled(SETTLES_S * slow)
    watcher = CommitWatcher(cluster.bootstrap, NAME).start()
    took = []
    for number in range(TIMES):
        leaver = group.change()
        if leaver is not None:
            leaver.leave()
        time.sleep(chance.random() * KILLED_WITHIN_S)
        killed = cluster.kill(GROUP)
        cluster.until_succeeded(GROUP, killed)  # the delay grows: it ends again and again
        began = time.monotonic()
        before = group.until_settled(SETTLES_S * slow, began)
        took.append(time.monotonic() - began)
        assert cluster.pid(GROUP) != killed
        _check_commits(group)
        if number % 4 == 3:
            _kill_in_quiet_times(cluster, group, before)
    for member in group.members:
        member.leave()
    watcher.finish()
    note("settled_s", max(took))
    note("slowness", slow)
    assert watcher.regressions == []
    assert [one.failures for one in group.members] == [[]] * len(group.members)


def _check_commits(group: _Group) -> None:
    """Everything acknowledged is there; it may have been followed by more."""
    acknowledged: dict[int, int] = {}
    for member in group.members:
        for partition, offset in dict(member.committed).items():
            acknowledged[partition] = max(offset, acknowledged.get(partition, 0))
    kept = group.committed()
    assert all(kept.get(p, -1) >= offset for p, offset in acknowledged.items()), (
        acknowledged,
        kept,
    )


def _kill_in_quiet_times(cluster: RayCluster, group: _Group, before: list[Place]) -> None:
    """Nobody has to join again, and all go on committing in their generation."""
    os.kill(killed := cluster.pid(GROUP), signal.SIGKILL)
    cluster.until_succeeded(GROUP, killed)
    counts = [max(member.committed.values()) for member in group.members]
    deadline = time.monotonic() + KEEPS_S
    while time.monotonic() < deadline:
        assert group.places() == before, "members of a finished rebalance keep their generation"
        time.sleep(0.02)
    wait_until(
        lambda: all(
            max(m.committed.values()) > count
            for m, count in zip(group.members, counts, strict=True)
        ),
        "commits to go on",
    )
