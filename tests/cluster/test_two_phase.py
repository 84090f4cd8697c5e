"""Two-phase commit (KIP-939) on Ray: prepared transactions survive timeouts and crashes.

They also survive their producer. No client library supports it yet, so the test sends the requests.
"""

from __future__ import annotations

from typing import Any

import pytest

from raylog.actors.names import TRANSACTION
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.describe_transactions import DescribeTransactionsRequest
from raylog.wire.messages.end_txn import EndTxnRequest
from raylog.wire.messages.init_producer_id import InitProducerIdRequest
from raylog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from raylog.wire.records import Record, encode_batch
from tests.copying.clients import coordinator_of
from tests.support.ray_clusters import NewCluster, RayCluster, create, wait_until
from tests.support.transactions_read import read_committed
from tests.support.wire_client import WireClient

SETTINGS = {
    "transaction.two.phase.commit.enable": "true",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.state.log.num.partitions": "3",
}
TOPIC = "t"
TIMEOUT_MS = 500
PREPARED, TIMED = "prepared", "timed"
"""Transactional ids: of a transaction of two phases, and of one that times out beside it."""
PASSING = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}
"""After these a producer asks again."""


def ask(cluster: RayCluster, request: Any, version: int) -> Any:
    """Ask until it is answered for good, on a new connection each time."""

    def look() -> Any:
        with WireClient("127.0.0.1", cluster.ports[0]) as client:
            answer = client.ask(request, version)
        return None if _code(answer) in PASSING else answer

    return wait_until(look, f"an answer to {type(request).__name__}")


def _code(answer: Any) -> int:
    if hasattr(answer, "transaction_states"):
        answer = answer.transaction_states[0]
    if hasattr(answer, "responses"):
        answer = answer.responses[0].partition_responses[0]
    return int(answer.error_code)


def begin(cluster: RayCluster, name: str, *, two_phase: bool, keep: bool = False) -> Any:
    """InitProducerId 6, once there is a coordinator."""
    port = cluster.ports[0]
    wait_until(lambda: coordinator_of(port, TRANSACTION, name) >= 0, "a coordinator")
    request = InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=TIMEOUT_MS,
        enable_2pc=two_phase,
        keep_prepared_txn=keep,
    )
    answer = ask(cluster, request, 6)
    assert answer.error_code == ErrorCode.NONE
    return answer


def write(cluster: RayCluster, name: str, holder: Any, value: bytes) -> None:
    """One record in the transaction, which adds the partition to it."""
    batch = encode_batch(
        [Record(0, 1_000, None, value, [])],
        producer_id=holder.producer_id,
        producer_epoch=holder.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    data = [PartitionProduceData(index=0, records=batch)]
    request = ProduceRequest(
        transactional_id=name,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=TOPIC, partition_data=data)],
    )
    assert _code(ask(cluster, request, 12)) == ErrorCode.NONE


def commit(cluster: RayCluster, name: str, holder: Any) -> int:
    """EndTxn; returns the error's code."""
    request = EndTxnRequest(
        transactional_id=name,
        producer_id=holder.producer_id,
        producer_epoch=holder.producer_epoch,
        committed=True,
    )
    return _code(ask(cluster, request, 5))


def state(cluster: RayCluster, name: str) -> str:
    """Where a transactional id stands."""
    request = DescribeTransactionsRequest(transactional_ids=[name])
    found = ask(cluster, request, 0).transaction_states[0].transaction_state
    assert isinstance(found, str)
    return found


@pytest.mark.long
@pytest.mark.timeout(180)
def test_prepared_transaction_waits_for_its_commit(new_cluster: NewCluster) -> None:
    cluster = new_cluster(settings=SETTINGS)
    cluster.start()
    create(cluster.bootstrap, TOPIC)
    prepared = begin(cluster, PREPARED, two_phase=True)
    write(cluster, PREPARED, prepared, b"prepared")
    timed = begin(cluster, TIMED, two_phase=False)
    write(cluster, TIMED, timed, b"timed")

    wait_until(lambda: state(cluster, TIMED) == "CompleteAbort", "a transaction to time out")
    assert state(cluster, PREPARED) == "Ongoing"
    cluster.until_succeeded(TRANSACTION, cluster.kill(TRANSACTION))
    assert state(cluster, PREPARED) == "Ongoing"

    next_one = begin(cluster, PREPARED, two_phase=True, keep=True)
    kept = (next_one.ongoing_txn_producer_id, next_one.ongoing_txn_producer_epoch)
    assert kept == (prepared.producer_id, prepared.producer_epoch)
    cluster.until_succeeded(TRANSACTION, cluster.kill(TRANSACTION))
    assert commit(cluster, PREPARED, prepared) == ErrorCode.PRODUCER_FENCED
    assert commit(cluster, PREPARED, next_one) == ErrorCode.NONE
    wait_until(lambda: state(cluster, PREPARED).startswith("Complete"), "the transaction's end")
    assert read_committed(cluster.bootstrap, TOPIC) == [b"prepared"]
