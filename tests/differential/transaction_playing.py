"""Plays the sessions about transactions to one broker."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from raylog.wire.errors import ErrorCode
from raylog.wire.messages.describe_transactions import DescribeTransactionsRequest
from raylog.wire.messages.find_coordinator import FindCoordinatorRequest
from raylog.wire.messages.init_producer_id import InitProducerIdRequest
from tests.differential import playing
from tests.differential.session import Session
from tests.differential.session_stage import Transcript
from tests.support.wire_client import WireClient

RECORDED = Path(__file__).with_name("apache-kafka-4.3.1-transactions.json")
SETTINGS = playing.SETTINGS | {
    "transaction.state.log.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
TWO_PHASE_RECORDED = Path(__file__).with_name("apache-kafka-4.3.1-two-phase.json")
TWO_PHASE_SETTINGS = SETTINGS | {"transaction.two.phase.commit.enable": "true"}
UNSTABLE = {"unstable.api.versions.enable": "true"}
"""Apache Kafka serves InitProducerId 6 with this only."""
TRANSACTIONAL_ID = 1
"""Key type of FindCoordinator."""


def play(
    address: str, sessions: Iterable[Session], expected: Mapping[str, Transcript] | None = None
) -> playing.Transcripts:
    """Play sessions to a fresh broker once its transaction coordinator serves."""
    prepare(address)
    return playing.play(address, sessions, expected)


def prepare(address: str) -> None:
    """Wait until the transaction coordinator of a fresh broker serves."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + playing.START_S
    ids = [f"warm-up-{number}" for number in range(50)]
    with WireClient(host, int(port)) as client:
        # Refusals say that the producer id is 0: nobody is to have it.
        while not (_serves(client, ids) and _gives_producer_ids(client)):
            assert time.monotonic() < deadline, f"no coordinators after {playing.START_S:g} s"
            time.sleep(0.05)


def _gives_producer_ids(client: WireClient) -> bool:
    """Take one; false while the broker has no block of them yet."""
    asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
    answer = client.ask(asked, 4)
    return bool(answer.error_code == ErrorCode.NONE)


def _serves(client: WireClient, ids: list[str]) -> bool:
    asked = FindCoordinatorRequest(coordinator_keys=ids, key_type=TRANSACTIONAL_ID)
    if any(one.error_code for one in client.ask(asked, 4).coordinators):
        return False
    answer = client.ask(DescribeTransactionsRequest(transactional_ids=ids), 0)
    unknown = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    return all(one.error_code == unknown for one in answer.transaction_states)
