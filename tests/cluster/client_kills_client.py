"""One client of `client_kills`, a process that may be killed or stopped at any moment.

`python -m tests.cluster.client_kills_client LIFE`, where LIFE is the JSON of `Life`. It journals
what it does (`tests.checker.journal`) and ends with its input: with code 0, or with code 3 if
another client has its transactional id or its group instance id.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import partial
from itertools import count, groupby
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from raylog import eos
from raylog.client import (
    AbortRequired,
    ClientError,
    CommitFailed,
    Consumer,
    ConsumerRecord,
    Producer,
    ProducerRecord,
    ProducerUnusable,
    RebalanceListener,
    TopicPartition,
)
from raylog.client.interceptors import RecordMetadata
from raylog.client.parallel.consumer import ParallelConsumer
from raylog.client.retries import is_retriable
from raylog.wire.errors import FencedInstanceId, KafkaError, RebalanceInProgress
from tests.checker.journal import Journal

FENCED_EXIT = 3
POLL_MS = 200.0
WORKS_S = 0.2
"""How long a consumer works on what a poll returned, whatever that was."""
KEYS = 24
"""Of each partition."""
SLOW_EVERY, SLOW_S = 40, 0.4
"""One record of so many takes a worker of a ParallelConsumer so long."""
ABORTS = 0.05
"""Share of a copier's transactions that are aborted on purpose."""
COPIED_MAX = 100
"""Records of one transaction."""

Record = ConsumerRecord[bytes, bytes]
T = TypeVar("T")


class Role(StrEnum):
    """What a client does."""

    PRODUCER = "producer"
    PROCESS_THEN_COMMIT = "process, then commit"
    COMMIT_THEN_PROCESS = "commit, then process"
    COPIER = "copier"
    """Consume, transform, produce, with the offsets in the transaction."""
    EOS_PROCESS = "eos.process"
    PARALLEL = "ParallelConsumer"


class Commit(StrEnum):
    """How a consumer commits."""

    SYNC = "sync"
    ASYNC = "async"
    AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Life:
    """A client's arguments."""

    role: Role
    process: str
    """Its name, of this life alone."""
    journal: str
    bootstrap: str
    topic: str
    partitions: int
    group: str = ""
    sink: str = ""
    transactional_id: str = ""
    commit: Commit = Commit.SYNC
    records_per_s: float = 50.0
    settings: dict[str, Any] = field(default_factory=dict)
    """Kafka's, of its consumer."""

    def to_json(self) -> str:
        """As the command line has it."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Life:
        """From the command line."""
        row = json.loads(text)
        return cls(**{**row, "role": Role(row["role"]), "commit": Commit(row["commit"])})


class _Client:
    """The common part of all clients."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.journal = Journal(Path(life.journal))
        self.ending = threading.Event()
        self.random = Random(life.process)

    def consumer(self, **settings: object) -> Consumer[bytes, bytes]:
        """A member of the group."""
        return Consumer(
            self.life.bootstrap,
            group_id=self.life.group,
            auto_offset_reset="earliest",
            **{**settings, **self.life.settings},
        )

    def poll(self, consumer: Consumer[bytes, bytes], at_most: int) -> Sequence[Record]:
        """Records, journaled by partition."""
        invoked_ns = time.monotonic_ns()
        records = consumer.poll_records(POLL_MS, at_most)
        for index, of_partition in groupby(records, lambda record: record.partition):
            ones = list(of_partition)
            values = [_text(record.value) for record in ones]
            self.journal.write("polled", invoked_ns, index, [one.offset for one in ones], values)
        return records

    def done(self, records: Sequence[Record]) -> None:
        """Process records: to journal them is all there is to do."""
        for index, of_partition in groupby(records, lambda record: record.partition):
            ones = list(of_partition)
            keys = [_text(record.key) for record in ones]
            self.journal.write("done", index, [one.offset for one in ones], keys)


class _Listener(RebalanceListener):
    """Journals rebalances, and commits before partitions are revoked."""

    def __init__(self, journal: Journal, give_up: Callable[[], None]) -> None:
        self._journal = journal
        self._give_up = give_up

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._journal.write("revoked", _indexes(partitions))
        self._give_up()

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._journal.write("assigned", _indexes(partitions))

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._journal.write("lost", _indexes(partitions))


def patiently(call: Callable[[], T]) -> T:
    """Call until it does not fail for want of time: all calls may be repeated then."""
    while True:
        try:
            return call()
        except (ClientError, KafkaError) as error:
            if not is_retriable(error):
                raise
            logging.getLogger(__name__).info("calls again after %r", error)


def _indexes(partitions: Sequence[TopicPartition]) -> list[int]:
    return sorted(key.partition for key in partitions)


def _text(found: bytes | None) -> str:
    assert found is not None, "all records have keys and values"
    return found.decode()


# -- roles -------------------------------------------------------------------------------------


def produce(client: _Client) -> None:
    """Send numbered records at a pace; each is journaled before and after."""
    life = client.life
    began = time.monotonic()
    with Producer(life.bootstrap, linger_ms=5, enable_idempotence=True, acks="all") as producer:
        for number in count():
            client.ending.wait(max(0.0, began + number / life.records_per_s - time.monotonic()))
            if client.ending.is_set():
                return
            index, value = number % life.partitions, f"{life.process}:{number}"
            client.journal.write("sent", index, value)
            producer.send(
                life.topic,
                value.encode(),
                f"{number // life.partitions % KEYS}".encode(),
                partition=index,
                on_delivery=partial(_delivered, client.journal, index, value),
            )


def _delivered(
    journal: Journal, index: int, value: str, record: RecordMetadata, failure: Exception | None
) -> None:
    if failure is None:
        journal.write("acked", index, value, record.offset)
    else:
        journal.write("failed", index, value, repr(failure))


def process_then_commit(client: _Client) -> None:
    """At least once."""
    commit = client.life.commit
    with client.consumer(enable_auto_commit=commit is Commit.AUTO) as consumer:

        def give_up() -> None:
            if commit is not Commit.AUTO:
                with suppress(CommitFailed, RebalanceInProgress):
                    patiently(consumer.commit)

        consumer.subscribe([client.life.topic], _Listener(client.journal, give_up))
        while not client.ending.is_set():
            records = client.poll(consumer, COPIED_MAX)
            client.done(records)
            if not records:
                continue
            client.ending.wait(WORKS_S)
            if commit is Commit.SYNC:
                give_up()
            elif commit is Commit.ASYNC:
                consumer.commit_async()


def commit_then_process(client: _Client) -> None:
    """At most once: what could not be committed is not processed."""
    with client.consumer(enable_auto_commit=False) as consumer:
        consumer.subscribe([client.life.topic], _Listener(client.journal, lambda: None))
        while not client.ending.is_set():
            records = client.poll(consumer, COPIED_MAX)
            if records:
                try:
                    patiently(consumer.commit)
                except CommitFailed:
                    continue
                except RebalanceInProgress:
                    _rewind(client, consumer)
                    continue
                client.ending.wait(WORKS_S)
                client.done(records)


def copy(client: _Client) -> None:
    """Exactly once, by hand."""
    life = client.life
    with (
        client.consumer(enable_auto_commit=False) as consumer,
        Producer(
            life.bootstrap,
            transactional_id=life.transactional_id,
            transaction_timeout_ms=10_000,
        ) as producer,
    ):
        patiently(producer.init_transactions)
        consumer.subscribe([life.topic], _Listener(client.journal, lambda: None))
        while not client.ending.is_set():
            records = client.poll(consumer, COPIED_MAX)
            if records:
                _copy(client, consumer, producer, records)


def _copy(
    client: _Client,
    consumer: Consumer[bytes, bytes],
    producer: Producer[bytes, bytes],
    records: Sequence[Record],
) -> None:
    """One transaction."""
    sink = client.life.sink
    producer.begin_transaction()
    try:
        for record in records:
            producer.send(sink, transformed(record), record.key, partition=record.partition)
        client.ending.wait(WORKS_S)
        offsets = {TopicPartition(one.topic, one.partition): one.offset + 1 for one in records}
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        if client.random.random() >= ABORTS:
            patiently(producer.commit_transaction)
            return
    except AbortRequired as error:
        logging.getLogger(__name__).info("aborts: %r", error.__cause__)
    patiently(producer.abort_transaction)
    _rewind(client, consumer)


def _rewind(client: _Client, consumer: Consumer[bytes, bytes]) -> None:
    """Go back to what is committed."""
    keys = consumer.assignment()
    committed = patiently(lambda: consumer.committed(keys))
    for key in keys:
        offset = committed[key].offset if key in committed else 0
        client.journal.write("seek", key.partition, offset)
        consumer.seek(key, offset)


def transformed(record: Record) -> bytes:
    """What is written to the sink for a record of the topic: it tells which one that was."""
    key, value = _text(record.key), _text(record.value)
    return f"{record.partition} {record.offset} {key} {value}".encode()


def effect_of(sink: str, record: Record) -> ProducerRecord:
    """The same as a record of the sink, in the partition of the same index."""
    return ProducerRecord(sink, transformed(record), record.key, partition=record.partition)


def process_exactly_once(client: _Client) -> None:
    """Exactly once, by eos.process."""
    life = client.life
    with eos.process(
        life.topic,
        life.sink,
        partial(effect_of, life.sink),
        group=life.group,
        config=life.bootstrap,
        tasks=2,
        transactional_id_prefix=life.transactional_id,
        transaction_timeout_ms=10_000,
        auto_offset_reset="earliest",
        **life.settings,
    ) as running:
        while not client.ending.is_set():
            assert not running.wait(POLL_MS / 1_000), "it ended without being told to"


def work_in_parallel(client: _Client) -> None:
    """At least once, by a ParallelConsumer."""
    life = client.life

    def handle(record: Record) -> None:
        if record.offset % SLOW_EVERY == 0:
            time.sleep(SLOW_S)
        client.done([record])

    consumer = ParallelConsumer(
        life.bootstrap,
        [life.topic],
        handle,
        group_id=life.group,
        commit_interval_ms=200,
        auto_offset_reset="earliest",
        **life.settings,
    )

    def stop() -> None:
        client.ending.wait()
        consumer.stop()

    threading.Thread(target=stop, daemon=True).start()
    consumer.run()
    assert client.ending.is_set(), "it ended without being told to"


_ROLES: dict[Role, Callable[[_Client], None]] = {
    Role.PRODUCER: produce,
    Role.PROCESS_THEN_COMMIT: process_then_commit,
    Role.COMMIT_THEN_PROCESS: commit_then_process,
    Role.COPIER: copy,
    Role.EOS_PROCESS: process_exactly_once,
    Role.PARALLEL: work_in_parallel,
}


def main() -> int:
    """Work until told to end."""
    life = Life.parse(sys.argv[1])
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(process)d %(name)s %(levelname)s %(message)s"
    )
    client = _Client(life)

    def wait() -> None:
        os.read(sys.stdin.fileno(), 1)  # nobody writes: it returns at the end of the input
        client.ending.set()

    threading.Thread(target=wait, daemon=True).start()
    try:
        _ROLES[life.role](client)
    except (ProducerUnusable, FencedInstanceId) as error:
        logging.getLogger(__name__).info("ends: %s: %r", error, error.__cause__)
        return FENCED_EXIT
    return 0


if __name__ == "__main__":
    sys.exit(main())
