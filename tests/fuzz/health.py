"""Whether a broker goes on serving others: every shard of groups and transactions, and how soon."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from itertools import count
from time import monotonic
from typing import Any, NamedTuple

from bench.measure import cpu_of
from raylog.actors.coordination.rules.placement import java_hash
from raylog.wire.error_codes import ErrorCode
from raylog.wire.internal.blobs import encode_value
from raylog.wire.internal.consumer_protocol import ConsumerProtocolSubscription
from raylog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from raylog.wire.messages.api_versions import ApiVersionsRequest
from raylog.wire.messages.delete_groups import DeleteGroupsRequest
from raylog.wire.messages.end_txn import EndTxnRequest
from raylog.wire.messages.find_coordinator import FindCoordinatorRequest
from raylog.wire.messages.init_producer_id import InitProducerIdRequest
from raylog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raylog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from raylog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from raylog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raylog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from raylog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from raylog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from raylog.wire.records import Record, encode_batch
from raylog.wire.schema import layout_of
from tests.fuzz.survey import make_topic
from tests.fuzz.tally import codes_of
from tests.fuzz.world import GOOD
from tests.support.wire_client import WireClient

SHARDS = 5
SETTINGS = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": str(SHARDS),
    "transaction.state.log.num.partitions": str(SHARDS),
    "transaction.two.phase.commit.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.max.session.timeout.ms": "10000",
    "group.max.size": "40",
    "group.consumer.max.size": "40",
    "producer.id.expiration.ms": "20000",
    "log.retention.check.interval.ms": "5000",
    "log.cleaner.backoff.ms": "2000",
}
"""What every request leaves behind must go away within the campaign, or its memory grows by right.
Two-phase commit is on because only then its version of InitProducerId is announced."""

PING_S = 0.05
ROUND_S = 0.5
HELD_S = 3.0
"""No other request may wait longer than this for an answer that needs nothing but the event loop,
which the fuzzer's own pipelined requests are before it. Where the CPU time of the process that
answers cannot be told, this is by the clock, and says something of an idle machine only."""

HELD_CPU_S = 0.5
"""The same in CPU time of that process: its event loop, other threads, and Python's collector."""

SLOWEST = 3
"""How many of the longest round trips are told."""

PATIENCE_S = 60.0
"""So long a coordinator may be busy, on a busy machine; one that is stuck is so for good."""
_RETRIED = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


class Broken(Exception):
    """Something that every client may rely on does not work."""


class Delay(NamedTuple):
    """How long an answer took, and how long the process that gave it was at work meanwhile."""

    took_s: float
    cpu_s: float

    def __str__(self) -> str:
        return f"{self.took_s * 1_000:.0f} ms ({self.cpu_s * 1_000:.0f} ms of CPU time)"


def _cpu_first(delay: Delay) -> float:
    return -delay.cpu_s


class Probe:
    """Asks beside the fuzzer, until it ends, and then every shard once more."""

    def __init__(self, address: str, gateway: int = 0) -> None:
        """`gateway` is the process that answers; 0 if its CPU time cannot be told."""
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self._gateway = gateway
        self._ending = threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=work.__name__)
            for work in (self._ping, self._work)
        ]
        self.failures: list[str] = []
        self.rounds = 0
        self.pings = 0
        """Round trips of ApiVersions."""
        self._by_clock: list[Delay] = []
        """The longest of them."""
        self._by_cpu: list[Delay] = []
        self.slowest_work_s = 0.0
        """The longest round of a group and a transaction."""

    def __enter__(self) -> Probe:
        """Make its topic and begin."""
        self._topic = f"{GOOD}probe"
        with WireClient(*self._address) as client:
            make_topic(client, self._topic, 1, {})
        self._work_on(0)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End, and look at each shard a last time."""
        self._ending.set()
        for thread in self._threads:
            thread.join()
        self._guarded(self._last_look)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:  # noqa: BLE001 - the main thread tells it
            self.failures.append(f"{work.__name__}: {traceback.format_exc(limit=3)}")

    def _ping(self) -> None:
        with WireClient(*self._address) as client:
            while not self._ending.wait(PING_S):
                cpu_s, began = self._cpu_s(), monotonic()
                client.ask(ApiVersionsRequest(), 0)
                delay = Delay(monotonic() - began, self._cpu_s() - cpu_s)
                self.pings += 1
                self._by_clock = sorted([*self._by_clock, delay], reverse=True)[:SLOWEST]
                self._by_cpu = sorted([*self._by_cpu, delay], key=_cpu_first)[:SLOWEST]
                if delay.cpu_s > HELD_CPU_S or (not self._gateway and delay.took_s > HELD_S):
                    self.failures.append(f"ApiVersions took {delay}")

    def _cpu_s(self) -> float:
        return cpu_of(self._gateway) if self._gateway else 0.0

    def delays(self) -> str:
        """The longest round trips of ApiVersions, by the clock and by CPU time."""
        by_clock = ", ".join(map(str, self._by_clock))
        return f"slowest {by_clock}; most CPU time {', '.join(map(str, self._by_cpu))}"

    def _work(self) -> None:
        for shard in count():
            if self._ending.wait(ROUND_S):
                return
            self._work_on(shard % SHARDS)

    def _last_look(self) -> None:
        for shard in range(SHARDS):
            self._work_on(shard)

    def _work_on(self, shard: int) -> None:
        began = monotonic()
        with WireClient(*self._address) as client:
            commits_in_a_group(client, name_in(shard, f"{GOOD}group"), self._topic)
            writes_in_a_transaction(client, name_in(shard, f"{GOOD}transaction"), self._topic)
        self.slowest_work_s = max(self.slowest_work_s, monotonic() - began)
        self.rounds += 1


def name_in(shard: int, stem: str) -> str:
    """A group or transactional id of this shard."""
    return next(name for n in count() if java_hash(name := f"{stem}-{n}") % SHARDS == shard)


def commits_in_a_group(client: WireClient, group: str, topic: str) -> None:
    """Join, sync, commit, read the commit back, leave, delete the group. Broken if any fails."""
    _ask(client, FindCoordinatorRequest(key=group, key_type=0), 3)
    wants = encode_value(ConsumerProtocolSubscription(topics=[topic]), 0)
    joining = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=wants)],
    )
    joining.member_id = _ask(client, joining, 9, {ErrorCode.MEMBER_ID_REQUIRED}).member_id
    joined = _ask(client, joining, 9)
    member = joined.member_id
    dealt = [SyncGroupRequestAssignment(member_id=member, assignment=b"all")]
    syncing = SyncGroupRequest(
        group_id=group, generation_id=joined.generation_id, member_id=member, assignments=dealt
    )
    if _ask(client, syncing, 3).assignment != b"all":
        raise Broken(f"{group}: another assignment than was given")
    offset = joined.generation_id * 7
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    committing = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=joined.generation_id,
        member_id=member,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[part])],
    )
    _ask(client, committing, 7)
    looked = OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
    found = _ask(client, OffsetFetchRequest(group_id=group, topics=[looked]), 5)
    if found.topics[0].partitions[0].committed_offset != offset:
        raise Broken(f"{group}: committed {offset}, found {found}")
    _ask(client, LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member)]), 3)
    _ask(client, DeleteGroupsRequest(groups_names=[group]), 1)


def writes_in_a_transaction(client: WireClient, transactional_id: str, topic: str) -> None:
    """Commit one record; when it is over, read_committed sees as far as read_uncommitted."""
    _ask(client, FindCoordinatorRequest(key=transactional_id, key_type=1), 3)
    made = _ask(
        client,
        InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000),
        4,
    )
    adding = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=made.producer_id,
        v3_and_below_producer_epoch=made.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
    )
    _ask(client, adding, 3)
    batch = encode_batch(
        [Record(0, 1_000, None, transactional_id.encode(), [])],
        producer_id=made.producer_id,
        producer_epoch=made.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=0, records=batch)]
    )
    _ask(
        client,
        ProduceRequest(
            transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=[data]
        ),
        9,
    )
    ending = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=made.producer_id,
        producer_epoch=made.producer_epoch,
        committed=True,
    )
    _ask(client, ending, 3)
    deadline = monotonic() + PATIENCE_S
    while _end(client, topic, 1) < (end := _end(client, topic, 0)):
        if monotonic() > deadline:
            raise Broken(f"{transactional_id}: read_committed does not reach {end}")


def _end(client: WireClient, topic: str, isolation_level: int) -> int:
    asked = ListOffsetsTopic(
        name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
    )
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[asked])
    offset = _ask(client, request, 5).topics[0].partitions[0].offset
    assert isinstance(offset, int)
    return offset


def _ask(client: WireClient, request: Any, version: int, also: set[ErrorCode] | None = None) -> Any:
    """The answer without an error; a coordinator that is busy is asked again."""
    deadline = monotonic() + PATIENCE_S
    api_key = layout_of(type(request)).api_key
    assert api_key is not None
    fine = set() if also is None else set(also)
    while True:
        answer = client.ask(request, version)
        codes = {ErrorCode(code) for code in codes_of(api_key, version, answer)} - {ErrorCode.NONE}
        if codes <= fine:
            return answer
        if isinstance(request, DeleteGroupsRequest):
            fine.add(ErrorCode.GROUP_ID_NOT_FOUND)  # deleted by one that was only slow to be told
        if not codes <= _RETRIED or monotonic() > deadline:
            raise Broken(f"{request}: {answer}")
