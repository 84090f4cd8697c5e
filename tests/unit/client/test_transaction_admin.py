"""Transactional ids seen from outside: requests to coordinators that are not ready are retried."""

import pytest

from raylog.client.admin.transactions import TransactionAdmin, transactions_on
from raylog.client.errors import NotKafka
from raylog.client.io import run_blocking
from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode, TransactionalIdNotFound
from raylog.wire.messages import describe_transactions as described
from raylog.wire.messages import list_transactions as listed
from tests.worlds.client.cluster import FakeCluster, core_of


def test_a_coordinator_that_loads_is_asked_again() -> None:
    cluster = FakeCluster(2)
    answers = [ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]

    def listing(broker: int, _: object) -> listed.ListTransactionsResponse:
        if broker == 1:
            return listed.ListTransactionsResponse()
        code = answers.pop()
        states = [listed.TransactionState(transactional_id="t", producer_id=7)]
        return listed.ListTransactionsResponse(
            error_code=code, transaction_states=states if code == ErrorCode.NONE else []
        )

    def describing(broker: int, _: object) -> described.DescribeTransactionsResponse:
        code = ErrorCode.NOT_COORDINATOR if broker == 1 else answers.pop()
        state = described.TransactionState(transactional_id="t", producer_id=7, error_code=code)
        return described.DescribeTransactionsResponse(transaction_states=[state])

    cluster.handlers[ApiKey.LIST_TRANSACTIONS] = listing
    cluster.handlers[ApiKey.DESCRIBE_TRANSACTIONS] = describing
    admin = TransactionAdmin(core_of(cluster))
    (one,) = run_blocking(admin.list_transactions())
    assert (one.transactional_id, one.coordinator) == ("t", 2)
    answers += [ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    found = run_blocking(admin.describe_transaction("t"))
    assert (found.coordinator, found.producer_id) == (2, 7)
    answers.append(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    with pytest.raises(TransactionalIdNotFound):
        run_blocking(admin.describe_transaction("t"))
    assert not answers


def test_an_answer_that_leaves_out_a_transactional_id_is_refused() -> None:
    def describing(_: int, request: object) -> described.DescribeTransactionsResponse:
        state = described.TransactionState(transactional_id="a", producer_id=7)
        return described.DescribeTransactionsResponse(transaction_states=[state])

    cluster = FakeCluster(handlers={ApiKey.DESCRIBE_TRANSACTIONS: describing})
    core = core_of(cluster)
    run_blocking(core.refresh([]))
    with pytest.raises(NotKafka, match="expected an answer about transactional id 'b', found none"):
        run_blocking(transactions_on(core, 1, ["a", "b"]))
