"""The cost of consumer groups for the broker: `python -m bench.groups` (needs Java and Maven).

First 200 groups of 10 members send a heartbeat every 3 s, in both protocols, with one connection
per member: CPU of the broker's processes in percent of one core. Then 100 connections commit to one
coordinator, and each waits for its response: commits per second, and the 99th percentile of the
response time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

import uvloop

from bench.measure import cpu_seconds
from bench.peers import ApacheKafka, Peer, Raylog, Source
from bench.quantiles import quantile
from raylog.wire.api import ApiKey
from raylog.wire.frame import decode_response, encode_request
from raylog.wire.internal.blobs import encode_value
from raylog.wire.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from raylog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from raylog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raylog.wire.messages.find_coordinator import FindCoordinatorRequest
from raylog.wire.messages.heartbeat import HeartbeatRequest
from raylog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raylog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raylog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from raylog.wire.schema import layout_of

GROUPS, MEMBERS = 200, 10
BEAT_S = 3.0
SESSION_MS = 60_000
TOPIC, PARTITIONS = "t", 10
COMMITTERS = 100
COMMITS_WANTED = 5_000
CPU_RATIO_MAX = 3.0
SETTINGS = {"group.initial.rebalance.delay.ms": "2000"}
RETRY_S = 0.2
CONNECT_S = 0.003
"""Time between new connections. Apache Kafka resets connections if too many wait for it."""
_LENGTH = struct.Struct(">i")


class Connection:
    """A connection with one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, address: str) -> Connection:
        """Connect to an address."""
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    def close(self) -> None:
        """Close."""
        self._writer.close()

    async def ask(self, request: Any, version: int) -> Any:
        """Send a request and return the response."""
        api_key = layout_of(type(request)).api_key
        assert api_key is not None
        frame = b"".join(encode_request(api_key, version, 1, "load", request))
        return decode_response(api_key, version, await self.exchange(frame))[1]

    async def exchange(self, frame: bytes) -> bytes:
        """Send an encoded request and return the encoded response."""
        self._writer.write(frame)
        (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
        return await self._reader.readexactly(length)


class Member(ABC):
    """A member that joins and then sends heartbeats until it has to do something else."""

    def __init__(self, address: str, group: str, name: str) -> None:
        self.beats = 0
        self.rejoins = 0
        self._address, self._group, self._name = address, group, name

    async def run(self) -> None:
        """Be a member until cancelled."""
        connection = await Connection.to(self._address)
        try:
            while True:
                if await self._enter(connection):
                    await self._beat(connection)
                self.beats = 0
                self.rejoins += 1
                await asyncio.sleep(RETRY_S)
        finally:
            connection.close()

    @abstractmethod
    async def _enter(self, connection: Connection) -> bool:
        """Join. Returns whether it is a member now."""

    @abstractmethod
    async def _beat(self, connection: Connection) -> None:
        """Send heartbeats until there is something else to do."""


class ClassicMember(Member):
    """A member in the classic protocol."""

    _member_id = ""
    _generation = -1

    async def _enter(self, connection: Connection) -> bool:
        wants = encode_value(ConsumerProtocolSubscription(topics=[TOPIC]), 1)
        joined = await connection.ask(
            JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=SESSION_MS,
                member_id=self._member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=wants)],
            ),
            9,
        )
        self._member_id, self._generation = joined.member_id, joined.generation_id
        if joined.error_code:
            return False
        nothing = encode_value(ConsumerProtocolAssignment(), 1)
        synced = await connection.ask(
            SyncGroupRequest(
                group_id=self._group,
                generation_id=self._generation,
                member_id=self._member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[
                    SyncGroupRequestAssignment(member_id=one.member_id, assignment=nothing)
                    for one in joined.members
                ],
            ),
            5,
        )
        return not synced.error_code

    async def _beat(self, connection: Connection) -> None:
        request = HeartbeatRequest(
            group_id=self._group, generation_id=self._generation, member_id=self._member_id
        )
        frame = b"".join(encode_request(ApiKey.HEARTBEAT, 4, 1, "load", request))
        while True:
            answer = decode_response(ApiKey.HEARTBEAT, 4, await connection.exchange(frame))[1]
            if answer.error_code:  # type: ignore[attr-defined]  # a HeartbeatResponse
                return
            self.beats += 1
            await asyncio.sleep(BEAT_S)


class ConsumerMember(Member):
    """A member in the KIP-848 protocol."""

    async def _enter(self, connection: Connection) -> bool:
        self._epoch, self._owned = 0, None
        answer = await connection.ask(
            ConsumerGroupHeartbeatRequest(
                group_id=self._group,
                member_id=self._name,
                member_epoch=0,
                rebalance_timeout_ms=SESSION_MS,
                subscribed_topic_names=[TOPIC],
                topic_partitions=[],
            ),
            1,
        )
        return self._take(answer)

    def _take(self, answer: Any) -> bool:
        if answer.error_code:
            return False
        self._epoch = answer.member_epoch
        self._owned = answer.assignment.topic_partitions if answer.assignment else None
        return True

    async def _beat(self, connection: Connection) -> None:
        while True:
            answer = await connection.ask(
                ConsumerGroupHeartbeatRequest(
                    group_id=self._group,
                    member_id=self._name,
                    member_epoch=self._epoch,
                    topic_partitions=self._owned,
                ),
                1,
            )
            if not self._take(answer):
                return
            self.beats = 0 if self._owned is not None else self.beats + 1
            await asyncio.sleep(RETRY_S if self._owned is not None else BEAT_S)


async def prepare(address: str) -> None:
    """Create the topic and wait until all coordinators serve."""
    connection = await Connection.to(address)
    new = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
    await connection.ask(CreateTopicsRequest(topics=[new], timeout_ms=10_000), 7)
    keys = [f"classic-{number}" for number in range(GROUPS)]
    while True:
        found = await connection.ask(FindCoordinatorRequest(coordinator_keys=keys), 4)
        codes = {one.error_code for one in found.coordinators}
        for key in keys if codes == {0} else ():
            codes.add(await _commit_once(connection, key))
        if codes == {0}:
            break
        await asyncio.sleep(RETRY_S)
    connection.close()


def _commit_frame(group: str, offset: int) -> bytes:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=[part])]
    request = OffsetCommitRequest(group_id=group, topics=topics)
    return b"".join(encode_request(ApiKey.OFFSET_COMMIT, 9, 1, "load", request))


async def _commit_once(connection: Connection, group: str) -> int:
    answer: Any = decode_response(
        ApiKey.OFFSET_COMMIT, 9, await connection.exchange(_commit_frame(group, 1))
    )[1]
    code: int = answer.topics[0].partitions[0].error_code
    return code


async def heartbeats(peer: Peer, kind: type[Member], seconds: float) -> dict[str, float]:
    """CPU while all groups send heartbeats, after they have settled."""
    label = "classic" if kind is ClassicMember else "consumer"
    members = [
        kind(peer.address, f"{label}-{group}", f"{label}-{group}-{number}")
        for group in range(GROUPS)
        for number in range(MEMBERS)
    ]
    began = monotonic()
    async with asyncio.TaskGroup() as tasks:
        running = []
        for member in members:
            running.append(tasks.create_task(member.run()))
            await asyncio.sleep(CONNECT_S)
        while any(member.beats < 2 for member in members):  # noqa: ASYNC110 - polled on purpose
            await asyncio.sleep(RETRY_S)
        settled_s = monotonic() - began
        rejoins = sum(member.rejoins for member in members)
        beats, cpu, began = sum(m.beats for m in members), cpu_seconds(peer.mark), monotonic()
        await asyncio.sleep(seconds)
        elapsed = monotonic() - began
        cpu = cpu_seconds(peer.mark) - cpu
        beats = sum(m.beats for m in members) - beats
        rejoins = sum(member.rejoins for member in members) - rejoins
        for task in running:
            task.cancel()
    assert rejoins == 0, f"{rejoins} members had to join again"
    return {
        "settled_s": settled_s,
        "beats_per_s": beats / elapsed,
        "cpu_percent": 100 * cpu / elapsed,
    }


async def commits(peer: Peer, seconds: float) -> dict[str, float]:
    """Commits per second to one coordinator."""
    waits: list[float] = []
    ends = monotonic() + seconds

    async def committer(number: int) -> None:
        connection = await Connection.to(peer.address)
        frame = _commit_frame("one", number)
        good = await connection.exchange(frame)
        while (began := monotonic()) < ends:
            assert await connection.exchange(frame) == good, "a commit was refused"
            waits.append(monotonic() - began)
        connection.close()

    cpu, began = cpu_seconds(peer.mark), monotonic()
    await asyncio.gather(*(committer(number) for number in range(COMMITTERS)))
    elapsed = monotonic() - began
    p99_s = quantile(waits, 0.99)
    assert p99_s is not None, f"{len(waits)} commits are too few for a 99th percentile"
    return {
        "commits_per_s": len(waits) / elapsed,
        "p99_ms": 1000 * p99_s,
        "cpu_percent": 100 * (cpu_seconds(peer.mark) - cpu) / elapsed,
    }


async def measure(peer: Peer, seconds: float) -> dict[str, dict[str, float]]:
    """All measurements of one broker."""
    await prepare(peer.address)
    return {
        "classic heartbeats": await heartbeats(peer, ClassicMember, seconds),
        "consumer heartbeats": await heartbeats(peer, ConsumerMember, seconds),
        "commits": await commits(peer, seconds),
    }


def report(figures: dict[str, dict[str, dict[str, float]]], say: Callable[[str], object]) -> bool:
    """Print all figures. Returns whether the targets were met."""
    for name, of_peer in figures.items():
        for what, values in of_peer.items():
            say(f"{name}: {what}: " + ", ".join(f"{k} {v:.1f}" for k, v in values.items()))
    kept = True
    if len(figures) == 2:
        theirs, ours = figures.values()
        for what in ("classic heartbeats", "consumer heartbeats"):
            ratio = ours[what]["cpu_percent"] / theirs[what]["cpu_percent"]
            say(f"{what}: {ratio:.2f} x the CPU, at most {CPU_RATIO_MAX:g} wanted")
            kept &= ratio <= CPU_RATIO_MAX
        per_s = ours["commits"]["commits_per_s"]
        say(f"commits: {per_s:.0f}/s, {COMMITS_WANTED} wanted")
        kept &= per_s >= COMMITS_WANTED
    return kept


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure both brokers, one after another."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--only", choices=["kafka", "raylog"])
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    sources: dict[str, Source] = {"kafka": ApacheKafka(SETTINGS), "raylog": Raylog(SETTINGS)}
    figures = {}
    for name, source in sources.items():
        if chosen.only in (None, name):
            with source.run() as peer:
                figures[name] = uvloop.run(measure(peer, chosen.seconds))
    if chosen.json:
        print(json.dumps(figures, indent=1))
        return 0
    return 0 if report(figures, print) else 1


if __name__ == "__main__":
    sys.exit(main())
