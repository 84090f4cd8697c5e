"""Idempotent producers and transactions of one partition (KIP-98, KIP-360, KIP-890)."""

import pytest

from raylog.storage.checkpoint import PRODUCERS_KIND, encode
from raylog.storage.index import AbortedTransaction
from raylog.storage.producers import Duplicate, LastOfProducers, ProducerInfo, ProducerStates
from raylog.wire.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from raylog.wire.records import (
    BatchHeader,
    Record,
    encode_batch,
    read_header,
    set_log_append_time,
)
from tests.worlds.storage.logs import NOW_MS, batch, marker

SEQUENCE_MAX = 2**31 - 1
HALF = SEQUENCE_MAX // 2


def header(
    sequence: int = 0,
    *,
    count: int = 1,
    producer_id: int = 1,
    epoch: int = 0,
    transactional: bool = False,
) -> BatchHeader:
    return read_header(
        batch(
            count,
            producer_id=producer_id,
            producer_epoch=epoch,
            sequence=sequence,
            transactional=transactional,
        )
    )


def write(states: ProducerStates, offset: int, found: BatchHeader, now_ms: int = NOW_MS) -> None:
    assert states.check(found) is None
    states.update(found, offset, now_ms)


def end(states: ProducerStates, offset: int, producer_id: int, **kind: int | bool) -> object:
    data = marker(producer_id, commit=bool(kind.pop("commit", True)), **kind)
    return states.apply(read_header(data), offset, data, NOW_MS)


@pytest.fixture
def states() -> ProducerStates:
    return ProducerStates()


def test_sequences_go_on(states: ProducerStates) -> None:
    write(states, 0, header(0, count=3))
    write(states, 3, header(3, count=2))
    write(states, 5, header(5))


def test_an_exact_repeat_of_one_of_the_last_five_is_answered_with_its_offsets(
    states: ProducerStates,
) -> None:
    for number in range(6):
        write(states, 10 * number, header(2 * number, count=2))
    for number in range(1, 6):
        repeated = states.check(header(2 * number, count=2))
        assert repeated == Duplicate(10 * number, 10 * number + 1, -1)
    with pytest.raises(OutOfOrderSequenceNumber, match="sent sequence 0, expected 12"):
        states.check(header(0, count=2))


def test_a_repeat_of_other_length_is_out_of_order(states: ProducerStates) -> None:
    write(states, 0, header(0, count=3))
    with pytest.raises(OutOfOrderSequenceNumber):
        states.check(header(0, count=2))


@pytest.mark.parametrize("sequence", [1, 4])
def test_a_gap_or_an_overlap_is_out_of_order(states: ProducerStates, sequence: int) -> None:
    write(states, 0, header(0, count=3))
    with pytest.raises(OutOfOrderSequenceNumber, match="expected 3"):
        states.check(header(sequence))


def test_a_repeat_tells_the_log_append_time(states: ProducerStates) -> None:
    data = batch(producer_id=1)
    set_log_append_time(data, NOW_MS + 5)
    states.update(read_header(data), 0, NOW_MS)
    assert states.check(header()) == Duplicate(0, 0, NOW_MS + 5)


def test_sequences_wrap_to_zero(states: ProducerStates) -> None:
    write(states, 0, header(SEQUENCE_MAX - 1, count=2))
    write(states, 2, header(0))
    assert states.check(header(SEQUENCE_MAX - 1, count=2)) == Duplicate(0, 1, -1)


def test_a_batch_that_wraps_within_is_followed_by_what_comes_next(states: ProducerStates) -> None:
    write(states, 0, header(SEQUENCE_MAX, count=3))
    write(states, 3, header(2))


@pytest.mark.parametrize(("first", "refused"), [(7, 0), (9, 7), (0, SEQUENCE_MAX), (HALF, 0)])
def test_an_unknown_producer_may_start_anywhere_but_not_behind_what_was_refused(
    states: ProducerStates, first: int, refused: int
) -> None:
    assert states.check(header(first)) is None
    assert states.check(header(refused), must_start_at=refused) is None
    with pytest.raises(OutOfOrderSequenceNumber):
        states.check(header(first), must_start_at=refused)


def test_a_sequence_more_than_half_of_all_ahead_is_not_behind(states: ProducerStates) -> None:
    assert states.check(header(HALF + 1), must_start_at=0) is None
    assert states.check(header(0), must_start_at=HALF) is None


def test_a_new_epoch_starts_at_zero_and_ends_the_old_one(states: ProducerStates) -> None:
    write(states, 0, header(0))
    with pytest.raises(OutOfOrderSequenceNumber):
        states.check(header(1, epoch=1))
    write(states, 1, header(0, epoch=1))
    with pytest.raises(InvalidProducerEpoch, match="has epoch 0, the partition has seen 1"):
        states.check(header(1))


@pytest.mark.parametrize("raised_by_marker", [False, True])
def test_batch_of_an_earlier_producer_epoch_is_no_duplicate(
    states: ProducerStates, raised_by_marker: bool
) -> None:
    """Or records would be acknowledged that the log does not have."""
    for sequence in range(3):
        write(states, sequence, header(sequence))
    if raised_by_marker:
        end(states, 3, 1, producer_epoch=1)
    for sequence in range(3):
        write(states, 4 + sequence, header(sequence, epoch=1))
    assert states.check(header(2, epoch=1)) == Duplicate(6, 6, -1)


def test_the_last_batch_of_each_producer_is_known_and_of_others_the_epoch(
    states: ProducerStates,
) -> None:
    write(states, 0, header(0))
    write(states, 1, header(1, count=3))
    write(states, 4, header(0, producer_id=2))
    end(states, 5, 2, producer_epoch=1)
    end(states, 6, 3, producer_epoch=4)
    assert states.last_batches() == LastOfProducers({1: 3}, {2: 1, 3: 4})


def test_producers_do_not_see_each_other(states: ProducerStates) -> None:
    write(states, 0, header(0))
    write(states, 1, header(0, producer_id=2))
    write(states, 2, header(1))


def test_the_last_stable_offset_is_the_first_open_transaction(states: ProducerStates) -> None:
    assert states.last_stable_offset(50) == 50
    write(states, 10, header(0, transactional=True))
    write(states, 20, header(0, producer_id=2, transactional=True))
    write(states, 30, header(1, transactional=True))
    assert states.last_stable_offset(50) == 10
    assert states.last_stable_offset(5) == 5
    end(states, 40, 1)
    assert states.last_stable_offset(40) == 10  # the marker itself is not replicated yet
    assert states.last_stable_offset(41) == 20
    end(states, 41, 2)
    assert states.last_stable_offset(50) == 50


def test_an_aborted_transaction_knows_what_was_undecided_before_it(states: ProducerStates) -> None:
    write(states, 10, header(0, transactional=True))
    write(states, 20, header(0, producer_id=2, transactional=True))
    assert end(states, 30, 2, commit=False) == AbortedTransaction(2, 20, 30, 10)
    assert end(states, 31, 1, commit=False) == AbortedTransaction(1, 10, 31, 32)
    assert end(states, 32, 1, commit=False) is None  # it had none open


def test_a_committed_transaction_is_not_listed(states: ProducerStates) -> None:
    write(states, 10, header(0, transactional=True))
    assert end(states, 30, 1) is None
    assert states.transaction_start(1) == -1


def test_the_log_start_releases_what_ended_below_it(states: ProducerStates) -> None:
    write(states, 10, header(0, transactional=True))
    end(states, 30, 1)
    states.forget_below(31)
    assert states.last_stable_offset(20) == 20


@pytest.mark.parametrize(("log_start", "stable"), [(29, 10), (30, 10), (31, 20)])
def test_a_marker_that_is_still_there_holds_back_until_it_is_replicated(
    states: ProducerStates, log_start: int, stable: int
) -> None:
    write(states, 10, header(0, transactional=True))
    end(states, 30, 1)
    states.forget_below(log_start)
    assert states.last_stable_offset(20) == stable


def test_after_a_marker_of_a_higher_epoch_the_producer_starts_at_zero(
    states: ProducerStates,
) -> None:
    write(states, 0, header(0, transactional=True))
    end(states, 1, 1, producer_epoch=1)
    assert states.epoch_of(1) == 1
    with pytest.raises(InvalidProducerEpoch):
        states.check(header(1, transactional=True))
    with pytest.raises(OutOfOrderSequenceNumber):
        states.check(header(1, epoch=1, transactional=True))
    write(states, 2, header(0, epoch=1, transactional=True))


def test_a_write_outside_of_the_open_transaction_is_refused(states: ProducerStates) -> None:
    write(states, 0, header(0, transactional=True))
    with pytest.raises(InvalidTxnState):
        states.check(header(1))


def test_a_write_outside_of_it_is_refused_under_a_new_epoch_too(states: ProducerStates) -> None:
    write(states, 0, header(0, transactional=True))
    with pytest.raises(InvalidTxnState):
        states.check(header(0, epoch=1))
    write(states, 1, header(0, epoch=1, transactional=True))
    assert states.transaction_start(1) == 0


def test_batches_without_sequence_are_checked_only_by_epoch(states: ProducerStates) -> None:
    """A coordinator writes them, as many of one content as it likes."""
    for offset in range(7):
        write(states, offset, header(-1, epoch=3, transactional=True))
    write(states, 7, header(-1, epoch=4, transactional=True))
    assert states.transaction_start(1) == 0
    with pytest.raises(InvalidProducerEpoch):
        states.check(header(-1, epoch=3, transactional=True))
    end(states, 8, 1, producer_epoch=6)
    with pytest.raises(InvalidProducerEpoch):
        states.check(header(-1, epoch=5, transactional=True))
    write(states, 9, header(-1, epoch=6, transactional=True))


def test_old_markers_are_refused(states: ProducerStates) -> None:
    states.check_marker(header(producer_id=9), 0)  # of an unknown producer: none is older
    write(states, 0, header(0, epoch=3, transactional=True))
    end(states, 1, 1, producer_epoch=3, coordinator_epoch=5)
    states.check_marker(header(epoch=3), 5)
    with pytest.raises(InvalidProducerEpoch):
        states.check_marker(header(epoch=2), 5)
    with pytest.raises(TransactionCoordinatorFenced):
        states.check_marker(header(epoch=3), 4)


def test_producers_expire_unless_a_transaction_is_open(states: ProducerStates) -> None:
    write(states, 0, header(0), NOW_MS)
    write(states, 1, header(0, producer_id=2, transactional=True), NOW_MS)
    write(states, 2, header(0, producer_id=3), NOW_MS + 1)
    assert states.expire(NOW_MS + 1_000, 1_000) == 1
    assert [info.producer_id for info in states.describe()] == [2, 3]


def test_a_marker_is_a_sign_of_life(states: ProducerStates) -> None:
    write(states, 0, header(0, transactional=True), NOW_MS - 900)
    end(states, 1, 1)
    assert states.expire(NOW_MS + 999, 1_000) == 0
    assert states.expire(NOW_MS + 1_000, 1_000) == 1
    assert len(states) == 0


def test_a_producer_that_a_snapshot_has_too_goes_on_as_it_was(states: ProducerStates) -> None:
    write(states, 0, header(0, transactional=True))
    end(states, 1, 1, coordinator_epoch=5)
    states.snapshot()
    write(states, 2, header(1, transactional=True), NOW_MS + 7)
    assert states.describe() == [ProducerInfo(1, 0, 1, NOW_MS + 7, 5, 2)]
    assert states.check(header(0, transactional=True)) == Duplicate(0, 0, -1)
    states.snapshot()
    end(states, 3, 1, coordinator_epoch=6)
    states.snapshot()
    write(states, 4, header(0, epoch=1))
    assert states.describe() == [ProducerInfo(1, 1, 0, NOW_MS, 6, -1)]


def test_describe(states: ProducerStates) -> None:
    write(states, 5, header(0, count=4, epoch=2, transactional=True))
    assert states.describe() == [ProducerInfo(1, 2, 3, NOW_MS, -1, 5)]
    assert len(states) == 1


def test_a_snapshot_keeps_everything(states: ProducerStates) -> None:
    for number in range(3):
        write(states, number, header(number, transactional=True))
    write(states, 3, header(0, producer_id=2, transactional=True))
    end(states, 4, 1, commit=False, coordinator_epoch=6)
    restored = ProducerStates.restore(states.snapshot().encode())
    assert restored is not None
    assert restored.describe() == states.describe()
    assert restored.snapshot().encode() == states.snapshot().encode()
    assert restored.last_stable_offset(4) == states.last_stable_offset(4) == 0
    assert restored.last_stable_offset(5) == 3
    assert restored.check(header(1, transactional=True)) == Duplicate(1, 1, -1)


def test_a_snapshot_is_of_its_moment_though_it_is_encoded_later(states: ProducerStates) -> None:
    write(states, 0, header(0))
    write(states, 1, header(0, producer_id=2, transactional=True))
    before = states.snapshot()
    data = before.encode()
    write(states, 2, header(1))
    end(states, 3, 2, commit=False)
    write(states, 4, header(0, epoch=1))
    write(states, 5, header(0, producer_id=3))
    states.expire(NOW_MS + 1_000_000, 0)
    assert before.encode() == data
    assert states.snapshot().encode() != data


@pytest.mark.parametrize("cut", [0, 3, 20, -1])
def test_damaged_snapshot_is_ignored(states: ProducerStates, cut: int) -> None:
    write(states, 0, header())
    assert ProducerStates.restore(states.snapshot().encode()[:cut]) is None
    damaged = bytearray(states.snapshot().encode())
    damaged[cut] ^= 0x40
    assert ProducerStates.restore(bytes(damaged)) is None


def test_a_control_batch_that_ends_no_transaction_changes_nothing(states: ProducerStates) -> None:
    write(states, 0, header(0, transactional=True))
    other = Record(0, NOW_MS, bytes([0, 0, 0, 2]), bytes(6), [])
    data = bytearray(encode_batch([other], producer_id=1, producer_epoch=3, is_control=True))
    assert states.apply(read_header(data), 1, data, NOW_MS) is None
    assert (states.transaction_start(1), states.epoch_of(1)) == (0, 0)
    assert states.last_stable_offset(2) == 0


@pytest.mark.parametrize("lie", [None, 7, [1], {"open": 3}, {"producers": 1}])
def test_snapshot_of_another_shape_is_ignored(lie: object) -> None:
    assert ProducerStates.restore(encode(PRODUCERS_KIND, 1, lie)) is None
