"""A copier: consumes a topic, writes the records and its offsets in transactions (librdkafka).

A process of its own, `python -m tests.copying.copier BOOTSTRAP SOURCE SINK GROUP ID LIFE
SIZE ABORTS NOTES`: ID is its transactional id, LIFE counts its starts, SIZE is the number of
records per transaction, ABORTS the chance that a transaction is aborted on purpose, NOTES the file
that it appends to (`judge` describes the lines). It ends when its input ends, and with code 3 when
its producer cannot continue, for example because it was fenced.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.support.librdkafka import QUICK
from tests.support.working import input_ended

FATAL_EXIT = 3
CALL_S = 60.0
POLL_S = 0.2
LINGER_S = 3.0
"""How long a transaction that is not full waits for more records."""
RETRY_S = 0.05
SESSION_TIMEOUT_MS = "6000"
TRANSACTION_TIMEOUT_MS = "60000"
PASSING = {
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._WAIT_COORD,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
}
"""Errors that pass when coordinators have moved, though they are not marked retriable."""


@dataclass(frozen=True, slots=True)
class Job:
    """A copier's arguments, the same for copiers of any kind."""

    bootstrap: str
    source: str
    sink: str
    group: str
    transactional_id: str
    life: int
    size: int
    """Records per transaction, at most."""
    aborts: float
    """The chance that a transaction is aborted on purpose."""
    notes: str

    @property
    def arguments(self) -> list[str]:
        """The command line."""
        return [str(getattr(self, name)) for name in self.__dataclass_fields__]

    @classmethod
    def parse(cls, given: list[str]) -> Job:
        """Parse the command line."""
        bootstrap, source, sink, group, name, life, size, aborts, notes = given
        return cls(bootstrap, source, sink, group, name, int(life), int(size), float(aborts), notes)


class Copier:
    """One copier's clients, and the records it holds outside any transaction."""

    def __init__(self, job: Job, notes: int) -> None:
        self._job = job
        self._notes = notes
        self._random = Random(f"{job.transactional_id}.{job.life}")
        self._count = 0
        self._held: list[Message] = []
        self._held_since = 0.0
        self._consumer = Consumer(
            QUICK
            | {
                "bootstrap.servers": job.bootstrap,
                "group.id": job.group,
                "enable.auto.commit": "false",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "partition.assignment.strategy": "range",
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": "1000",
                "fetch.wait.max.ms": "100",
            }
        )
        self._producer = Producer(
            QUICK
            | {
                "bootstrap.servers": job.bootstrap,
                "transactional.id": job.transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": "2",
            }
        )

    def run(self) -> None:
        """Copy until the input ends; raise KafkaException if the producer cannot continue."""
        self._repeat(lambda: self._producer.init_transactions(CALL_S))
        self._consumer.subscribe([self._job.source], on_revoke=self._forget, on_lost=self._forget)
        while not input_ended():
            self._gather()
            if self._held and self._is_due():
                self._copy()
        self._consumer.close()

    def _forget(self, *_: object) -> None:
        # The next owners of the partitions begin at the committed offsets.
        self._held.clear()

    def _gather(self) -> None:
        found = self._consumer.consume(self._job.size - len(self._held), POLL_S)
        if found and not self._held:
            self._held_since = time.monotonic()
        for message in found:
            error = message.error()
            if error is None:
                self._held.append(message)
            else:
                self._note("error", error.name(), 1)

    def _is_due(self) -> bool:
        waited_s = time.monotonic() - self._held_since
        return len(self._held) >= self._job.size or waited_s > LINGER_S

    def _copy(self) -> None:
        held, self._held = self._held, []
        self._count += 1
        name = f"{self._job.transactional_id}.{self._job.life}.{self._count}"
        try:
            self._producer.begin_transaction()
            self._write(held, f" {name} {len(held)}".encode())
            if self._random.random() < self._job.aborts:
                self._abort(name, len(held))
                return
            self._repeat(lambda: self._producer.commit_transaction(CALL_S))
        except KafkaException as failure:
            error = _error_of(failure)
            self._note("error", error.name(), 1)
            if not error.txn_requires_abort():
                raise
            self._abort(name, len(held))
            return
        self._note("committed", name, len(held))

    def _write(self, held: list[Message], mark: bytes) -> None:
        ends: dict[int, int] = {}
        for message in held:
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None
            assert offset is not None
            assert value is not None
            self._producer.produce(self._job.sink, value + mark, partition=partition)
            ends[partition] = offset + 1
        offsets = [TopicPartition(self._job.source, *end) for end in ends.items()]
        member = self._consumer.consumer_group_metadata()
        self._repeat(lambda: self._producer.send_offsets_to_transaction(offsets, member, CALL_S))

    def _abort(self, name: str, count: int) -> None:
        self._repeat(lambda: self._producer.abort_transaction(CALL_S))
        self._note("aborted", name, count)
        self._rewind()

    def _rewind(self) -> None:
        """Seek to the committed offsets of all assigned partitions."""

        def look() -> None:
            for found in self._consumer.committed(self._consumer.assignment(), CALL_S):
                found.offset = max(0, found.offset)
                self._consumer.seek(found)

        self._repeat(look, lambda error: error.code() in PASSING)

    def _repeat(
        self,
        call: Callable[[], object],
        is_passing: Callable[[KafkaError], bool] = KafkaError.retriable,
    ) -> None:
        """Repeat a call until it succeeds or fails with an error that repeating cannot fix."""
        while True:
            try:
                call()
            except KafkaException as failure:
                error = _error_of(failure)
                if not is_passing(error):
                    raise
                self._note("error", error.name(), 1)
                time.sleep(RETRY_S)
            else:
                return

    def _note(self, kind: str, name: str, count: int) -> None:
        # One write, so that a kill leaves whole lines and at most one partial line.
        os.write(self._notes, f"{kind} {name} {count}\n".encode())


def _error_of(failure: KafkaException) -> KafkaError:
    error = failure.args[0]
    assert isinstance(error, KafkaError)
    return error


def main() -> int:
    """Copy until told to end."""
    job = Job.parse(sys.argv[1:])
    notes = os.open(job.notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        Copier(job, notes).run()
    except KafkaException as failure:
        sys.stderr.write(f"{job.transactional_id}.{job.life}: {failure}\n")
        return FATAL_EXIT
    finally:
        os.close(notes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
