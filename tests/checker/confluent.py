"""confluent-kafka's clients with all operations recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from time import monotonic
from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.checker.operations import (
    Action,
    Assign,
    Batch,
    Begin,
    Change,
    End,
    FinalRead,
    Outcome,
    Partition,
    Poll,
    Rebalance,
    Seek,
    Send,
    Span,
    Start,
    Subscribe,
)
from tests.checker.recorder import Recorder, payload_of, value_of

_NEVER_WRITTEN = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
    }
)
"""Errors that every attempt would get. All others mean unknown: records that librdkafka gives up or
purges may have been sent before."""
_PASSING = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)
"""Errors that librdkafka reports and recovers from."""
_COMMIT_PASSING = _PASSING | {
    KafkaError._NO_OFFSET,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.STALE_MEMBER_EPOCH,
}
"""Commit errors during a rebalance or a coordinator move. Somebody reads those records again."""
_GATHER_S = 0.2


class ProducerEndedError(Exception):
    """The client failed fatally in an abort and must be replaced.

    librdkafka does so on INVALID_TXN_STATE, which Apache Kafka also returns if it does not know the
    transaction: AddPartitionsToTxn may have been lost with the previous coordinator. Nothing of
    that transaction may ever be read.
    """


class RecordingProducer:
    """A producer for one thread. Records complete in `poll`, `flush` and `close`."""

    def __init__(
        self,
        recorder: Recorder,
        process: str,
        settings: Mapping[str, str],
        *,
        record_bytes: int = 0,
    ) -> None:
        """`record_bytes` is the length to which values are padded."""
        self.process = process
        self.transaction: str | None = None
        """The open transaction."""
        self._recorder = recorder
        self._record_bytes = record_bytes
        self._producer = Producer(
            {
                "acks": "all",
                "enable.idempotence": "true",
                "error_cb": partial(_record_error, recorder),
                **settings,
            }
        )
        self._unanswered: dict[str, Send] = {}
        self._transactions = 0
        self._ended_for_good = False

    def __len__(self) -> int:
        """The number of records in flight."""
        return len(self._unanswered)

    def send(self, partition: Partition, value: str, key: str | None = None) -> bool:
        """Send a record. Returns False and sends nothing while the client's queue is full."""
        send = Send(
            self.process,
            partition,
            value,
            self._recorder.now_ns(),
            0,
            Outcome.UNKNOWN,
            transaction=self.transaction,
            key=key,
        )
        try:
            self._producer.produce(
                partition[0],
                payload_of(value, self._record_bytes),
                key=key,
                partition=partition[1],
                on_delivery=partial(self._ended, send),
            )
        except BufferError:
            return False
        self._unanswered[value] = send
        return True

    def poll(self, timeout_s: float = 0.0) -> None:
        """Handle deliveries."""
        self._producer.poll(timeout_s)

    def flush(self, timeout_s: float) -> int:
        """Wait for all deliveries. Returns how many are still missing."""
        return self._producer.flush(timeout_s)

    def init_transactions(self, timeout_s: float) -> None:
        """Take over the transactional id. Raises KafkaException."""
        self._producer.init_transactions(timeout_s)

    def begin(self) -> None:
        """Begin a transaction."""
        self._transactions += 1
        self._producer.begin_transaction()
        self.transaction = f"{self.process}/{self._transactions}"
        self._recorder.add(Begin(self.process, self._recorder.now_ns(), self.transaction))

    def commit(self, timeout_s: float) -> Outcome:
        """Try to commit. After a failure abort, after an unknown outcome try again."""
        return self._end(Action.COMMIT, self._producer.commit_transaction, timeout_s)

    def abort(self, timeout_s: float) -> Outcome:
        """Try to abort. Raises ProducerEndedError."""
        return self._end(Action.ABORT, self._producer.abort_transaction, timeout_s)

    def close(self, timeout_s: float = 10.0) -> None:
        """Wait for deliveries. Records that are still in flight then have an unknown outcome."""
        if not self._ended_for_good:
            self._producer.flush(timeout_s)
        for send in list(self._unanswered.values()):
            self._record(send, Outcome.UNKNOWN, None)
        if self.transaction is not None:
            # Nobody will request its commit any more; an earlier attempt is on record.
            now_ns = self._recorder.now_ns()
            ended = (self.process, now_ns, now_ns, self.transaction, Action.ABORT)
            self._recorder.add(End(*ended, Outcome.UNKNOWN))
            self.transaction = None

    def _end(self, action: Action, attempt: Callable[[float], None], timeout_s: float) -> Outcome:
        assert self.transaction is not None, "there is an open transaction"
        invoked_ns = self._recorder.now_ns()
        outcome = Outcome.OK
        try:
            attempt(timeout_s)
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            outcome = Outcome.FAILED if error.txn_requires_abort() else Outcome.UNKNOWN
            refused = error.fatal() and error.code() == KafkaError.INVALID_TXN_STATE
            self._ended_for_good = refused and action is Action.ABORT
        times = invoked_ns, self._recorder.now_ns()
        self._recorder.add(End(self.process, *times, self.transaction, action, outcome))
        if outcome is Outcome.OK:
            self.transaction = None
        if self._ended_for_good:
            raise ProducerEndedError(self.process)
        return outcome

    def _ended(self, send: Send, error: KafkaError | None, message: Message) -> None:
        if send.value not in self._unanswered:
            return  # it came after `close`, which recorded it as unknown
        if error is None:
            offset = message.offset()
            known = offset if offset is not None and offset >= 0 else None
            self._record(send, Outcome.OK, known)
        else:
            self._recorder.error_reported(error.code())
            failed = error.code() in _NEVER_WRITTEN
            self._record(send, Outcome.FAILED if failed else Outcome.UNKNOWN, None)

    def _record(self, send: Send, outcome: Outcome, offset: int | None) -> None:
        del self._unanswered[send.value]
        send.outcome, send.offset = outcome, offset
        send.completed_ns = self._recorder.now_ns()
        self._recorder.add(send)


class RecordingConsumer:
    """A consumer of assigned partitions, or a member of a group."""

    def __init__(self, recorder: Recorder, process: str, settings: Mapping[str, str]) -> None:
        self.process = process
        self.failures: list[str] = []
        """Errors from which librdkafka does not recover."""
        self._recorder = recorder
        self._read_committed = settings.get("isolation.level") != "read_uncommitted"
        self._settings: dict[str, Any] = {
            "group.id": process,
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": "100",
            "error_cb": partial(_record_error, recorder),
            **settings,
        }
        self._consumer = Consumer(self._settings)
        self._ends: dict[Partition, int] = {}
        """The offset at which it last reached the end of a partition."""

    def assign(self, starts: Mapping[Partition, int]) -> None:
        """Read these partitions, each from an offset."""
        self._recorder.add(
            Assign(self.process, self._recorder.now_ns(), [Start(*one) for one in starts.items()])
        )
        self._ends.clear()
        self._consumer.assign([TopicPartition(*key, at) for key, at in starts.items()])

    def subscribe(self, topics: list[str]) -> None:
        """Join the group."""
        self._recorder.add(Subscribe(self.process, self._recorder.now_ns(), topics))
        self._consumer.subscribe(
            topics,
            on_assign=partial(self._rebalanced, Change.ASSIGNED),
            on_revoke=partial(self._rebalanced, Change.REVOKED),
            on_lost=partial(self._rebalanced, Change.LOST),
        )

    def seek(self, partition: Partition, offset: int) -> None:
        """Continue at an offset."""
        self._recorder.add(Seek(self.process, self._recorder.now_ns(), partition, offset))
        self._consumer.seek(TopicPartition(*partition, offset))

    def poll(
        self, timeout_s: float = _GATHER_S, records: int = 500, transaction: str | None = None
    ) -> int:
        """Poll records. Returns their number."""
        invoked_ns = self._recorder.now_ns()
        batches: dict[Partition, Batch] = {}
        count = 0
        for message in self._consumer.consume(records, timeout_s):
            count += self._take(message, batches)
        if batches:
            times = invoked_ns, self._recorder.now_ns()
            found = list(batches.values())
            self._recorder.add(Poll(self.process, *times, found, self._read_committed, transaction))
        return count

    def commit(self) -> None:
        """Commit this member's positions. What a rebalance forbids is left to the next owner."""
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            if error.code() != KafkaError._NO_OFFSET:
                self._recorder.error_reported(error.code())
            if error.code() not in _COMMIT_PASSING:
                raise

    def read_to_the_end(self, partitions: Iterable[Partition], timeout_s: float) -> None:
        """Do the final read of every partition, from its first offset to its current end.

        The end is the high watermark, so this waits for open transactions. Raises TimeoutError.
        """
        deadline = monotonic() + timeout_s
        invoked_ns = self._recorder.now_ns()
        asker = Consumer(self._settings | {"isolation.level": "read_uncommitted"})
        try:
            spans = [self._span(asker, partition, timeout_s) for partition in partitions]
        finally:
            asker.close()
        self.assign({span.partition: span.start for span in spans})
        while late := [span for span in spans if self._ends.get(span.partition, -1) < span.end]:
            if monotonic() > deadline:
                raise TimeoutError(
                    f"the final read has not reached the end of {late} within {timeout_s:g} s: "
                    f"{self.failures[-3:]}"
                )
            self.poll()
        self._recorder.add(FinalRead(self.process, invoked_ns, self._recorder.now_ns(), spans))

    @staticmethod
    def _span(asker: Consumer, partition: Partition, timeout_s: float) -> Span:
        marks = asker.get_watermark_offsets(TopicPartition(*partition), timeout_s)
        if marks is None:
            raise TimeoutError(f"no answer where {partition} begins and ends")
        return Span(partition, *marks)

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def _take(self, message: Message, batches: dict[Partition, Batch]) -> bool:
        """Handle a message. Returns whether it is a record."""
        error = message.error()
        partition = (message.topic() or "", message.partition() or 0)
        offset = message.offset()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                assert offset is not None
                self._ends[partition] = offset
                return False
            self._recorder.error_reported(error.code())
            if error.code() not in _PASSING:
                self.failures.append(str(error))
            return False
        assert offset is not None
        assert offset != OFFSET_INVALID
        _, offsets, values = batches.setdefault(partition, (partition, [], []))
        offsets.append(offset)
        values.append(value_of(message.value()))
        return True

    def _rebalanced(
        self, change: Change, consumer: Consumer, partitions: list[TopicPartition]
    ) -> None:
        keys = [(one.topic, one.partition) for one in partitions]
        self._recorder.add(Rebalance(self.process, self._recorder.now_ns(), change, keys))


def _record_error(recorder: Recorder, error: KafkaError) -> None:
    """Record an error from which librdkafka recovers."""
    recorder.error_reported(error.code())
