"""Where scenarios about replicas are played: four brokers, of which the last is stopped.

A scenario's topics are named after it. It sends requests to broker 1 and stores answers in plain
form. After a change it inspects its topics: while recording, once they have stopped changing; when
played back, until they match the recording or the time is over.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raylog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from raylog.wire.messages.describe_cluster import DescribeClusterRequest
from raylog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from raylog.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from raylog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from raylog.wire.schema import layout_of
from tests.differential.normalized import Plain, error_name
from tests.support.wire_client import WireClient

SETTINGS = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "num.partitions": "1",
    "default.replication.factor": "1",
}
"""Of the brokers that are compared: nothing happens by itself."""
BROKERS = 4
STOPPED = 4
TIMEOUT_MS = 10_000
REST_S = 1.5
"""A broker that is recorded stands still when nothing has changed for so long."""
PATIENCE_S = 20.0
VAGUE = {"throttle_time_ms", "host", "port", "rack", "cluster_id", "controller_id", "configs"}
"""Fields that name the cluster, that chance decides, or that are about something else."""
_UNORDERED = {"isr_nodes", "offline_replicas", "eligible_leader_replicas", "last_known_elr"}
_NAMED = ("name", "topic", "topic_name", "partition_index", "partition_id", "broker_id", "node_id")
Placed = Sequence[Sequence[int]]
"""Of each partition of a topic its replicas."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A name, the topics created while all brokers live, and the steps."""

    name: str
    play: Callable[[Stage], None]
    before: Mapping[str, Placed] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)
    """Of those topics."""

    def topic(self, short_name: str) -> str:
        """The full name of one of its topics; a name with a colon in front is meant as it is."""
        return short_name[1:] if short_name.startswith(":") else f"{self.name}.{short_name}"


class Scenarios(list[Scenario]):
    """The scenarios of a module, made from its functions."""

    def of(
        self, name: str, configs: Mapping[str, str] | None = None, **before: Placed
    ) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
        """Add a scenario that begins with topics."""

        def add(play: Callable[[Stage], None]) -> Callable[[Stage], None]:
            self.append(Scenario(name, play, before, configs or {}))
            return play

        return add


class Stage:
    """One scenario's connection and its answers."""

    def __init__(self, client: WireClient, scenario: Scenario, expected: list[Plain] | None):
        self.transcript: list[Plain] = []
        self._client = client
        self._scenario = scenario
        self._expected = expected

    def topic(self, short_name: str) -> str:
        """The full name of one of the scenario's topics."""
        return self._scenario.topic(short_name)

    def ask(self, request: Any, *versions: int) -> None:
        """Send a request in each version; note the answers."""
        for version in versions:
            self.transcript.append(self._answer(request, version))

    def look(self, *short_names: str) -> None:
        """Note how topics stand: who leads and holds what, what is known of it, what moves."""
        names = [self.topic(one) for one in short_names]
        requests = [
            (MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names]), 12),
            (DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in names]), 0),
            (ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS), 0),
        ]
        self._settle(lambda: [self._answer(request, version) for request, version in requests])

    def cluster(self) -> None:
        """Note which brokers there are."""
        request = DescribeClusterRequest(include_fenced_brokers=True)
        self._settle(lambda: self._answer(request, 2))

    def create(self, topics: Mapping[str, Placed]) -> None:
        """Make topics with these replicas; note the answer."""
        self.ask(creation({self.topic(name): placed for name, placed in topics.items()}, {}), 7)

    def _settle(self, look: Callable[[], Plain]) -> None:
        at = len(self.transcript)
        expected = None
        if self._expected is not None:
            expected = self._expected[at] if at < len(self._expected) else []
        deadline = time.monotonic() + PATIENCE_S
        seen = look()
        changed = time.monotonic()
        while time.monotonic() < deadline:
            now = time.monotonic()
            rest_s = REST_S if expected is None else 2 * REST_S
            if seen == expected or now - changed > rest_s:
                break
            time.sleep(0.02)
            before, seen = seen, look()
            changed = changed if seen == before else time.monotonic()
        self.transcript.append(seen)

    def _answer(self, request: Any, version: int) -> Plain:
        return self._plain(self._client.ask(request, version))

    def _plain(self, message: Any) -> dict[str, Plain]:
        found = {}
        for one in layout_of(type(message)).fields:
            value = getattr(message, one.name)
            says_something = value or one.name != "error_message"
            if one.name not in VAGUE and value != one.default and says_something:
                found[one.name] = self._field(one.name, value)
        return found

    def _field(self, name: str, value: Any) -> Plain:
        if name == "error_code":
            return error_name(value)
        if name == "topic_id":
            return "an id"
        if name in _UNORDERED:
            return sorted(value)
        if isinstance(value, list):
            items = [self._field("", item) for item in value]
            return sorted(filter(self._is_ours, items), key=_order)
        if isinstance(value, str):
            return value.replace(f"{self._scenario.name}.", "~.")
        return self._plain(value) if dataclasses.is_dataclass(value) else value

    def _is_ours(self, item: Plain) -> bool:
        """Other scenarios' topics are left out of answers about everything."""
        if not isinstance(item, dict):
            return True
        name = item.get("name", item.get("topic"))
        return name is None or "." not in name or name.startswith("~.")


def _order(item: Plain) -> Any:
    """Structures by what they are called; numbers keep their order, it means something."""
    if not isinstance(item, dict):
        return 0
    return repr([item.get(key) for key in _NAMED])


def creation(topics: Mapping[str, Placed], configs: Mapping[str, str]) -> CreateTopicsRequest:
    """The request that makes topics with these replicas."""
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                    for index, replicas in enumerate(placed)
                ],
                configs=[
                    CreatableTopicConfig(name=key, value=text) for key, text in configs.items()
                ],
            )
            for name, placed in topics.items()
        ],
        timeout_ms=TIMEOUT_MS,
    )


Transcripts = dict[str, list[Plain]]
"""By the scenario's name."""


def play(
    address: str,
    scenarios: Sequence[Scenario],
    stop_last: Callable[[], None],
    expected: Mapping[str, list[Plain]] | None = None,
) -> Transcripts:
    """Play scenarios, one after the other, to four fresh brokers; `stop_last` stops the last."""
    known = expected or {}
    until_live(address, BROKERS)
    with _client(address) as client:
        for one in scenarios:
            if one.before:
                topics = {one.topic(name): placed for name, placed in one.before.items()}
                answer = client.ask(creation(topics, one.configs), 7)
                assert not any(topic.error_code for topic in answer.topics), answer
        stop_last()
        _until(client, lambda states: states.get(STOPPED) is True)
        transcripts = {}
        for one in scenarios:
            stage = Stage(client, one, known.get(one.name))
            one.play(stage)
            transcripts[one.name] = stage.transcript
        return transcripts


def _client(address: str) -> WireClient:
    host, _, port = address.split(",")[0].rpartition(":")
    return WireClient(host, int(port))


def until_live(address: str, brokers: int) -> None:
    """Wait until so many brokers are there and none is fenced."""
    with _client(address) as client:
        _until(client, lambda states: len(states) == brokers and not any(states.values()))


def _until(client: WireClient, holds: Callable[[dict[int, bool]], bool]) -> None:
    """Wait until brokers, each with whether it is fenced, are as they should be."""
    deadline = time.monotonic() + 60.0
    while True:
        answer = client.ask(DescribeClusterRequest(include_fenced_brokers=True), 2)
        states = {one.broker_id: one.is_fenced for one in answer.brokers}
        if holds(states):
            return
        assert time.monotonic() < deadline, states
        time.sleep(0.05)
