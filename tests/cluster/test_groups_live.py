"""Consumer groups as used in practice: real clients in processes that come, go, die and sleep.

RAYLOG_CONFORMANCE_BOOTSTRAP names another cluster to test, such as an Apache Kafka.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.conformance.tools import java_tools
from tests.support.load import Writer
from tests.support.member_processes import (
    CommitWatcher,
    Member,
    overlaps,
    start_member,
    unread,
    until_all_owned,
)
from tests.support.ray_clusters import NewCluster, Note, create, slowness, wait_until

EXTERNAL = os.environ.get("RAYLOG_CONFORMANCE_BOOTSTRAP", "")
PARTITIONS = 12
SESSION_MS = 6_000
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
}
JOINS_S = 5.0
"""A new member has work so soon after it subscribed."""
MOVES_S = SESSION_MS / 1000 + 3.0
"""Partitions of a killed member are owned by others so soon."""
SETTLES_S = 30.0
PACE_S = 0.02
"""Between two records of a partition: slow enough that reading never lags."""
ALL_READ_S = 30.0

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def bootstrap(request: pytest.FixtureRequest) -> str:
    """A cluster of one broker."""
    if EXTERNAL:
        return EXTERNAL
    new_cluster: NewCluster = request.getfixturevalue("new_cluster")
    cluster = new_cluster(settings=SETTINGS)
    cluster.start()
    return cluster.bootstrap


class Group:
    """A group on a topic that is written to all the time."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.topic = f"groups-{uuid.uuid4().hex[:8]}"
        self.name = f"of-{self.topic}"
        create(bootstrap, self.topic, PARTITIONS)
        self.members: list[Member] = []
        self.watcher = CommitWatcher(bootstrap, self.name).start()
        self.slow = slowness()

    def start(self, kind: str) -> Member:
        """Start another member."""
        name = f"{kind}-{len(self.members)}"
        member = start_member(kind, name, self.bootstrap, self.topic, self.name, SESSION_MS)
        self.members.append(member)
        return member

    def awake(self) -> list[Member]:
        """Members that run."""
        return [
            one
            for one in self.members
            if one.is_running() and not (one.asleep and one.asleep[-1][1] == float("inf"))
        ]

    def settle(self, timeout_s: float = SETTLES_S) -> float:
        """Wait until those awake share all partitions; returns when the last was given."""
        return until_all_owned(self.awake(), PARTITIONS, timeout_s * self.slow)

    def check(self, writer: Writer) -> None:
        """What must hold of everything that has happened."""
        writer.finish()
        ends = {p: max(offsets) + 1 for p, offsets in writer.acknowledged.items()}
        wait_until(
            lambda: not unread(self.members, ends), "all records to be processed", ALL_READ_S
        )
        wait_until(
            lambda: self.watcher.committed.items() >= ends.items(), "the last commits", ALL_READ_S
        )
        self.watcher.finish()
        assert self.watcher.looks > 10
        assert self.watcher.regressions == []
        assert overlaps(self.members) == []

    def end(self) -> None:
        """End all members."""
        self.watcher.finish()
        for member in self.members:
            member.end()


@pytest.fixture
def new_group(bootstrap: str) -> Iterator[Callable[[], Group]]:
    """Makes a group; its members are ended with the test."""
    made: list[Group] = []

    def new() -> Group:
        made.append(Group(bootstrap))
        return made[-1]

    yield new
    for group in made:
        group.end()


@pytest.mark.parametrize(
    "kind",
    ["confluent", "confluent-cooperative", "confluent-consumer", "kafka-python", "aiokafka"],
)
def test_members_come_and_go(new_group: Callable[[], Group], kind: str, note: Note) -> None:
    group = new_group()
    with Writer(group.bootstrap, group.topic, PARTITIONS, pause_s=PACE_S) as writer:
        first = group.start(kind)
        group.settle()
        joined_s = 0.0
        for _ in range(2):
            new = group.start(kind)
            group.settle()
            worked_at = new.first_work_at()
            assert worked_at is not None
            joined_s = max(joined_s, worked_at - new.subscribed_at())
        killed_at = group.members[1].kill()
        moved_s = group.settle() - killed_at
        left_at = first.leave()
        left_s = group.settle() - left_at
        group.start(kind)
        group.settle()

        sleeper = group.members[2]
        sleeper.stand_still()
        slept_at = time.monotonic()
        slept_s = group.settle() - slept_at
        woke_at = sleeper.go_on()
        group.settle()
        writer.until_acknowledged(20)
        group.check(writer)
    for what, value in (
        ("joined_s", joined_s),
        ("moved_s", moved_s),
        ("left_s", left_s),
        ("slept_s", slept_s),
        ("woken_s", time.monotonic() - woke_at),
        ("slowness", group.slow),
    ):
        note(what, value)
    assert joined_s < JOINS_S * group.slow
    assert max(moved_s, slept_s) < MOVES_S * group.slow


@pytest.mark.java
def test_clients_of_all_kinds_in_one_group(new_group: Callable[[], Group]) -> None:
    """Java's console consumer, librdkafka, kafka-python and aiokafka agree on range."""
    java_tools()
    group = new_group()
    with Writer(group.bootstrap, group.topic, PARTITIONS, pause_s=PACE_S) as writer:
        java = group.start("java")
        wait_until(lambda: len(java.read()) == PARTITIONS, "Java to read everything")
        others = [group.start(kind) for kind in ("confluent", "kafka-python", "aiokafka")]
        _until_shared_with_java(others)
        others[0].kill()
        _until_shared_with_java(others[1:])
        second = group.start("java")
        others.append(group.start("confluent"))
        wait_until(second.read, "the second Java to read something")
        java.kill()
        _until_shared_with_java(others[1:])
        second.leave()
        until_all_owned(others[1:], PARTITIONS, SETTLES_S * group.slow)
        writer.until_acknowledged(20)
        group.check(writer)


def _until_shared_with_java(others: list[Member]) -> None:
    """Wait until the others own something each, nothing twice, and leave the rest to Java."""

    def shared() -> bool:
        owned = [one.owned() for one in others]
        together = [p for some in owned for p in some]
        return all(owned) and len(set(together)) == len(together) < PARTITIONS

    try:
        wait_until(shared, "members of all kinds to share the partitions")
    except AssertionError as failure:
        said = "\n".join(one.last_words() for one in others)
        raise AssertionError(f"{failure}\n{said}") from None
