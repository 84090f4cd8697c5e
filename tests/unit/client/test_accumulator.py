"""Batches from their first record to their end."""

import threading
from contextlib import suppress

import pytest

from raylog.client.cluster import TopicPartition
from raylog.client.errors import RecordTooLarge
from raylog.client.producer.accumulator import Accumulator, Appended, Batch, ProducerIdentity
from raylog.client.producer.batch import RECORD_OBJECTS_BYTES
from raylog.wire.records import Record, encode_batch

KEY = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
ALL = 1 << 30


class Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def record(value: bytes = b"x" * 80, key: bytes | None = None) -> Record:
    return Record(0, 1000, key, value, [])


def new(clock: Clock | None = None, *, idempotent: bool = True) -> Accumulator:
    accumulator = Accumulator(
        batch_bytes=500,
        record_bytes_max=1500,
        buffer_bytes=2000 + 4 * RECORD_OBJECTS_BYTES,
        idempotent=idempotent,
        now_ms=clock or Clock(),
    )
    if idempotent:
        assert accumulator.needs_identity
        accumulator.renew(ProducerIdentity(7, 0))
    for key in (KEY, OTHER):
        accumulator.open(key)
    return accumulator


def in_flight(accumulator: Accumulator, count: int) -> list[Batch]:
    """Send that many batches of one record each."""
    batches = []
    for _ in range(count):
        accumulator.append(KEY, record())
        batches += accumulator.drain([KEY], ALL)
    return batches


def test_a_batch_is_ready_when_it_is_full_or_has_lingered() -> None:
    clock = Clock()
    accumulator = new(clock)
    assert accumulator.append(KEY, record()) is Appended.BEGUN
    assert accumulator.ready(4, linger_ms=5) == []
    assert accumulator.next_ready_ms(5) == 5
    assert accumulator.ready(5, linger_ms=5) == [KEY]
    full = [accumulator.append(KEY, record()) for _ in range(5)]
    assert full.index(Appended.FULL) == 3, "500 bytes hold 61 + 4 times 100"
    assert accumulator.ready(0, linger_ms=5) == [KEY]


def test_the_size_estimate_is_an_upper_bound() -> None:
    accumulator = new()
    records = [
        Record(0, 1000 + i * 10**9, b"k" * i, b"v" * 50, [("é" * i, None), ("h", b"x" * i)])
        for i in range(4)
    ]
    for each in records:
        accumulator.append(KEY, each)
    estimate = sum(batch.size for batch in [accumulator._queues[KEY].batches[0]])
    assert len(encode_batch(records)) <= estimate <= len(encode_batch(records)) + 200


def test_a_partition_must_be_opened() -> None:
    with pytest.raises(KeyError):
        new().append(("u", 0), record())


def test_a_full_buffer_is_reported() -> None:
    accumulator = new()
    results = [accumulator.append(key, record(b"x" * 400)) for key in (KEY, OTHER, KEY, OTHER)]
    assert results == [Appended.BEGUN, Appended.BEGUN, Appended.FULL, Appended.FULL]
    full = [accumulator.is_full]
    assert accumulator.append(KEY, record(b"x" * 400))
    full.append(accumulator.is_full)
    for batch in accumulator.drain([KEY], ALL):
        accumulator.acknowledged(batch)
    assert [*full, accumulator.is_full] == [False, True, False]


def test_sequences_follow_the_records() -> None:
    accumulator = new()
    for _ in range(3):
        accumulator.append(KEY, record())
    accumulator.append(OTHER, record())
    first = accumulator.drain([KEY, OTHER], ALL)
    assert [(batch.key, batch.sequence) for batch in first] == [(KEY, 0), (OTHER, 0)]
    accumulator.append(KEY, record())
    assert [batch.sequence for batch in accumulator.drain([KEY], ALL)] == [3]
    assert accumulator.in_flight == 3


def test_a_request_takes_no_more_than_its_bytes_but_one_batch_at_least() -> None:
    accumulator = new()
    accumulator.append(KEY, record())
    accumulator.append(OTHER, record())
    assert [batch.key for batch in accumulator.drain([KEY, OTHER], 200)] == [KEY]
    assert [batch.key for batch in accumulator.drain([OTHER], 1)] == [OTHER]


def test_repeats_wait_for_what_is_in_flight_and_go_out_in_order() -> None:
    accumulator = new()
    first, second, third = in_flight(accumulator, 3)
    accumulator.append(KEY, record())
    accumulator.refused(second, 50)
    assert accumulator.ready(30, 0) == [], "the first is still unanswered"
    accumulator.acknowledged(first)
    accumulator.refused(third, 40)
    assert accumulator.ready(49, 0) == []
    assert accumulator.ready(50, 0) == [KEY]
    again = [accumulator.drain([KEY], ALL)[0] for _ in range(3)]
    assert again[:2] == [second, third]
    assert [batch.sequence for batch in again] == [1, 2, 3]
    assert [batch.attempts for batch in again] == [2, 2, 1]


def test_an_earlier_unsettled_batch_explains_a_sequence_that_does_not_fit() -> None:
    accumulator = new()
    first, second = in_flight(accumulator, 2)
    assert not accumulator.follows_unsettled(first)
    assert accumulator.follows_unsettled(second)
    accumulator.refused(first, 0)
    assert accumulator.follows_unsettled(second)


def test_a_failed_batch_calls_for_a_new_identity() -> None:
    accumulator = new()
    first, second = in_flight(accumulator, 2)
    accumulator.append(KEY, record())
    accumulator.failed(first)
    needed = [accumulator.needs_identity]  # the second is still unanswered
    assert accumulator.ready(0, 0) == []
    accumulator.resequence(second, 0)
    assert [*needed, accumulator.needs_identity] == [False, True]
    assert accumulator.renew(ProducerIdentity(8, 0)) == []
    sent = [accumulator.drain([KEY], ALL)[0] for _ in range(2)]
    assert [(batch.identity.producer_id, batch.sequence) for batch in sent] == [(8, 0), (8, 1)]
    assert sent[0] is second


def test_under_a_new_identity_what_may_be_written_is_not_sent_again() -> None:
    accumulator = new()
    first, second = in_flight(accumulator, 2)
    accumulator.failed(first)
    second.may_be_written = True
    accumulator.refused(second, 0)
    assert accumulator.renew(ProducerIdentity(8, 0)) == [second]
    assert accumulator.is_empty
    assert accumulator.held_bytes == 0


def test_behind_a_gap_what_was_clearly_refused_is_sent_again_in_order() -> None:
    accumulator = new()
    first, second, third, fourth = in_flight(accumulator, 4)
    accumulator.append(KEY, record())
    accumulator.failed(first)
    third.may_be_written = True
    for batch in (second, third, fourth):
        accumulator.refused(batch, 0)
    assert accumulator.renew(ProducerIdentity(7, 1)) == [third]
    sent = [accumulator.drain([KEY], ALL)[0] for _ in range(3)]
    assert sent[:2] == [second, fourth]
    assert [(batch.identity.producer_epoch, batch.sequence) for batch in sent] == [
        (1, 0),
        (1, 1),
        (1, 2),
    ]


def test_other_partitions_than_that_with_the_gap_keep_their_identity() -> None:
    """KIP-360: their repeats are recognized, whatever has become of them."""
    accumulator = new()
    (failed,) = in_flight(accumulator, 1)
    accumulator.append(OTHER, record())
    (again,) = accumulator.drain([OTHER], ALL)
    accumulator.failed(failed)
    again.may_be_written = True
    accumulator.append(OTHER, record())
    assert accumulator.renew(ProducerIdentity(7, 1)) == [], "it is unanswered"
    accumulator.refused(again, 0)
    assert accumulator.renew(ProducerIdentity(7, 2)) == [], "it is sent again"
    sent = [accumulator.drain([OTHER], ALL)[0] for _ in range(2)]
    assert sent[0] is again
    assert [(batch.identity.producer_epoch, batch.sequence) for batch in sent] == [(0, 0), (0, 1)]
    for batch in sent:
        accumulator.acknowledged(batch)
    accumulator.renew(ProducerIdentity(7, 3))
    accumulator.append(OTHER, record())
    (last,) = accumulator.drain([OTHER], ALL)
    assert (last.identity.producer_epoch, last.sequence) == (3, 0)


def test_batches_behind_an_unanswered_one_are_limited() -> None:
    """The old leader may be silent while the new one acknowledges; then it gets the repeat."""
    accumulator = new()
    first, silent = in_flight(accumulator, 2)
    accumulator.acknowledged(first)
    for _ in range(4):
        assert accumulator.ready(0, 0) == []
        accumulator.append(KEY, record())
        assert accumulator.ready(0, 0) == [KEY]
        (batch,) = accumulator.drain([KEY], ALL)
        accumulator.acknowledged(batch)
    accumulator.append(KEY, record())
    assert accumulator.ready(0, 0) == []
    accumulator.refused(silent, 0)
    assert accumulator.drain(accumulator.ready(0, 0), ALL) == [silent]
    accumulator.acknowledged(silent)
    assert accumulator.ready(0, 0) == [KEY]


def test_one_batch_is_in_flight_until_brokers_know_the_producer() -> None:
    """They accept any first sequence: if they refuse the first batch, they may take the second."""
    accumulator = new()

    def second_may_leave() -> bool:
        (first,) = in_flight(accumulator, 1)
        accumulator.append(KEY, record())
        may_leave = accumulator.ready(0, 0) == [KEY]
        accumulator.acknowledged(first)
        for batch in accumulator.drain(accumulator.ready(0, 0), ALL):
            accumulator.acknowledged(batch)
        return may_leave

    results = [second_may_leave(), second_may_leave()]
    accumulator.renew(ProducerIdentity(7, 1))
    results.append(second_may_leave())
    accumulator.renew(ProducerIdentity(8, 0))
    assert [*results, second_may_leave()] == [False, True, True, False]


def test_a_failure_of_the_old_identity_does_not_end_the_new_one() -> None:
    accumulator = new()
    first, second = in_flight(accumulator, 2)
    accumulator.failed(first)
    accumulator.acknowledged(second)
    accumulator.renew(ProducerIdentity(8, 0))
    (third,) = in_flight(accumulator, 1)
    third.identity = ProducerIdentity(7, 0)
    accumulator.failed(third)
    assert not accumulator.needs_identity


def test_batches_that_wait_too_long_are_given_up() -> None:
    clock = Clock()
    accumulator = new(clock)
    accumulator.append(KEY, record())
    clock.now = 10
    accumulator.append(OTHER, record())
    assert accumulator.expire(1_000, timeout_ms=20) == []  # nobody has tried
    assert accumulator.next_expiry_ms(20) == float("inf")
    accumulator.postpone(KEY, 20)
    accumulator.postpone(OTHER, 20)
    assert accumulator.next_expiry_ms(20) == 20
    assert accumulator.expire(19, timeout_ms=20) == []
    expired = accumulator.expire(20, timeout_ms=20)
    assert [batch.key for batch in expired] == [KEY]
    assert not accumulator.needs_identity, "it was never sent"
    accumulator.append(KEY, record())
    assert len(accumulator.drain([KEY, OTHER], ALL)) == 2


def test_the_time_of_a_batch_that_nobody_looked_at_begins_with_the_first_try() -> None:
    clock = Clock()
    accumulator = new(clock)
    accumulator.append(KEY, record())
    clock.now = 100
    accumulator.postpone(KEY, 101)
    assert accumulator.expire(100, timeout_ms=20) == []
    clock.now = 110
    accumulator.postpone(KEY, 111)
    assert accumulator.next_expiry_ms(20) == 120
    assert len(accumulator.expire(120, timeout_ms=20)) == 1


def test_give_up_returns_batches_that_are_not_in_flight() -> None:
    accumulator = new()
    first, second = in_flight(accumulator, 2)
    accumulator.append(KEY, record())
    accumulator.refused(second, 0)
    given_up = accumulator.give_up()
    assert given_up[0] is second
    assert len(given_up) == 2
    assert accumulator.in_flight == 1
    accumulator.acknowledged(first)
    assert accumulator.needs_identity, "a sequence is lost"
    assert accumulator.is_empty
    assert accumulator.held_bytes == 0


def test_without_idempotence_batches_have_no_sequence() -> None:
    accumulator = new(idempotent=False)
    (batch,) = in_flight(accumulator, 1)
    assert (batch.sequence, batch.identity) == (-1, ProducerIdentity(-1, -1))
    accumulator.failed(batch)
    assert not accumulator.needs_identity


def test_sequences_wrap() -> None:
    accumulator = new()
    accumulator._queues[KEY].next_sequence = 0x7FFFFFFF
    first, second = in_flight(accumulator, 2)
    assert (first.sequence, second.sequence) == (0x7FFFFFFF, 0)
    assert accumulator.follows_unsettled(second)
    assert not accumulator.follows_unsettled(first)


def test_a_record_that_no_request_may_hold_is_refused_and_nothing_else() -> None:
    """Brokers close the connection on it: it was sent again until its time was up."""
    accumulator = new()
    assert accumulator.append(KEY, record()) is Appended.BEGUN
    held = accumulator.held_bytes
    for refused in (record(b"x" * 1501), record(b"x" * 1000, b"k" * 501)):
        with pytest.raises(RecordTooLarge, match=r"at most 1500 bytes .*, found one of 15\d\d: "):
            accumulator.append(KEY, refused)
        with pytest.raises(RecordTooLarge):
            accumulator.append(OTHER, refused)
    assert accumulator.held_bytes == held
    assert accumulator.append(KEY, record(b"x" * 1400)) is Appended.FULL
    assert accumulator.append(OTHER, record()) is Appended.BEGUN
    batches = accumulator.drain([KEY, OTHER], ALL)
    assert [len(batch.records) for batch in batches] == [1, 1]


class Interrupted:
    """A lock whose user presses Ctrl-C as soon as a call of `acquire` is over."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.release = self.lock.release

    def acquire(self) -> None:
        self.lock.acquire()
        raise KeyboardInterrupt

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *exception: object) -> None:
        self.lock.release()


def test_an_interrupted_caller_leaves_no_lock_behind() -> None:
    """Python may raise KeyboardInterrupt between `acquire` and `try`, but not within `with`."""
    accumulator, lock = new(), Interrupted()
    accumulator._lock = lock  # type: ignore[assignment]  # a fake
    with suppress(KeyboardInterrupt):
        accumulator.append(KEY, record())
    assert not lock.lock.locked()


def test_a_record_above_the_maximum_does_not_join_an_open_batch() -> None:
    accumulator = Accumulator(
        batch_bytes=5_000,
        record_bytes_max=1_000,
        buffer_bytes=100_000,
        idempotent=False,
        now_ms=Clock(),
    )
    accumulator.open(KEY)
    accumulator.append(KEY, record(b"x"))
    with pytest.raises(RecordTooLarge, match="1000"):
        accumulator.append(KEY, record(b"x" * 2_000))
