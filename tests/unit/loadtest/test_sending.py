"""A sender: the ledger and the recorder hold the outcome of its records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from raylog.client import Delivery, KafkaError, Producer
from raylog.loadtest.ledger import UNKNOWN_OFFSET, Fate, merged
from raylog.loadtest.local import SENDERS_PER_WORKER, Local
from raylog.loadtest.records import heads, torn
from raylog.loadtest.results import Operation
from raylog.loadtest.scenario import ProducerUsers, Scenario
from raylog.loadtest.sending import UNFINISHED, Sender, Sent
from raylog.wire.errors import RequestTimedOut

ENTRY: dict[str, Any] = {"kind": "producer", "topic": "t", "rate": 1}


class FakeProducer:
    """Accepts rows, which the test completes."""

    def __init__(self, refuses_from: int = 1_000) -> None:
        self.taken: list[tuple[int, Sequence[Any], Sent]] = []
        self._refuses_from = refuses_from

    def partitions_for(self, topic: str) -> list[int]:
        return [0, 1]

    def send_rows(
        self, topic: str, rows: Sequence[Any], *, partition: int, on_delivery: Sent
    ) -> int:
        if len(self.taken) >= self._refuses_from:
            raise RequestTimedOut("the buffer is full")
        self.taken.append((partition, rows, on_delivery))
        return len(rows)

    def end(self, call: int, row: int, count: int, offset: int, error: KafkaError | None) -> None:
        partition, _, ended = self.taken[call]
        ended(row, Delivery("t-run", partition, offset, count, error))


def local_of(entry: dict[str, Any], worker: int = 0) -> Local:
    scenario = Scenario.model_validate(
        {
            "name": "s",
            "question": "?",
            "duration_s": 10,
            "warmup_s": 0,
            "topics": {"t": {}},
            "users": [entry],
        }
    )
    return Local(scenario, "run", "127.0.0.1:9092", worker, 3)


def sender_of(
    producer: FakeProducer, local: Local, *, is_answered: bool = True, batch_bytes: int = 220
) -> Sender:
    (entry,) = local.scenario.users
    assert isinstance(entry, ProducerUsers)
    return Sender(
        local,
        entry,
        cast("Producer[bytes, bytes]", producer),
        batch_bytes=batch_bytes,
        is_answered=is_answered,
    )


def ledger(local: Local) -> list[list[int]]:
    rows = merged([local.ledger.take()]).get("t-run")
    return [] if rows is None else rows.tolist()


def produced(local: Local) -> Operation:
    (operation,) = local.recorder.take()
    return operation


def test_records_are_numbered_by_partition() -> None:
    local, producer = local_of(ENTRY, worker=2), FakeProducer()
    sender = sender_of(producer, local)
    assert sender.number == 2 * SENDERS_PER_WORKER
    sender.send([100, 200, 300, 400, 500])
    assert [(partition, len(rows)) for partition, rows, _ in producer.taken] == [
        (0, 2),
        (1, 2),
        (0, 1),
    ]
    values = [value for _, rows, _ in producer.taken for value in rows]
    assert torn(values) == []
    columns = heads(values)
    assert columns["sequence"].tolist() == [0, 1, 0, 1, 2]
    assert columns["intended_us"].tolist() == [100, 200, 300, 400, 500]
    assert set(columns["sender"].tolist()) == {sender.number}


def test_acknowledged_records_are_recorded_with_their_offsets() -> None:
    local, producer = local_of(ENTRY), FakeProducer()
    sender = sender_of(producer, local, batch_bytes=10_000)
    now_us = local.clock.now_us()
    sender.send([now_us - 500_000] * 4)
    producer.end(0, 0, 3, 70, None)
    producer.end(0, 3, 1, 90, None)
    assert ledger(local) == [
        [0, 0, 0, 70, 3, Fate.ACKNOWLEDGED],
        [0, 0, 3, 90, 1, Fate.ACKNOWLEDGED],
    ]
    found = produced(local)
    assert sum(interval.requests for interval in found.intervals) == 4
    assert sum(interval.bytes for interval in found.intervals) == 400
    sender.give_up()
    assert ledger(local) == []


def test_failed_or_unfinished_sends_are_unanswered() -> None:
    local, producer = local_of(ENTRY), FakeProducer()
    sender = sender_of(producer, local, batch_bytes=10_000)
    sender.send([0] * 6)
    producer.end(0, 4, 2, UNKNOWN_OFFSET, RequestTimedOut("nobody answers"))
    producer.end(0, 1, 2, 5, None)
    sender.give_up()
    fates = {
        first + at: Fate(fate)
        for _, _, first, _, count, fate in ledger(local)
        for at in range(count)
    }
    assert fates == {
        0: Fate.UNANSWERED,
        1: Fate.ACKNOWLEDGED,
        2: Fate.ACKNOWLEDGED,
        3: Fate.UNANSWERED,
        4: Fate.UNANSWERED,
        5: Fate.UNANSWERED,
    }
    assert produced(local).errors == {UNFINISHED: 2, "REQUEST_TIMED_OUT: nobody answers": 2}


def test_without_acknowledgements_nothing_is_promised() -> None:
    local, producer = local_of(ENTRY), FakeProducer()
    sender = sender_of(producer, local, is_answered=False)
    sender.send([0])
    producer.end(0, 0, 1, UNKNOWN_OFFSET, None)
    assert ledger(local) == [[0, 0, 0, UNKNOWN_OFFSET, 1, Fate.UNANSWERED]]


@pytest.mark.parametrize("fate", [Fate.ACKNOWLEDGED, Fate.ABORTED])
def test_the_fate_of_a_transaction_is_that_of_its_records(fate: Fate) -> None:
    local, producer = local_of(ENTRY), FakeProducer()
    sender = sender_of(producer, local, batch_bytes=10_000)
    sender.begin_transaction()
    sender.send([0, 0])
    producer.end(0, 0, 2, 40, None)
    assert ledger(local) == []
    sender.end_transaction(fate)
    assert ledger(local) == [[0, 0, 0, 40, 2, fate]]
    sender.send([0])
    producer.end(1, 0, 1, 43, None)
    assert ledger(local) == [[0, 0, 2, 43, 1, Fate.ACKNOWLEDGED]]


def test_an_open_transaction_is_given_up_as_a_whole() -> None:
    local, producer = local_of(ENTRY), FakeProducer()
    sender = sender_of(producer, local, batch_bytes=10_000)
    sender.begin_transaction()
    sender.send([0, 0])
    producer.end(0, 0, 1, 40, None)
    sender.give_up(Fate.ABORTED)
    assert sorted(row[2] for row in ledger(local)) == [0, 1]


def test_refused_send_fails_all_later_records_of_the_call() -> None:
    local, producer = local_of(ENTRY), FakeProducer(refuses_from=1)
    sender = sender_of(producer, local)
    with pytest.raises(RequestTimedOut):
        sender.send([0] * 6)
    producer.end(0, 0, 2, 0, None)
    sender.give_up()
    failed = produced(local)
    assert sum(interval.requests for interval in failed.intervals) == 2
    assert sum(interval.failures for interval in failed.intervals) == 4
