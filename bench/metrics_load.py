"""The loads of `bench.metrics_cost`: requests through bare sockets, in pre-encoded frames."""

from __future__ import annotations

import socket
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from raylog.wire.frame import decode_response, encode_request
from raylog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raylog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from raylog.wire.records import Record, encode_batch
from raylog.wire.schema import layout_of

VALUE_BYTES = 100
BATCH_RECORDS = 150
"""The records of a batch of 16 KiB, the default `batch.size`."""
FETCH_BYTES = 100_000
FETCHED_BATCHES = 6
"""The whole batches of a response of the given size."""
FETCH_VERSION = 12
PRODUCE_VERSION = 9
CREATE_VERSION = 5
_LENGTH = struct.Struct(">i")
_EPOCH = struct.Struct(">i")
_MARK = 0x0FED_CBA9
"""Placeholder of the epoch in a frame."""
_RECEIVE_BYTES = 256 << 10
Run = Callable[[], int]
"""Sends requests and receives all responses. Returns their number."""


class Connection:
    """A connection. Responses come in the order of the requests."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._socket.makefile("rb", _RECEIVE_BYTES)

    def send(self, frame: bytes) -> None:
        """Send frames."""
        self._socket.sendall(frame)

    def answer(self) -> bytes:
        """Receive the next response, without its length."""
        (length,) = _LENGTH.unpack(self._answers.read(_LENGTH.size))
        body: bytes = self._answers.read(length)
        return body

    def ask(self, request: Any, version: int) -> Any:
        """Send a request and return the decoded response."""
        self.send(frame_of(request, version))
        return decoded(request, version, self.answer())

    def close(self) -> None:
        """Close."""
        self._answers.close()
        self._socket.close()


def frame_of(request: Any, version: int) -> bytes:
    """Encode a request frame."""
    return b"".join(encode_request(_api_key(request), version, 1, "load", request))


def decoded(request: Any, version: int, answer: bytes) -> Any:
    """Decode the response to a request."""
    return decode_response(_api_key(request), version, answer)[1]


def _api_key(request: Any) -> Any:
    return layout_of(type(request)).api_key


def batch_of(values: int) -> bytes:
    """A batch with this many records of 100 B."""
    now_ms = time.time_ns() // 1_000_000
    return encode_batch([Record(n, now_ms, None, bytes(VALUE_BYTES), []) for n in range(values)])


def produce_of(topic: str, batch: bytes) -> ProduceRequest:
    """A request with one batch and acks=all."""
    part = PartitionProduceData(index=0, records=memoryview(batch))
    data = TopicProduceData(name=topic, partition_data=[part])
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])


@dataclass(frozen=True)
class Load(ABC):
    """Requests of one kind."""

    name: str
    records: int
    """Records per request."""
    rounds: int
    """Rounds per run. In each, every connection sends its requests."""
    connections: int = 1

    @contextmanager
    def connected(self, address: str) -> Iterator[Run]:
        """Create a topic and open the connections."""
        topic = self.name.translate({ord(one): "-" for one in " ,()"})
        with ExitStack() as opened:
            made: list[Connection] = []
            for _ in range(self.connections):
                made.append(Connection(address))
                opened.callback(made[-1].close)
            new = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
            asked = CreateTopicsRequest(topics=[new], timeout_ms=30_000)
            created = made[0].ask(asked, CREATE_VERSION)
            assert created.topics[0].error_code == 0, created
            yield self._run(made, topic)

    @abstractmethod
    def _run(self, connections: list[Connection], topic: str) -> Run:
        """The function that sends requests."""


@dataclass(frozen=True)
class Produce(Load):
    """Produce requests, of which each connection has some in flight."""

    in_flight: int = 1

    def _run(self, connections: list[Connection], topic: str) -> Run:
        request = produce_of(topic, batch_of(self.records))
        frames = frame_of(request, PRODUCE_VERSION) * self.in_flight

        def run() -> int:
            answer = b""
            for _ in range(self.rounds):
                for one in connections:
                    one.send(frames)
                for one in connections:
                    for _ in range(self.in_flight):
                        answer = one.answer()
            response = decoded(request, PRODUCE_VERSION, answer)
            assert response.responses[0].partition_responses[0].error_code == 0, response
            return self.rounds * self.in_flight * len(connections)

        return run


@dataclass(frozen=True)
class Fetch(Load):
    """Fetch requests in a session, as consumers send them, from the log start or at its end."""

    max_wait_ms: int = 0

    def _run(self, connections: list[Connection], topic: str) -> Run:
        batch = batch_of(BATCH_RECORDS)
        for _ in range(FETCHED_BATCHES + 1):
            filled = connections[0].ask(produce_of(topic, batch), PRODUCE_VERSION)
            assert filled.responses[0].partition_responses[0].error_code == 0, filled
        sessions = [_Session(one, topic, self) for one in connections]

        def run() -> int:
            for _ in range(self.rounds):
                for one in sessions:
                    one.send()
                for one in sessions:
                    one.receive()
            sessions[-1].check(len(batch))
            return self.rounds * len(sessions)

        return run


class _Session:
    """A fetch session (KIP-227) of one connection."""

    def __init__(self, connection: Connection, topic: str, load: Fetch) -> None:
        self._connection = connection
        self._records = load.records
        offset = 0 if load.records else (FETCHED_BATCHES + 1) * BATCH_RECORDS
        part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
        topics = [FetchTopic(topic=topic, partitions=[part])]
        self._request = FetchRequest(
            max_wait_ms=load.max_wait_ms, min_bytes=1, topics=topics, session_epoch=0
        )
        self._session_id = connection.ask(self._request, FETCH_VERSION).session_id
        assert self._session_id, "the broker has made no session"
        self._request.session_id = self._session_id
        self._request.session_epoch = _MARK
        if not load.records:
            self._request.topics = []
        frame = frame_of(self._request, FETCH_VERSION)
        self._before, mark, self._behind = frame.partition(_EPOCH.pack(_MARK))
        assert mark, "no epoch is in the frame"
        self._epoch = 0
        self._answer = b""

    def send(self) -> None:
        """Send a fetch request."""
        self._epoch += 1
        self._connection.send(self._before + _EPOCH.pack(self._epoch) + self._behind)

    def receive(self) -> None:
        """Receive the response."""
        self._answer = self._connection.answer()

    def check(self, batch_bytes: int) -> None:
        """Check the last response."""
        found = decoded(self._request, FETCH_VERSION, self._answer)
        assert (found.error_code, found.session_id) == (0, self._session_id), found
        parts = [part for topic in found.responses for part in topic.partitions]
        assert not any(part.error_code for part in parts), parts
        records = sum(len(part.records or b"") for part in parts) // batch_bytes * BATCH_RECORDS
        assert records == self._records, f"expected {self._records} records, found {records}"


LOADS: list[Load] = [
    Produce("produce, 16 KiB, 5 in flight", BATCH_RECORDS, rounds=40, in_flight=5),
    Produce("produce, 1 record, 5 in flight", 1, rounds=60, in_flight=5),
    Produce("produce, 1 record", 1, rounds=200),
    Produce("produce, 1 record, 500 connections", 1, rounds=1, connections=500),
    Fetch("fetch, 100 KB", FETCHED_BATCHES * BATCH_RECORDS, rounds=200),
    Fetch("fetch, nothing there", 0, rounds=300),
    Fetch("fetch, nothing for 1 ms, 50 connections", 0, 8, connections=50, max_wait_ms=1),
]
