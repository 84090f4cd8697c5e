"""Where a scripted session is played: raw connections to one broker, and its answers.

A step sends one request and stores every answer that arrives because of it, on any connection: a
JoinGroup may be parked until another member's step completes the group. Answers are compared in
normalized form (see `normalized`). While recording, a step ends when nothing more arrives for a
moment. When played back to another broker, it waits for the answers that the recording has, so that
a slow broker makes no difference.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct
from typing import Any

from raylog.wire.api import ApiKey
from raylog.wire.frame import decode_response, encode_request
from raylog.wire.messages.api_versions import ApiVersionsRequest
from raylog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from raylog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raylog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raylog.wire.messages.metadata import MetadataRequest
from raylog.wire.schema import layout_of
from tests.differential.normalized import Names, Plain
from tests.support.wire_client import WireClient

PARKED_S = 1.0
"""A broker that is recorded answers within this time what it answers at all."""
QUIET_S = 0.3
"""Answers that one step releases follow one another within this time."""
PATIENCE_S = 15.0
"""For an answer that the record says will come, and for what takes its time."""
GLANCE_S = 0.02
"""How long it is looked for answers that the record does not know."""
WRITTEN_S = 0.03
"""What a refused request has changed nevertheless can be seen after this time.

Apache Kafka answers a refusal before the records are written that go with it.
"""
LOOKS = {
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.OFFSET_FETCH,
}
_LENGTH = Struct(">i")
Said = dict[str, list[Plain]]
"""What each actor was answered in one step, in order."""
Transcript = list[Said]
Raw = dict[str, list[Any]]
"""The same as messages."""


@dataclass(slots=True)
class _Actor:
    """One connection; its client id is the actor's name."""

    connection: socket.socket
    waiting: deque[tuple[ApiKey, int]] = field(default_factory=deque)
    received: bytearray = field(default_factory=bytearray)
    correlation_id: int = 0


class Stage:
    """One session's connections, memory and transcript."""

    def __init__(self, address: str, session: str, expected: Transcript | None = None) -> None:
        self.session = session
        self.transcript: Transcript = []
        self.last: dict[tuple[str, ApiKey], Any] = {}
        """The last answer of each kind that an actor got."""
        self._address = address
        self._expected = expected
        self._actors: dict[str, _Actor] = {}
        self._names = Names(session)
        self._learn_topics()

    def close(self) -> None:
        """Close all connections."""
        for actor in self._actors.values():
            actor.connection.close()

    @property
    def group(self) -> str:
        """The session's own group."""
        return f"{self.session}.g"

    # ---- steps ---------------------------------------------------------------------------

    def step(self, name: str, request: Any, version: int) -> Any:
        """Send one request; its answer, or None where it stays parked."""
        said: Raw = {}
        own: list[Any] = []
        if layout_of(type(request)).api_key in LOOKS:
            time.sleep(WRITTEN_S)
        actor = self._send(name, request, version)
        expected = self._expected_now()
        if expected is None:
            self._receive(said, own, name, lambda: not actor.waiting, PARKED_S)
            if self._is_anyone_waiting():
                self._until_quiet(said, own, name)
        else:
            self._receive(said, own, name, lambda: _covers(said, expected), PATIENCE_S)
            if self._is_anyone_waiting():
                self._receive(said, own, name, lambda: False, GLANCE_S)
        self._note(said)
        return own[-1] if own else None

    def until(
        self, name: str, ask: Callable[[], tuple[Any, int]], holds: Callable[[Any], bool]
    ) -> Any:
        """Repeat a request until its answer is the one that is waited for; only that is noted."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            said: Raw = {}
            own: list[Any] = []
            request, version = ask()
            actor = self._send(name, request, version)
            self._receive(said, own, name, lambda: not actor.waiting, PATIENCE_S)  # noqa: B023 - used at once
            answer = own[-1] if own else None
            if answer is None or holds(answer) or time.monotonic() > deadline:
                break
            time.sleep(0.03)
        self._note(said)
        return answer

    def released(self, *names: str) -> None:
        """Wait until time itself has answered these actors' parked requests."""
        said: Raw = {}
        parked = [self._actors[name] for name in names]
        self._receive(said, [], "", lambda: not any(a.waiting for a in parked), PATIENCE_S)
        self._note(said)

    def is_parked(self, name: str) -> bool:
        """Whether a request of this actor has no answer yet."""
        return name in self._actors and bool(self._actors[name].waiting)

    def disconnect(self, name: str) -> None:
        """Close an actor's connection; its next request opens another."""
        self._actors.pop(name).connection.close()

    # ---- topics --------------------------------------------------------------------------

    def topic(self, short_name: str, partitions: int) -> str:
        """Make a topic of this session's own; returns its name."""
        name = f"{self.session}.{short_name}"
        with self._client() as client:
            new = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
            answer = client.ask(CreateTopicsRequest(topics=[new], timeout_ms=10_000), 7)
        assert answer.topics[0].error_code == 0, answer
        self._until_partitions(name, partitions)
        return name

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        with self._client() as client:
            more = CreatePartitionsTopic(name=topic, count=partitions, assignments=None)
            answer = client.ask(CreatePartitionsRequest(topics=[more], timeout_ms=10_000), 3)
        assert answer.results[0].error_code == 0, answer
        self._until_partitions(topic, partitions)

    def drop(self, topic: str) -> None:
        """Delete a topic."""
        with self._client() as client:
            state = DeleteTopicState(name=topic)
            answer = client.ask(DeleteTopicsRequest(topics=[state], timeout_ms=10_000), 6)
        assert answer.responses[0].error_code == 0, answer

    def topic_id(self, topic: str) -> bytes:
        """The id of a topic that exists."""
        if topic not in self._names.topic_ids:
            self._learn_topics()
        return self._names.topic_ids[topic]

    def _until_partitions(self, topic: str, partitions: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self._learn_topics().get(topic) != partitions:
            assert time.monotonic() < deadline, f"{topic} has no {partitions} partitions"
            time.sleep(0.02)

    def _learn_topics(self) -> dict[str, int]:
        with self._client() as client:
            answer = client.ask(MetadataRequest(topics=None), 12)
        for topic in answer.topics:
            self._names.learn_topic(topic.name, topic.topic_id)
        return {topic.name: len(topic.partitions) for topic in answer.topics}

    def _client(self) -> WireClient:
        host, _, port = self._address.rpartition(":")
        return WireClient(host, int(port))

    # ---- connections ---------------------------------------------------------------------

    def _send(self, name: str, request: Any, version: int) -> _Actor:
        actor = self._actors.get(name)
        if actor is None:
            host, _, port = self._address.rpartition(":")
            actor = self._actors[name] = _Actor(socket.create_connection((host, int(port)), 10))
            actor.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _until_served(actor.connection)
        api_key = layout_of(type(request)).api_key
        assert api_key is not None
        self._names.learn_spoken(request)
        actor.correlation_id += 1
        frame = encode_request(api_key, version, actor.correlation_id, name, request)
        actor.waiting.append((api_key, version))
        actor.connection.sendall(b"".join(frame))
        return actor

    def _expected_now(self) -> Said | None:
        if self._expected is None:
            return None
        at = len(self.transcript)
        return self._expected[at] if at < len(self._expected) else {}

    def _is_anyone_waiting(self) -> bool:
        return any(actor.waiting for actor in self._actors.values())

    def _until_quiet(self, said: Raw, own: list[Any], name: str) -> None:
        before = -1
        while self._is_anyone_waiting() and _count(said) > before:
            before = _count(said)
            self._receive(said, own, name, lambda now=before: _count(said) > now, QUIET_S)  # type: ignore[misc]  # bound now

    def _receive(
        self, said: Raw, own: list[Any], name: str, done: Callable[[], bool], timeout_s: float
    ) -> None:
        """Take in what arrives until `done` or the time is over."""
        deadline = time.monotonic() + timeout_s
        while not done():
            waiting = {a.connection: n for n, a in self._actors.items() if a.waiting}
            left = deadline - time.monotonic()
            if left <= 0 or not waiting:
                return
            for connection in select.select(list(waiting), [], [], left)[0]:
                who = waiting[connection]
                answers = self._read(who)
                said.setdefault(who, []).extend(answers)
                own += answers if who == name else []

    def _read(self, name: str) -> list[Any]:
        """Answers that are complete by now; a closed connection is one, too."""
        actor = self._actors[name]
        try:
            data = actor.connection.recv(1 << 20)
        except ConnectionResetError:
            data = b""
        if not data:
            self.disconnect(name)
            return ["closed"]
        actor.received += data
        answers = []
        while len(actor.received) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(actor.received)
            end = _LENGTH.size + length
            if len(actor.received) < end:
                break
            api_key, version = actor.waiting.popleft()
            frame = bytes(actor.received[_LENGTH.size : end])
            del actor.received[:end]
            answer = decode_response(api_key, version, frame)[1]
            self.last[(name, api_key)] = answer
            answers.append(answer)
        return answers

    def _note(self, said: Raw) -> None:
        """Add to the transcript, in an order that does not depend on who was answered first."""
        plain = self._names.plain
        self.transcript.append({who: [plain(one) for one in said[who]] for who in sorted(said)})


def _until_served(connection: socket.socket) -> None:
    """Ask for something, so that the broker has accepted the connection.

    A busy one may otherwise take what comes over an older connection first, though it was sent
    later: nothing tells whoever sends a request that stays parked that the broker has it.
    """
    connection.settimeout(PATIENCE_S)
    connection.sendall(
        b"".join(encode_request(ApiKey.API_VERSIONS, 0, 0, "", ApiVersionsRequest()))
    )
    left = _LENGTH.size
    received = b""
    while left:
        part = connection.recv(left)
        assert part, "the broker closed the connection"
        received += part
        if len(received) == _LENGTH.size:
            (left,) = _LENGTH.unpack(received)
        else:
            left -= len(part)


def _count(said: Raw) -> int:
    return sum(map(len, said.values()))


def _covers(said: Raw, expected: Said) -> bool:
    return all(len(said.get(name, [])) >= len(answers) for name, answers in expected.items())
