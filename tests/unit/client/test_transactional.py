"""The producer's transactions: requests of both versions, retries, errors and their effects."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from raylog.client.admin.groups import CommittedOffset
from raylog.client.cluster import TopicPartition
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.errors import (
    AbortRequired,
    InvalidSetting,
    NotSupported,
    ProducerUnusable,
    RequestTimedOut,
    WrongTransactionState,
)
from raylog.client.io import run_blocking
from raylog.client.producer.accumulator import Delivery
from raylog.client.producer.core import Offsets, ProducerCore
from raylog.client.settings import ProducerSettings
from raylog.wire.api import ApiKey
from raylog.wire.errors import (
    ErrorCode,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    OutOfOrderSequenceNumber,
    ProducerFenced,
)
from raylog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from raylog.wire.messages.end_txn import EndTxnRequest
from raylog.wire.messages.init_producer_id import InitProducerIdRequest
from raylog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from raylog.wire.records import read_header
from tests.worlds.client.cluster import LOST, NOTHING, FakeCluster, core_of
from tests.worlds.client.producer_partitions import Answer, refused
from tests.worlds.client.transactions import PRODUCER_ID, TRANSACTIONAL_ID, Transactions

GROUP = GroupMetadata("g", 3, "member", "instance")
KEY = TopicPartition("t", 0)
P0, P1 = ("t", 0), ("t", 1)


def refusing(code: ErrorCode) -> Answer:
    return lambda broker, topic, partition, batch: refused(partition, code)


def is_idle(producer: ProducerCore) -> bool:
    return producer.is_idle


@dataclass
class Rig:
    """A transactional producer on a fake cluster."""

    version: int
    settings: ProducerSettings = field(
        default_factory=lambda: ProducerSettings(transactional_id=TRANSACTIONAL_ID)
    )
    deliveries: list[Delivery] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cluster = FakeCluster(2, {"t": {0: 1, 1: 2}})
        self.cluster.features = {"transaction.version": self.version}
        self.broker = Transactions(self.cluster)
        self.producer = ProducerCore(core_of(self.cluster), self.settings, self.deliveries.append)
        run_blocking(self.producer.prepare("t"))

    def started(self) -> Rig:
        run_blocking(self.producer.init_transactions())
        self.producer.begin_transaction()
        return self

    def send(self, *values: bytes, partition: int = 0) -> None:
        for value in values:
            self.producer.append("t", value, partition=partition)

    def flush(self) -> None:
        run_blocking(self.producer.flush())

    def send_offsets(self, offset: int = 5) -> None:
        run_blocking(self.producer.send_offsets_to_transaction({KEY: offset}, GROUP))

    def commit(self) -> None:
        run_blocking(self.producer.commit_transaction())

    def abort(self) -> None:
        run_blocking(self.producer.abort_transaction())

    def refuse(self, *codes: ErrorCode) -> None:
        self.broker.logs.refuse = [refusing(code) for code in codes]

    def asked(self) -> list[tuple[str, int]]:
        """Requests about transactions with their versions."""
        about = [ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.FIND_COORDINATOR]
        return [(key.name, version) for key, version in self.cluster.versions if key not in about]

    @property
    def epochs(self) -> list[int]:
        """Of the identities that were asked for or told."""
        return [
            request.producer_epoch
            for _, request in self.cluster.seen
            if isinstance(request, EndTxnRequest)
        ]


@pytest.fixture(params=[1, 2])
def rig(request: pytest.FixtureRequest) -> Rig:
    """In a transaction of either version."""
    return Rig(request.param).started()


def test_version_2_adds_by_writing_and_goes_on_with_the_identity_that_the_end_tells() -> None:
    rig = Rig(2).started()
    for _ in range(2):
        rig.send(b"a", b"b")
        rig.send_offsets()
        rig.commit()
        rig.producer.begin_transaction()
    ends = [("TXN_OFFSET_COMMIT", 5), ("END_TXN", 5)]
    assert rig.asked() == [("INIT_PRODUCER_ID", 5), *ends, *ends]
    assert rig.epochs == [0, 1]
    assert (ApiKey.PRODUCE, 13) in rig.cluster.versions
    assert rig.broker.logs.values == {P0: [b"a", b"b"] * 2}
    assert rig.broker.committed == {("g", "t", 0): 5}


def test_version_1_adds_before_it_writes_and_keeps_its_epoch() -> None:
    rig = Rig(1).started()
    for _ in range(2):
        rig.send(b"a")
        rig.send(b"b", partition=1)
        rig.flush()
        rig.send(b"c")
        rig.send_offsets()
        rig.commit()
        rig.producer.begin_transaction()
    each = [
        ("ADD_PARTITIONS_TO_TXN", 3),
        ("ADD_OFFSETS_TO_TXN", 4),
        ("TXN_OFFSET_COMMIT", 4),
        ("END_TXN", 4),
    ]
    assert rig.asked() == [("INIT_PRODUCER_ID", 5), *each, *each]
    assert rig.epochs == [0, 0]
    produced = {version for key, version in rig.cluster.versions if key is ApiKey.PRODUCE}
    assert produced == {11}
    assert rig.broker.ends == [(True, [P0, P1])] * 2
    assert rig.broker.logs.values == {P0: [b"a", b"c"] * 2, P1: [b"b"] * 2}


def test_records_that_come_while_partitions_are_added_wait_for_theirs() -> None:
    rig = Rig(1).started()
    add = rig.cluster.handlers[ApiKey.ADD_PARTITIONS_TO_TXN]
    late = [b"late"]

    def adding(broker: int, request: object) -> object:
        while late:
            rig.send(late.pop(), partition=1)
        return add(broker, request)

    rig.cluster.handlers[ApiKey.ADD_PARTITIONS_TO_TXN] = adding
    rig.send(b"a")
    run_blocking(rig.producer.step(everything=True))
    assert (ApiKey.PRODUCE, 11) in rig.cluster.versions
    assert P1 not in rig.broker.logs.values
    rig.commit()
    assert rig.broker.ends == [(True, [P0, P1])]
    assert rig.broker.logs.values == {P0: [b"a"], P1: [b"late"]}


def test_a_cluster_that_knows_no_feature_has_version_1() -> None:
    rig = Rig(1)
    rig.cluster.features = {}
    rig.started().send(b"a")
    rig.commit()
    assert ("END_TXN", 4) in rig.asked()


def test_batches_are_marked_and_numbered_from_0_under_each_epoch() -> None:
    rig = Rig(2)
    batches: list[bytes] = []
    rig.broker.logs.refuse = [lambda b, t, p, batch: batches.append(batch)] * 2
    rig.started()
    rig.send(b"a", b"b")
    rig.commit()
    rig.producer.begin_transaction()
    rig.send(b"c")
    rig.commit()
    headers = [read_header(batch) for batch in batches]
    assert all(header.is_transactional for header in headers)
    identities = [(one.producer_id, one.producer_epoch, one.base_sequence) for one in headers]
    assert identities == [(PRODUCER_ID, 0, 0), (PRODUCER_ID, 1, 0)]


def test_offsets_go_with_member_and_metadata(rig: Rig) -> None:
    offsets: Offsets = {KEY: CommittedOffset(9, 4, "why"), TopicPartition("t", 1): 3}
    run_blocking(rig.producer.send_offsets_to_transaction(offsets, GROUP))
    (request,) = rig.cluster.requests(TxnOffsetCommitRequest)
    assert isinstance(request, TxnOffsetCommitRequest)
    member = (request.generation_id, request.member_id, request.group_instance_id)
    assert member == (3, "member", "instance")
    first = request.topics[0].partitions[0]
    sent = (first.committed_offset, first.committed_leader_epoch, first.committed_metadata)
    assert sent == (9, 4, "why")
    run_blocking(rig.producer.send_offsets_to_transaction({}, GROUP))
    assert len(rig.cluster.requests(TxnOffsetCommitRequest)) == 1, "no offsets, no request"
    rig.abort()
    assert rig.broker.committed == {}
    assert rig.broker.ends == [(False, [])]


def test_an_empty_transaction_asks_nobody(rig: Rig) -> None:
    rig.commit()
    rig.producer.begin_transaction()
    rig.send(b"never sent")
    rig.abort()
    assert rig.cluster.requests(EndTxnRequest) == []
    assert rig.broker.logs.values == {}
    assert isinstance(rig.deliveries[0].failure, Exception)


def test_an_abort_keeps_nothing_back_for_the_next_transaction(rig: Rig) -> None:
    rig.send(b"sent")
    rig.flush()
    rig.send(b"unsent")
    rig.abort()
    rig.producer.begin_transaction()
    rig.send(b"kept")
    rig.commit()
    assert rig.broker.ends == [(False, [P0]), (True, [P0])]
    assert rig.broker.logs.values == {P0: [b"sent", b"kept"]}


@pytest.mark.parametrize(
    "key",
    [
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.END_TXN,
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_lost_answers_and_refusals_for_now_are_repeated(version: int, key: ApiKey) -> None:
    rig = Rig(version)
    rig.broker.fates[key] = [
        LOST,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    ]
    rig.started()
    rig.send(b"a")
    rig.send_offsets()
    rig.commit()
    assert rig.broker.ends == [(True, [P0])]
    assert rig.broker.committed == {("g", "t", 0): 5}
    assert rig.broker.logs.values == {P0: [b"a"]}


def test_a_coordinator_that_moved_is_found(rig: Rig) -> None:
    rig.send(b"a")
    rig.flush()
    rig.broker.coordinator = 1
    rig.broker.fates[ApiKey.END_TXN] = [ErrorCode.NOT_COORDINATOR]
    rig.commit()
    asked = [node for node, request in rig.cluster.seen if isinstance(request, EndTxnRequest)]
    assert asked == [2, 1]


def test_an_end_that_took_too_long_is_called_again_and_nothing_else(rig: Rig) -> None:
    rig.send(b"a")
    rig.flush()
    end = rig.cluster.handlers[ApiKey.END_TXN]
    rig.cluster.handlers[ApiKey.END_TXN] = lambda *_: NOTHING
    with pytest.raises(RequestTimedOut):
        rig.commit()
    for call in (rig.abort, rig.producer.begin_transaction, lambda: rig.send(b"b")):
        with pytest.raises(WrongTransactionState, match="call commit_transaction again"):
            call()
    rig.cluster.handlers[ApiKey.END_TXN] = end
    rig.commit()
    assert rig.broker.ends == [(True, [P0])]


def test_calls_in_the_wrong_state_name_the_expected_state() -> None:
    rig = Rig(2)
    with pytest.raises(
        WrongTransactionState,
        match=r"begin_transaction: expected a producer that is READY, found .* not initialized",
    ):
        rig.producer.begin_transaction()
    with pytest.raises(WrongTransactionState, match="send: expected"):
        rig.send(b"a")
    run_blocking(rig.producer.init_transactions())
    for call in (rig.commit, rig.abort, rig.send_offsets, lambda: rig.send(b"a")):
        with pytest.raises(WrongTransactionState, match=r"OPEN.* outside a transaction"):
            call()
    with pytest.raises(WrongTransactionState, match="init_transactions"):
        run_blocking(rig.producer.init_transactions())
    rig.producer.begin_transaction()
    with pytest.raises(WrongTransactionState, match="found one that is in a transaction"):
        rig.producer.begin_transaction()
    plain = ProducerCore(core_of(rig.cluster), ProducerSettings())
    with pytest.raises(InvalidSetting, match="transactional_id"):
        plain.begin_transaction()
    assert not plain.has_open_transaction


def test_a_failed_send_makes_commit_raise_and_only_abort_possible(rig: Rig) -> None:
    rig.send(b"good")
    rig.flush()
    rig.refuse(ErrorCode.MESSAGE_TOO_LARGE)
    rig.send(b"bad")
    with pytest.raises(AbortRequired, match="t-0"):
        rig.commit()
    assert rig.cluster.requests(EndTxnRequest) == []
    for call in (rig.commit, rig.producer.begin_transaction, rig.flush, rig.send_offsets):
        with pytest.raises(AbortRequired):
            call()
    with pytest.raises(AbortRequired):
        rig.send(b"more")
    assert rig.producer.has_open_transaction
    rig.abort()
    assert rig.broker.ends == [(False, [P0])]
    rig.producer.begin_transaction()
    rig.send(b"next")
    rig.commit()
    assert rig.broker.logs.values == {P0: [b"good", b"next"]}
    inits = rig.cluster.requests(InitProducerIdRequest)
    held = [
        request.producer_epoch for request in inits if isinstance(request, InitProducerIdRequest)
    ]
    assert held == ([-1, 0] if rig.version == 1 else [-1]), "version 1 raises its epoch by itself"


def test_batches_waiting_behind_a_failed_one_are_given_up(rig: Rig) -> None:
    rig.refuse(ErrorCode.MESSAGE_TOO_LARGE)
    for number in range(8):
        rig.send(b"%d" % number)
        if not rig.deliveries:
            run_blocking(rig.producer.step(everything=True))
        if rig.producer._transactions and rig.producer._transactions.state.error:
            break
    with pytest.raises(AbortRequired):
        rig.flush()
    assert rig.producer.is_idle
    rig.abort()
    rig.producer.begin_transaction()
    rig.commit()


def test_records_that_are_too_old_break_the_transaction(rig: Rig) -> None:
    rig.cluster.topics["t"][0] = -1
    rig.refuse(*[ErrorCode.NOT_LEADER_OR_FOLLOWER] * 200)
    rig.send(b"a")
    with pytest.raises(AbortRequired):
        rig.commit()
    rig.cluster.topics["t"][0] = 1
    rig.broker.logs.refuse.clear()
    rig.abort()
    rig.producer.begin_transaction()
    rig.send(b"b")
    rig.commit()
    assert rig.broker.logs.values == {P0: [b"b"]}


def test_a_sequence_that_does_not_fit_breaks_the_transaction(rig: Rig) -> None:
    """Another identity, as without transactions, would be no part of it."""
    rig.refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    rig.send(b"a")
    with pytest.raises(AbortRequired) as raised:
        rig.commit()
    assert isinstance(raised.value.__cause__, OutOfOrderSequenceNumber)
    rig.abort()


@pytest.mark.parametrize(
    "code",
    [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE],
)
@pytest.mark.parametrize("key", [ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN])
def test_a_fenced_producer_is_unusable(rig: Rig, key: ApiKey, code: ErrorCode) -> None:
    rig.send(b"a")
    rig.flush()
    rig.broker.fates[key] = [code]
    fenced = rig.commit if key is ApiKey.END_TXN else rig.send_offsets
    with pytest.raises(ProducerUnusable, match="close this producer"):
        fenced()
    for call in (rig.abort, rig.commit, rig.producer.begin_transaction, lambda: rig.send(b"b")):
        with pytest.raises(ProducerUnusable) as raised:
            call()
        assert getattr(raised.value.__cause__, "code", None) is code
    assert not rig.producer.has_open_transaction


def test_a_fenced_start_is_reported() -> None:
    rig = Rig(2)
    rig.broker.fates[ApiKey.INIT_PRODUCER_ID] = [ErrorCode.PRODUCER_FENCED]
    with pytest.raises(ProducerUnusable) as raised:
        run_blocking(rig.producer.init_transactions())
    assert isinstance(raised.value.__cause__, ProducerFenced)


def test_an_old_epoch_in_a_partition_breaks_the_transaction_and_its_end_tells_the_rest(
    rig: Rig,
) -> None:
    rig.refuse(ErrorCode.INVALID_PRODUCER_EPOCH)
    rig.send(b"a")
    with pytest.raises(AbortRequired) as raised:
        rig.commit()
    assert isinstance(raised.value.__cause__, InvalidProducerEpoch)
    rig.broker.fates[ApiKey.END_TXN] = [ErrorCode.PRODUCER_FENCED]
    with pytest.raises(ProducerUnusable):
        rig.abort()


@pytest.mark.parametrize(
    "code", [ErrorCode.PRODUCER_FENCED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
)
def test_refusals_of_batches_for_good_ruin_the_producer(rig: Rig, code: ErrorCode) -> None:
    rig.refuse(code)
    rig.send(b"a")
    with pytest.raises(ProducerUnusable):
        rig.flush()


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ],
)
def test_refused_offsets_break_the_transaction(rig: Rig, code: ErrorCode) -> None:
    rig.send(b"a")
    rig.broker.fates[ApiKey.TXN_OFFSET_COMMIT] = [code]
    with pytest.raises(AbortRequired):
        rig.send_offsets()
    rig.abort()
    rig.producer.begin_transaction()
    rig.send_offsets(6)
    rig.commit()
    assert rig.broker.committed == {("g", "t", 0): 6}


def test_an_end_that_is_abortable_leaves_the_abort(rig: Rig) -> None:
    rig.send(b"a")
    rig.broker.fates[ApiKey.END_TXN] = [ErrorCode.TRANSACTION_ABORTABLE]
    with pytest.raises(AbortRequired):
        rig.commit()
    rig.abort()
    assert rig.broker.ends == [(False, [P0])]


def test_a_partition_that_may_not_be_added_breaks_the_transaction() -> None:
    rig = Rig(1).started()
    rig.broker.fates[ApiKey.ADD_PARTITIONS_TO_TXN] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    rig.send(b"a")
    with pytest.raises(AbortRequired):
        rig.flush()
    rig.abort()
    assert rig.cluster.requests(EndTxnRequest) == [], "the coordinator has nothing to end"
    assert rig.broker.logs.values == {}


def test_a_partition_whose_addition_is_not_answered_breaks_the_transaction() -> None:
    rig = Rig(1)
    rig.cluster.handlers[ApiKey.ADD_PARTITIONS_TO_TXN] = lambda *_: AddPartitionsToTxnResponse()
    rig.started()
    rig.send(b"a")
    with pytest.raises(AbortRequired, match="expected an answer about t-0, found none"):
        rig.commit()
    rig.abort()
    assert rig.broker.logs.values == {}


def test_offsets_that_are_not_answered_break_the_transaction(rig: Rig) -> None:
    rig.cluster.handlers[ApiKey.TXN_OFFSET_COMMIT] = lambda *_: TxnOffsetCommitResponse()
    with pytest.raises(AbortRequired, match="expected an answer about t-0, found none"):
        rig.send_offsets()
    with pytest.raises(AbortRequired):
        rig.commit()
    rig.abort()
    assert rig.broker.committed == {}


def test_an_id_that_was_forgotten_begins_anew() -> None:
    """INVALID_PRODUCER_ID_MAPPING: nothing is left that could be ended."""
    rig = Rig(1).started()
    rig.broker.fates[ApiKey.ADD_PARTITIONS_TO_TXN] = [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    rig.send(b"a")
    with pytest.raises(AbortRequired):
        rig.commit()
    rig.abort()
    assert rig.cluster.requests(EndTxnRequest) == []
    rig.producer.begin_transaction()
    rig.send(b"b")
    rig.commit()
    assert rig.broker.logs.values == {P0: [b"b"]}


def test_an_id_that_is_forgotten_before_the_abort_begins_anew_when_that_is_repeated() -> None:
    rig = Rig(2).started()
    rig.send(b"a")
    rig.flush()
    rig.broker.fates[ApiKey.END_TXN] = [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    with pytest.raises(InvalidProducerIdMapping):
        rig.abort()
    rig.abort()
    rig.producer.begin_transaction()
    rig.send(b"b")
    rig.commit()
    assert rig.broker.ends == [(True, [P0])]


def test_a_coordinator_that_is_silent_breaks_what_it_was_to_add() -> None:
    rig = Rig(1).started()
    answer = rig.cluster.handlers[ApiKey.ADD_PARTITIONS_TO_TXN]
    rig.cluster.handlers[ApiKey.ADD_PARTITIONS_TO_TXN] = lambda *_: NOTHING
    rig.send(b"a")
    with pytest.raises(AbortRequired):
        rig.flush()
    rig.cluster.handlers[ApiKey.ADD_PARTITIONS_TO_TXN] = answer
    rig.abort()
    assert rig.broker.ends == [(False, [])], "it may have added it"


def test_brokers_that_cannot_raise_an_epoch_end_the_producer() -> None:
    rig = Rig(1)
    rig.cluster.newest[ApiKey.INIT_PRODUCER_ID] = 2
    rig.started()
    rig.refuse(ErrorCode.MESSAGE_TOO_LARGE)
    rig.send(b"a")
    with pytest.raises(AbortRequired):
        rig.commit()
    with pytest.raises(ProducerUnusable) as raised:
        rig.abort()
    assert isinstance(raised.value.__cause__, NotSupported)


def test_a_lost_batch_is_written_once(rig: Rig) -> None:
    def written_but_lost(broker: int, topic: str, partition: int, batch: bytes) -> object:
        rig.broker.logs.write(topic, partition, batch)
        return LOST

    rig.broker.logs.refuse = [written_but_lost]
    rig.send(b"a")
    rig.commit()
    assert rig.broker.logs.values == {P0: [b"a"]}


def test_an_abort_waits_for_what_is_in_flight(rig: Rig) -> None:
    def lost(broker: int, topic: str, partition: int, batch: bytes) -> object:
        return LOST

    rig.broker.logs.refuse = [lost]
    rig.send(b"a")
    run_blocking(rig.producer.step(everything=True))
    assert not is_idle(rig.producer)
    rig.abort()
    assert is_idle(rig.producer)
    assert rig.broker.logs.values == {}, "it is not sent again"
    rig.producer.begin_transaction()
    rig.send(b"b")
    rig.commit()
    assert rig.broker.logs.values == {P0: [b"b"]}
