"""Partitions and offsets are added to transactions and verified."""

import pytest

from raylog.actors.names import OFFSETS_TOPIC
from raylog.actors.transaction.rules.state import State
from raylog.wire.errors import ErrorCode
from tests.worlds.metadata import topic_records
from tests.worlds.transaction.shard import (
    FIRST,
    FIRST_PRODUCER_ID,
    INIT_VERSION,
    SECOND,
    TransactionWorld,
    add,
    add_first,
    codes_of,
    end,
    init,
    offsets,
)

PID = FIRST_PRODUCER_ID
FENCED = ErrorCode.PRODUCER_FENCED
UNMAPPED = ErrorCode.INVALID_PRODUCER_ID_MAPPING
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
OLD_CODE = ErrorCode.INVALID_PRODUCER_EPOCH


def started() -> TransactionWorld:
    world = TransactionWorld()
    assert not world.ask(init(), INIT_VERSION).error_code
    return world


def test_a_transaction_begins_with_its_first_partition() -> None:
    world = started()
    world.now_ms += 5_000
    assert world.ask(add(PID, 0, 0)) == [0]
    assert world.state() is State.ONGOING
    begun_ms = world.found.start_ms
    assert begun_ms == world.now_ms
    world.now_ms += 5_000
    assert world.ask(add(PID, 0, 2, 1)) == [0, 0]
    assert world.found.partitions == {"t": {0, 1, 2}}
    assert (world.found.start_ms, world.found.last_update_ms) == (begun_ms, world.now_ms)
    before = len(world.log)
    assert world.ask(add(PID, 0, 1, 2)) == [0, 0]
    assert len(world.log) == before, "what is known is not written again"


def test_unknown_and_fenced_producers_are_refused() -> None:
    world = TransactionWorld()
    for verify in (True, False):
        assert world.ask(add(PID, 0, verify=verify)) == [UNMAPPED]
    world.ask(init(), INIT_VERSION)
    world.ask(init(), INIT_VERSION)
    for verify in (True, False):
        assert world.ask(add(PID + 1, 1, verify=verify)) == [UNMAPPED]
        assert world.ask(add(PID, 0, 0, 1, verify=verify)) == [FENCED] * 2
        assert world.ask(add(PID, 2, verify=verify)) == [FENCED]


@pytest.mark.parametrize(("version", "code"), [(0, OLD_CODE), (1, OLD_CODE), (2, FENCED)])
def test_versions_before_2_know_no_fencing(version: int, code: ErrorCode) -> None:
    world = started()
    assert codes_of(world.ask(add_first(PID, 7, 0, 1), version)) == [code] * 2
    assert world.ask(offsets(PID, 7), version).error_code == (
        ErrorCode.COORDINATOR_NOT_AVAILABLE  # there is no topic of offsets yet
    )
    world.image.apply_all(topic_records(OFFSETS_TOPIC, 50))
    assert world.ask(offsets(PID, 7), version).error_code == code


def test_an_unknown_partition_keeps_the_others_out() -> None:
    world = started()
    unknown, others = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    assert codes_of(world.ask(add_first(PID, 0, 0, 3), 3)) == [others, unknown]
    assert world.ask(add(PID, 0, 0, topic="missing")) == [unknown]
    assert world.state() is State.EMPTY


@pytest.mark.parametrize("version", [FIRST, SECOND])
def test_nothing_is_added_while_a_transaction_is_completed(version: int) -> None:
    world = TransactionWorld()
    holder = world.open(version)
    world.ask(end(*holder), version)
    holder = world.found.holder
    assert world.ask(add(*holder, verify=True)) == [CONCURRENT]
    assert codes_of(world.ask(add_first(*holder), 3)) == [CONCURRENT]
    world.write_markers()
    assert world.ask(add(*holder, verify=True)) == [ABORTABLE]
    assert world.ask(add(*holder)) == [0]


def test_leaders_wait_for_the_transaction_before() -> None:
    world = TransactionWorld()
    world.ask(end(*world.open()), SECOND)
    assert world.ask(add(PID, 1, 0)) is None
    assert world.ask(add(PID, 1, 1, 2)) is None
    first, second = world.asks[-2:]
    world.write_markers()
    assert (first.answer, second.answer) == ([0], [0, 0])
    assert world.state() is State.ONGOING
    assert world.found.partitions == {"t": {0, 1, 2}}
    world.ask(end(PID, 1), SECOND)
    assert world.ask(add(PID, 2, 0)) is None
    world.crash()
    world.write_markers()
    assert world.state() is State.COMPLETE_COMMIT, "who waited has been told to ask again"


def test_verification_tells_each_partition_and_adds_none() -> None:
    world = TransactionWorld()
    holder = world.open(FIRST)
    before = len(world.log)
    assert world.ask(add(*holder, 0, 2, 1, verify=True)) == [0, ABORTABLE, 0]
    unknown, others = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    assert world.ask(add(*holder, 0, 9, verify=True)) == [others, unknown]
    assert len(world.log) == before


def test_offsets_of_a_group_are_a_partition_like_others() -> None:
    world = started()
    world.image.apply_all(topic_records(OFFSETS_TOPIC, 50))
    assert not world.ask(offsets(PID, 0), 4).error_code
    ((topic, partitions),) = world.found.partitions.items()
    assert topic == OFFSETS_TOPIC
    assert partitions == {ord("g") % 50}
    assert world.found.client_version == 0


def test_the_version_of_a_transaction_is_its_clients() -> None:
    world = started()
    world.ask(add_first(PID, 0), 3)
    assert world.found.client_version == 0
    world.ask(add(PID, 0, 1))
    assert world.found.client_version == 2
    world.crash()
    assert world.found.client_version == 2


def test_an_empty_transactional_id() -> None:
    world = started()
    request = add_first(PID, 0)
    request.v3_and_below_transactional_id = ""
    assert codes_of(world.ask(request, 3)) == [ErrorCode.INVALID_REQUEST]
