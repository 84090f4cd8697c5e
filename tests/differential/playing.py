"""Plays all sessions to one broker."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from raylog.wire.errors import ErrorCode
from raylog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raylog.wire.messages.find_coordinator import FindCoordinatorRequest
from raylog.wire.messages.metadata import MetadataRequest
from raylog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.differential import classic_sessions, consumer_sessions, offset_sessions, walks
from tests.differential.session import Session
from tests.differential.session_stage import Transcript
from tests.support.wire_client import WireClient

SETTINGS = {
    "offsets.topic.num.partitions": "5",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.migration.policy": "bidirectional",
    "num.partitions": "1",
    "auto.create.topics.enable": "false",
}
"""Of the brokers that are compared; the rest is at its defaults."""
TOPICS = {"t1": 1, "t2": 2, "t3": 3, "t6": 6}
"""Topics that all sessions share, and their partitions."""
PLAYERS = 6
"""Sessions that are played at the same time."""
START_S = 30.0
_NOT_YET = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
Transcripts = dict[str, Transcript]
"""By the session's name."""


def all_sessions() -> list[Session]:
    """Every session there is; names are unique."""
    found = [
        *classic_sessions.SESSIONS,
        *offset_sessions.SESSIONS,
        *consumer_sessions.SESSIONS,
        *walks.SESSIONS,
    ]
    names = [one.name for one in found]
    assert len(set(names)) == len(names), "two sessions have one name"
    return found


def play(
    address: str, sessions: Iterable[Session], expected: Mapping[str, Transcript] | None = None
) -> Transcripts:
    """Play sessions to a fresh broker, several at a time."""
    chosen = list(sessions)
    prepare(address)
    with ThreadPoolExecutor(PLAYERS) as pool:
        known = expected or {}
        played = pool.map(lambda one: one.run(address, known.get(one.name)), chosen)
        return {one.name: transcript for one, transcript in zip(chosen, played, strict=True)}


def prepare(address: str) -> None:
    """Make the shared topics, and wait until every coordinator serves."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + START_S
    with WireClient(host, int(port)) as client:
        new = [
            CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in TOPICS.items()
        ]
        client.ask(CreateTopicsRequest(topics=new, timeout_ms=10_000), 7)
        groups = [f"warm-up-{number}" for number in range(50)]
        while not (_topics_are_there(client) and _coordinators_serve(client, groups)):
            assert time.monotonic() < deadline, f"no coordinators after {START_S:g} s"
            time.sleep(0.05)


def _topics_are_there(client: WireClient) -> bool:
    answer = client.ask(MetadataRequest(topics=None), 12)
    found = {topic.name: len(topic.partitions) for topic in answer.topics}
    return found.items() >= TOPICS.items()


def _coordinators_serve(client: WireClient, groups: list[str]) -> bool:
    found = client.ask(FindCoordinatorRequest(coordinator_keys=groups), 4)
    if any(one.error_code for one in found.coordinators):
        return False
    asked = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
    answer = client.ask(OffsetFetchRequest(groups=asked), 8)
    return not any(group.error_code in _NOT_YET for group in answer.groups)
