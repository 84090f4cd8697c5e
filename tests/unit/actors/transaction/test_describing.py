"""DescribeTransactions and ListTransactions."""

import pytest

from raylog.actors.transaction.rules.filtering import filter_of, unknown_states
from raylog.actors.transaction.rules.state import Transaction
from raylog.wire.errors import ErrorCode, InvalidRegularExpression
from raylog.wire.messages.describe_transactions import DescribeTransactionsRequest
from raylog.wire.messages.list_transactions import ListTransactionsRequest
from tests.support.cpu_time import cpu_s
from tests.worlds.transaction.shard import (
    FIRST_PRODUCER_ID,
    INIT_VERSION,
    SECOND,
    TransactionWorld,
    end,
    init,
)

PID = FIRST_PRODUCER_ID


def test_a_transaction_is_described() -> None:
    world = TransactionWorld()
    world.open()
    request = DescribeTransactionsRequest(transactional_ids=["x", "unknown", ""])
    found, unknown, empty = world.ask(request).transaction_states
    assert (found.error_code, found.transactional_id) == (0, "x")
    assert found.transaction_state == "Ongoing"
    assert found.transaction_timeout_ms == 60_000
    assert found.transaction_start_time_ms == world.now_ms
    assert (found.producer_id, found.producer_epoch) == (PID, 0)
    assert [(one.topic, one.partitions) for one in found.topics] == [("t", [0, 1])]
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert empty.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("committed", "label"),
    [(True, ["PrepareCommit", "CompleteCommit"]), (False, ["PrepareAbort", "CompleteAbort"])],
)
def test_states_have_kafkas_names(committed: bool, label: list[str]) -> None:
    world = TransactionWorld()
    world.ask(init(), INIT_VERSION)
    request = DescribeTransactionsRequest(transactional_ids=["x"])
    assert world.ask(request).transaction_states[0].transaction_state == "Empty"
    world.ask(end(*world.open(), committed=committed), SECOND)
    seen = [world.ask(request).transaction_states[0].transaction_state]
    world.write_markers()
    (found,) = world.ask(request).transaction_states
    assert [*seen, found.transaction_state] == label
    assert found.topics == []


def listed(world: TransactionWorld, **filters: object) -> set[str]:
    answer = world.ask(ListTransactionsRequest(**filters), 2)  # type: ignore[arg-type]  # by name
    assert not answer.error_code
    return {one.transactional_id for one in answer.transaction_states}


def test_many_producer_ids_are_looked_for_at_once() -> None:
    found = Transaction("x", producer_id=PID, producer_epoch=0)
    wanted = list(range(10**6, 10**6 + 20_000))
    request = ListTransactionsRequest(producer_id_filters=wanted)

    def filtering() -> None:
        given = filter_of(request)
        assert not any(given.passes(found, 0) for _ in range(2_000))

    assert cpu_s(filtering, 0.1) < 0.1


def test_filters() -> None:
    world = TransactionWorld()
    world.open()
    world.ask(init("idle"), INIT_VERSION)
    world.now_ms += 1_000
    assert listed(world) == {"x", "idle"}
    assert listed(world, state_filters=["Ongoing"]) == {"x"}
    assert listed(world, state_filters=["Ongoing", "Empty"]) == {"x", "idle"}
    assert listed(world, state_filters=["CompleteAbort"]) == set()
    assert listed(world, producer_id_filters=[PID + 1, 7]) == {"idle"}
    assert listed(world, duration_filter=999) == {"x", "idle"}
    assert listed(world, duration_filter=1_000) == {"idle"}
    assert listed(world, transactional_id_pattern="") == {"x", "idle"}
    assert listed(world, transactional_id_pattern="i.*") == {"idle"}
    assert listed(world, transactional_id_pattern="id") == set(), "the whole id has to match"
    assert listed(world, state_filters=["Ongoing"], producer_id_filters=[PID + 1]) == set()


def test_a_listed_transaction() -> None:
    world = TransactionWorld()
    world.open()
    (found,) = world.ask(ListTransactionsRequest(), 2).transaction_states
    assert (found.transactional_id, found.producer_id) == ("x", PID)
    assert found.transaction_state == "Ongoing"


def test_unknown_states_and_invalid_patterns_in_filters() -> None:
    world = TransactionWorld()
    world.open()
    assert unknown_states(ListTransactionsRequest(state_filters=["Odd", "Ongoing"])) == ["Odd"]
    assert listed(world, state_filters=["Odd", "Ongoing"]) == {"x"}
    assert listed(world, state_filters=["Odd"]) == set()
    with pytest.raises(InvalidRegularExpression):
        filter_of(ListTransactionsRequest(transactional_id_pattern="("))
