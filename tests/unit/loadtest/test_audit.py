"""The audit of a run reads a real broker's log: deletions, transactions, other writers."""

from __future__ import annotations

import itertools
from contextlib import closing

import pytest

from raylog.client import Admin, NewTopic, Producer, RequestTimedOut, TopicPartition
from raylog.loadtest.audit import AuditFailed, RunAudit
from raylog.loadtest.ledger import Fate, Ledger
from raylog.loadtest.missing_records import RecordRuns
from raylog.loadtest.records import encode_many, run_number

RUN = "run"
names = (f"topic-{number}" for number in itertools.count())


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = next(names)
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(name, 2)])
    return name


class Writer:
    """A sender whose ledger can be changed."""

    def __init__(self, bootstrap: str, topic: str, transactional_id: str | None = None) -> None:
        self.ledger = Ledger()
        named = {} if transactional_id is None else {"transactional.id": transactional_id}
        self.producer = Producer({"bootstrap.servers": bootstrap, **named})
        self._topic = topic
        self._next = 0

    def write(self, count: int, partition: int = 0, fate: Fate = Fate.ACKNOWLEDGED) -> None:
        """Records that are noted as they are acknowledged."""
        first, self._next = self._next, self._next + count
        values = encode_many(run_number(RUN), 1, first, [0] * count, 64)
        self.producer.send_rows(
            self._topic,
            values,
            partition=partition,
            on_delivery=lambda row, of: self.ledger.add(
                self._topic, partition, 1, first + row, of.record_count, fate, of.base_offset
            ),
        )
        self.producer.flush()


def audit_of(bootstrap: str, topic: str) -> closing[RunAudit]:
    return closing(RunAudit({"bootstrap.servers": bootstrap}, RUN, [topic]))


def test_all_partitions_are_read_to_their_ends(bootstrap: str, topic: str) -> None:
    writer = Writer(bootstrap, topic)
    with closing(writer.producer), audit_of(bootstrap, topic) as audit:
        writer.write(5_000)
        audit.add(writer.ledger.take())
        audit.step()
        audit.settle()
        writer.write(3_000, partition=1)
        audit.add(writer.ledger.take())
        found = audit.finish()
    assert found.findings == []
    assert (found.acknowledged, found.unanswered, found.found) == (8_000, 0, 8_000)


@pytest.mark.parametrize("deleted", [400, 1_000])
def test_records_that_were_deleted_before_they_were_read_are_not_lost(
    bootstrap: str, topic: str, deleted: int
) -> None:
    writer = Writer(bootstrap, topic)
    with closing(writer.producer), Admin(bootstrap) as admin:
        writer.write(1_000)
        admin.delete_records({TopicPartition(topic, 0): deleted})
        with audit_of(bootstrap, topic) as audit:
            audit.add(writer.ledger.take())
            found = audit.finish()
    assert found.findings == []
    assert (found.acknowledged, found.found) == (1_000, 1_000 - deleted)


def test_a_ledger_that_knows_more_than_the_log(bootstrap: str, topic: str) -> None:
    writer = Writer(bootstrap, topic)
    with closing(writer.producer), audit_of(bootstrap, topic) as audit:
        writer.write(10)
        writer.ledger.add(topic, 0, 1, 10, 3, Fate.ACKNOWLEDGED, 10)
        audit.add(writer.ledger.take())
        (lost,) = audit.finish().findings
    assert (lost.kind, lost.count) == ("lost", 3)


def test_records_of_other_writers_are_unknown(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as other, audit_of(bootstrap, topic) as audit:
        other.send(topic, b"hello", partition=0)
        other.send_rows(topic, encode_many(run_number("x"), 1, 0, [0, 0], 64), partition=1)
        other.send_rows(topic, encode_many(run_number(RUN), 9, 0, [0], 64), partition=1)
        other.flush()
        found = audit.finish().findings
    assert {one.kind: one.count for one in found} == {"torn": 1, "unknown": 3}


def test_transactions_are_read_as_they_ended(bootstrap: str, topic: str) -> None:
    writer = Writer(bootstrap, topic, transactional_id="audit")
    with closing(writer.producer) as producer, audit_of(bootstrap, topic) as audit:
        producer.init_transactions()
        for fate in (Fate.ACKNOWLEDGED, Fate.ABORTED, Fate.ACKNOWLEDGED):
            producer.begin_transaction()
            writer.write(20, fate=fate)
            if fate is Fate.ABORTED:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        audit.add(writer.ledger.take())
        found = audit.finish()
    assert found.findings == []
    assert (found.acknowledged, found.found) == (40, 40)


def test_an_audit_that_cannot_reach_the_end_says_so(bootstrap: str, topic: str) -> None:
    """Nothing is called lost that could not be read."""
    writer = Writer(bootstrap, topic)
    with closing(writer.producer), audit_of(bootstrap, topic) as audit:
        writer.write(10)
        audit.look_at_ends()
        next(iter(audit._partitions.values())).end = 1_000
        with pytest.raises(AuditFailed, match=rf"{topic}-0 at 10 of 1000"):
            audit.finish(stalled_s=0.1)


def test_a_partition_that_the_run_does_not_have(bootstrap: str, topic: str) -> None:
    ledger = Ledger()
    ledger.add(topic, 7, 1, 0, 1, Fate.ACKNOWLEDGED, 0)
    with (
        audit_of(bootstrap, topic) as audit,
        pytest.raises(AuditFailed, match=f"{topic}-7 was written"),
    ):
        audit.add(ledger.take())


def test_an_audit_knows_which_second_each_record_was_meant_for(bootstrap: str, topic: str) -> None:
    writer = Writer(bootstrap, topic)
    with closing(writer.producer), audit_of(bootstrap, topic) as audit:
        audit.started_us = -3_000_000
        writer.write(10)
        audit.add(writer.ledger.take())
        audit.finish()
        written = audit.written()
    assert written[TopicPartition(topic, 0)].missing_in(RecordRuns()) == {3: 10}
    assert written[TopicPartition(topic, 1)].missing_in(RecordRuns()) == {}


@pytest.mark.parametrize("goes_on", [True, False])
def test_records_that_could_not_be_checked_are_not_lost(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch, *, goes_on: bool
) -> None:
    """At each gap in the log, such as a marker, the audit asks a broker where the log starts."""
    writer = Writer(bootstrap, topic, transactional_id=topic)
    with closing(writer.producer) as producer, audit_of(bootstrap, topic) as audit:

        def write() -> None:
            producer.begin_transaction()
            writer.write(20)
            writer.write(20, partition=1)
            producer.commit_transaction()
            audit.add(writer.ledger.take())

        def read(count: int) -> None:
            for _ in range(60):
                count -= audit.step() if count > 0 else 0
            assert count == 0

        def no_answer(keys: list[TopicPartition]) -> dict[TopicPartition, int]:
            raise RequestTimedOut("no answer in 60 s")

        producer.init_transactions()
        write()
        read(40)
        write()
        with monkeypatch.context() as patch:
            patch.setattr(audit._consumer, "beginning_offsets", no_answer)
            with pytest.raises(RequestTimedOut):
                read(40)
        audit.settle()
        if goes_on:
            write()
            read(80)
            audit.settle()
        found = audit.finish()
    assert found.findings == []
    assert found.acknowledged == found.found == (120 if goes_on else 80)
