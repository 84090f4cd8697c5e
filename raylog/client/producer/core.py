"""One producer on top of a client's core: records in, batches out, transactions.

`step` never waits for answers to batches, so it serves both a caller that sends as it goes and a
background task.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from raylog.client.cluster import CommittedOffset, TopicPartition, TopicView
from raylog.client.core import Core
from raylog.client.errors import BufferExhausted, ClientError, InvalidSetting
from raylog.client.producer.accumulator import COLLECTED, ELSEWHERE, Accumulator, Appended
from raylog.client.producer.batch import Batch, Body, Headers, Listener, PlainRecord, record_size
from raylog.client.producer.memory import keep_freed_memory
from raylog.client.producer.partitioner import (
    KeyHash,
    Turns,
    cached_partition_of_key,
    crc32_partition,
)
from raylog.client.producer.reports import OnDelivery, ProducerStatistics, Reports
from raylog.client.producer.sender import Sender
from raylog.client.settings import ProducerSettings
from raylog.wire.buffers import Buffer
from raylog.wire.errors import UnknownTopicOrPartition
from raylog.wire.records import TIMESTAMP_MAX

if TYPE_CHECKING:
    from raylog.client.consumer.membership import GroupMetadata
    from raylog.client.interceptors import ClientInterceptor
    from raylog.client.producer.batch import RowsReport
    from raylog.client.producer.partitioner import Partitioner
    from raylog.client.producer.pipeline import Pipeline
    from raylog.client.producer.transactional import Transactions
    from raylog.client.serializers import Serializer

__all__ = ["Offsets", "OnDelivery", "ProducerCore"]

_now_ns = time.time_ns
_KEY_HASHES: dict[str, KeyHash] = {
    "default": cached_partition_of_key,
    "murmur2": cached_partition_of_key,
    "murmur2_random": cached_partition_of_key,
    "consistent": crc32_partition,
    "consistent_random": crc32_partition,
}

Offsets = Mapping[TopicPartition, CommittedOffset | int]
"""Offsets to commit: those of the next records to read."""


class ProducerCore:
    """One producer on top of a client's core. Only `append…` may be called concurrently."""

    def __init__(
        self, core: Core, settings: ProducerSettings, on_delivery: OnDelivery | None = None
    ) -> None:
        keep_freed_memory()
        self.settings = settings
        self.reports = Reports(on_delivery, core.io.now_ms)
        self._core = core
        self._accumulator = Accumulator(
            batch_bytes=settings.batch_bytes,
            record_bytes_max=settings.record_bytes_max,
            buffer_bytes=settings.buffer_bytes,
            idempotent=settings.is_idempotent,
            now_ms=core.io.now_ms,
            one_at_a_time=settings.in_flight_max == 1,
        )
        self._transactions: Transactions | None = None
        if settings.transactional_id is not None:
            from raylog.client.producer.transactional import Transactions  # most need none

            self._transactions = Transactions(
                core,
                settings.transactional_id,
                timeout_ms=settings.transaction_timeout_ms,
                max_block_ms=settings.max_block_ms,
                renew=self._accumulator.renew,
            )
        self._sender = Sender(core, settings, self._accumulator, self.reports, self._transactions)
        self._forget_at_ms = core.io.now_ms() + settings.metadata_max_idle_ms
        """When to look for unused topics next."""
        self._sticky: dict[str, int] = {}
        self._partitions: dict[str, tuple[TopicView, list[int]]] = {}
        self._turns = Turns(
            waiting=self._accumulator.waiting if settings.partitioner_adaptive else None,
            avoided=self._sender.avoided,
            chance=core.io.chance,
        )
        name = settings.partitioner
        self._key_hash = None if settings.partitioner_ignore_keys else _KEY_HASHES.get(name)
        self._skips_empty = name == "consistent_random"
        self._place: Callable[[str], int] | None = {
            "round_robin": lambda topic: self._turns.next(self._topic(topic)),
            "random": lambda topic: self._turns.any(self._topic(topic)),
            "consistent": self._as_empty_key,
            "murmur2": self._as_empty_key,
        }.get(name)
        """Chooses a partition for records without a key; None: use the sticky partition."""

    # -- records in ----------------------------------------------------------------------------

    def append(  # noqa: C901 — runs for each record: one more call would cost a tenth
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
        listener: Listener | None = None,
    ) -> bool:
        """Add a record; return whether there is something to do (`step`, `make_room`).

        The caller of `step` must then recompute when to call it next: a batch may have started.

        Raises UnknownTopicOrPartition if the topic's metadata is missing (see `prepare`), and in a
        transactional producer errors that require `begin_transaction` or `abort_transaction`.
        """
        if self._transactions is not None:
            self._transactions.state.require_open("send")
        if value.__class__ is not bytes and value is not None:
            value = _bytes_of("value", value)
        if key is not None and key.__class__ is not bytes:
            key = _bytes_of("key", key)
        if timestamp_ms is None:
            timestamp_ms = _now_ns() // 1_000_000
        else:
            _check_timestamp(timestamp_ms)
        may_move = False
        if partition is None:
            if key is not None and self._key_hash is not None and (key or not self._skips_empty):
                partition = self._key_hash(key, len(self._topic(topic).partitions))
            elif self._place is None:
                partition = self._sticky.get(topic)
                if partition is None:
                    partition = self._stick(topic)
                may_move = True
            else:
                partition = self._place(topic)
        record = (0, timestamp_ms, key, value, _headers_of(headers) if headers else ())
        try:
            outcome = self._accumulator.append((topic, partition), record, listener, may_move)
        except KeyError:
            self._open(topic, partition)
            outcome = self._accumulator.append((topic, partition), record, listener, may_move)
        if outcome is COLLECTED:
            return False
        if outcome is ELSEWHERE:
            return self._append_elsewhere(topic, record, listener)
        return True

    def append_rows(
        self,
        topic: str,
        rows: Sequence[tuple[bytes | None, bytes | None]],
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
        rows_report: RowsReport | None = None,
    ) -> int:
        """Add many records, each a key and a value, at once; return their total size, at least 1.

        `rows_report` requires a partition. Raises the same errors as `append`, and RecordTooLarge
        or TypeError for any of the rows, before the first record is added.
        """
        assert rows_report is None or partition is not None, (
            "rows of one partition keep their order"
        )
        if self._transactions is not None:
            self._transactions.state.require_open("send")
        if timestamp_ms is None:
            timestamp_ms = _now_ns() // 1_000_000
        else:
            _check_timestamp(timestamp_ms)
        shared = _headers_of(headers) if headers else ()
        records = [_row_record(row, timestamp_ms, shared) for row in rows]
        sizes = [record_size(record) for record in records]
        if max(sizes) > self.settings.record_bytes_max:
            raise self._accumulator.too_large(max(sizes))
        for to, (chosen, of) in self._grouped(topic, records, sizes, partition).items():
            self._extend(topic, to, chosen, of, rows_report)
        return sum(sizes)

    def append_batch(
        self,
        topic: str,
        partition: int,
        body: Buffer,
        record_count: int,
        first_timestamp_ms: int,
        max_timestamp_ms: int,
        listener: Listener | None = None,
    ) -> bool:
        """Add a whole encoded batch; return the same as `append`.

        `body` is the uncompressed records section of a batch of format v2: offset deltas from 0 to
        `record_count` - 1, timestamp deltas from `first_timestamp_ms`. It is queued behind the
        partition's other records, and gets its header, sequence numbers and codec when it is sent.
        It should hold at most about `batch_bytes`; a batch that a broker finds too large is split
        like any other. `listener` is called for its last record. Raises the same errors as
        `append`.
        """
        if self._transactions is not None:
            self._transactions.state.require_open("send")
        assert record_count > 0, "a batch has at least one record"
        whole = Body(body, record_count, first_timestamp_ms, max_timestamp_ms)
        try:
            self._accumulator.append_batch((topic, partition), whole, listener)
        except KeyError:
            self._open(topic, partition)
            self._accumulator.append_batch((topic, partition), whole, listener)
        return True

    def partitions(self, topic: str) -> list[int]:
        """Return a topic's partitions; raises UnknownTopicOrPartition while they are unknown."""
        view = self._topic(topic)
        known = self._partitions.get(topic)
        if known is None or known[0] is not view:
            known = self._partitions[topic] = (view, sorted(view.partitions))
        return known[1]

    def next_partition(self, topic: str) -> int:
        """Return the partition for a batch of records without keys; each call moves on.

        Raises UnknownTopicOrPartition if the topic's metadata is missing (see `prepare`).
        """
        self._sticky.pop(topic, None)
        return self._turns.next_free(self._topic(topic))

    @property
    def is_full(self) -> bool:
        """Whether new records should wait (see `make_room`)."""
        return self._accumulator.is_full

    async def prepare(self, topic: str) -> None:
        """Fetch a topic's metadata; the broker may create the topic."""
        if not isinstance(topic, str):
            raise TypeError(f"expected topic to be str, found {type(topic).__name__}")

        async def attempt() -> None:
            await self._core.refresh([topic], create=True)
            if not self._core.cluster.topic(topic).partitions:
                raise UnknownTopicOrPartition(f"topic {topic!r} has no partitions yet")

        await self._core.repeat(attempt, timeout_ms=self.settings.max_block_ms)

    async def make_room(self) -> None:
        """Send and wait until new records are accepted; raises BufferExhausted."""
        deadline_ms = self._core.io.now_ms() + self.settings.max_block_ms
        while self.is_full:
            if self._core.io.now_ms() >= deadline_ms:
                raise self.exhausted(self.settings.max_block_ms)
            await self.step(everything=True)
            await self._sender.wait(deadline_ms, everything=True)

    def exhausted(self, timeout_ms: float) -> BufferExhausted:
        """Return the error for a caller that has waited this long for room."""
        return BufferExhausted(
            f"{self._accumulator.held_bytes} bytes are unacknowledged for {timeout_ms:.0f} ms: "
            f"{self.refusal or 'is a broker down?'}"
        )

    @property
    def refusal(self) -> str | None:
        """Why unacknowledged records are being sent again; None if not known."""
        return self._sender.refusal

    @property
    def delivered_count(self) -> int:
        """Number of records acknowledged so far."""
        return self.reports.delivered_count

    # -- out -----------------------------------------------------------------------------------

    async def step(self, *, everything: bool = False) -> None:
        """Process the answers that have arrived, then send what is ready (or everything)."""
        await self._sender.step(everything=everything)
        now_ms = self._core.io.now_ms()
        if now_ms >= self._forget_at_ms and not self.is_full:  # waiting callers need their topics
            self._forget_at_ms = now_ms + self.settings.metadata_max_idle_ms / 2
            self._forget_idle(now_ms - self.settings.metadata_max_idle_ms)

    def _forget_idle(self, since_ms: float) -> None:
        """Forget topics to which nothing was sent since a time."""
        idle = self._core.forget_idle(since_ms, self._accumulator.forget_idle(since_ms))
        self._sender.forget(idle)
        for topic in idle:
            self._sticky.pop(topic, None)
            self._partitions.pop(topic, None)
            self._turns.forget(topic)

    async def flush(self) -> None:
        """Send everything and wait for the results; raises DeliveryFailed if a record failed."""
        await self._finish_all()
        self.raise_failures()

    async def _finish_all(self) -> None:
        while not self._accumulator.is_empty:
            await self.step(everything=True)
            if not self._accumulator.is_empty:
                await self._sender.wait(float("inf"), everything=True)

    @property
    def has_failures(self) -> bool:
        """Whether `raise_failures` would raise."""
        if self._transactions is not None:
            return self._transactions.state.error is not None
        return self.reports.has_failures

    def raise_failures(self) -> None:
        """Raise DeliveryFailed if records without a listener failed since the last call.

        A transactional producer raises AbortRequired or ProducerUnusable instead.
        """
        if self._transactions is not None:
            self.reports.forget_failures()
            self._transactions.state.check()
        else:
            self.reports.raise_failures()

    @contextmanager
    def unfinished(self) -> Iterator[Set[Batch]]:
        """Provide the set of current batches; a batch leaves it when acknowledged or failed."""
        awaited = self._accumulator.await_all()
        try:
            yield awaited
        finally:
            self._accumulator.await_no_more(awaited)

    @property
    def is_idle(self) -> bool:
        """Whether no record is waiting or in flight."""
        return self._accumulator.is_empty

    async def wait_for_work(self, interrupted: Callable[[], bool], *, everything: bool) -> None:
        """Wait for an answer, for a batch that may be sent, or until `interrupted()`."""
        await self._sender.wait(float("inf"), everything=everything, interrupted=interrupted)

    def statistics(self) -> ProducerStatistics:
        """Return counts since the start, and the current state."""
        reports, accumulator = self.reports, self._accumulator
        queue_p50, queue_p99, latency_p50, latency_p99 = reports.quantiles_ms()
        return ProducerStatistics(
            records=reports.delivered_count,
            bytes=reports.delivered_bytes,
            batches=reports.batch_count,
            requests=reports.request_count,
            retries=reports.retry_count,
            splits=reports.split_count,
            errors=reports.error_count,
            queue_ms_p50=queue_p50,
            queue_ms_p99=queue_p99,
            latency_ms_p50=latency_p50,
            latency_ms_p99=latency_p99,
            buffer_bytes=accumulator.held_bytes,
            buffer_bytes_max=accumulator.buffer_bytes,
            batches_waiting=accumulator.waiting_count,
            batches_in_flight=accumulator.in_flight,
        )

    def give_up(self, reason: Exception) -> None:
        """Fail all records that are waiting or in flight; new records are accepted afterwards."""
        self._sender.abandon(reason, for_good=False)

    def close(self) -> None:
        """Close the connections; unflushed records fail, and their listeners are called."""
        self._sender.abandon(ClientError("the producer was closed"), for_good=True)
        self._core.close()

    def abandon(self) -> None:
        """Close a producer that the program has not closed; log a warning if records are lost."""
        if not self._accumulator.is_empty:
            import logging  # most producers are closed

            logging.getLogger(__name__).warning(
                "a producer was not closed, and its last records are lost: call close() or "
                "flush(), or use it in a with block"
            )
        self.close()

    # -- transactions --------------------------------------------------------------------------

    @property
    def has_open_transaction(self) -> bool:
        """Whether there is a transaction that can be aborted."""
        return self._transactions is not None and self._transactions.state.can_abort

    async def init_transactions(self) -> None:
        """Take over the transactional id; call this once, before anything else."""
        await self._transactional().initialize()

    def begin_transaction(self) -> None:
        """Begin a transaction; no earlier record can still be waiting or in flight."""
        self._transactional().begin()

    async def send_offsets_to_transaction(self, offsets: Offsets, group: GroupMetadata) -> None:
        """Commit a group's offsets if, and only if, the transaction is committed."""
        await self._transactional().send_offsets(offsets, group)

    async def commit_transaction(self) -> None:
        """Send all records and wait for their acknowledgements, then commit."""
        self.prepare_end(commit=True)
        await self._finish_all()
        await self.end_transaction(commit=True)

    async def abort_transaction(self) -> None:
        """Give up unsent records, wait for the answers to those in flight, then abort."""
        self.prepare_end(commit=False)
        await self._finish_all()
        await self.end_transaction(commit=False)

    def prepare_end(self, *, commit: bool) -> None:
        """Refuse more records; the caller must then run `step` until the producer is idle."""
        self._transactional().state.begin_end(commit=commit)

    async def end_transaction(self, *, commit: bool) -> None:
        """End the transaction of an idle producer."""
        assert self.is_idle, "records of a transaction are on their way"
        self.reports.forget_failures()
        is_worn = self._accumulator.needs_identity
        await self._transactional().end(commit=commit, is_worn=is_worn)

    def _transactional(self) -> Transactions:
        if self._transactions is None:
            raise InvalidSetting("expected a producer with a transactional_id, found one without")
        return self._transactions

    # -- partitions ----------------------------------------------------------------------------

    def _topic(self, topic: str) -> TopicView:
        """Return a topic's metadata; raises UnknownTopicOrPartition if it must be fetched.

        The error of an earlier answer is not raised, because the topic may exist by now.
        """
        view = self._core.cluster.topics.get(topic)
        if view is None:
            raise UnknownTopicOrPartition(f"topic {topic!r} is not in the metadata")
        return view

    def _open(self, topic: str, partition: int) -> None:
        """Make a partition known to the accumulator; raises UnknownTopicOrPartition."""
        self._topic(topic)
        key = TopicPartition(topic, partition)
        self._core.cluster.partition(key)
        self._accumulator.open(key)

    def _stick(self, topic: str) -> int:
        """Choose the sticky partition for the next records that have neither partition nor key."""
        chosen = self._turns.next_free(self._topic(topic))
        self._sticky[topic] = chosen
        self._accumulator.choose((topic, chosen))
        return chosen

    def _grouped(
        self, topic: str, records: list[PlainRecord], sizes: list[int], partition: int | None
    ) -> dict[int | None, tuple[list[PlainRecord], list[int]]]:
        """Group records and their sizes by partition; None stands for the sticky partition."""
        view = self._topic(topic)
        if partition is not None:
            return {partition: (records, sizes)}
        if self._place is None and not any(record[2] for record in records):
            return {None: (records, sizes)}
        count = len(view.partitions)
        grouped: dict[int | None, tuple[list[PlainRecord], list[int]]] = {}
        for record, size in zip(records, sizes, strict=True):
            key = record[2]
            to: int | None = None
            if key is not None and self._key_hash is not None and (key or not self._skips_empty):
                to = self._key_hash(key, count)
            elif self._place is not None:
                to = self._place(topic)
            group = grouped.get(to)
            if group is None:
                group = grouped[to] = ([], [])
            group[0].append(record)
            group[1].append(size)
        return grouped

    def _extend(
        self,
        topic: str,
        partition: int | None,
        records: list[PlainRecord],
        sizes: list[int],
        rows_report: RowsReport | None,
    ) -> None:
        """Add records to one partition; for None, to sticky partitions, a batch's worth to each."""
        start = 0
        while start < len(records):
            to = partition
            if to is None:
                to = self._sticky.get(topic)
                if to is None or start:
                    to = self._stick(topic)
            try:
                start += self._accumulator.extend((topic, to), records, sizes, start, rows_report)
            except KeyError:
                self._open(topic, to)

    def _append_elsewhere(self, topic: str, record: PlainRecord, listener: Listener | None) -> bool:
        """Add a record to the next sticky partition."""
        partition = self._stick(topic)
        try:
            outcome = self._accumulator.append((topic, partition), record, listener)
        except KeyError:
            self._open(topic, partition)
            outcome = self._accumulator.append((topic, partition), record, listener)
        return outcome is not Appended.COLLECTED

    def _as_empty_key(self, topic: str) -> int:
        assert self._key_hash is not None, "settings refuse what hashes keys and ignores them"
        return self._key_hash(b"", len(self._topic(topic).partitions))


def pipeline_of(
    producer: ProducerCore,
    interceptors: Sequence[str | ClientInterceptor] = (),
    key_serializer: Serializer[Any] | None = None,
    value_serializer: Serializer[Any] | None = None,
    partitioner: Partitioner | str | None = None,
) -> Pipeline | None:
    """Return a producer's pipeline; if it would have no steps, import nothing and return None.

    Interceptors named by the settings come first. A partitioner given by name is the core's task.
    """
    own = producer.settings
    names = [*own.interceptors, *interceptors]
    function = None if isinstance(partitioner, str) else partitioner
    if not names and all(one is None for one in (key_serializer, value_serializer, function)):
        return None
    if key_serializer is not None or value_serializer is not None:
        from raylog.client.callables import check_serializers

        check_serializers(key_serializer=key_serializer, value_serializer=value_serializer)
    from raylog.client.interception import Chain
    from raylog.client.producer.pipeline import Pipeline

    chain = Chain(names, asdict(own))
    return Pipeline(producer, chain, key_serializer, value_serializer, function)


def _row_record(row: tuple[object, ...], timestamp_ms: int, headers: Headers) -> PlainRecord:
    """Return the record for a (key, value) pair; raises TypeError for anything else."""
    try:
        key, value = row
    except ValueError:
        raise TypeError(f"expected a row to be (key, value), found {len(row)} items") from None
    if key.__class__ is not bytes and key is not None:
        key = _bytes_of("key", key)
    if value.__class__ is not bytes and value is not None:
        value = _bytes_of("value", value)
    return (0, timestamp_ms, key, value, headers)


def _bytes_of(what: str, data: object) -> bytes:
    """Return a bytes-like object as bytes; raises TypeError for anything else."""
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise TypeError(
        f"expected {what} to be bytes or None, found {type(data).__name__}: "
        "encode it, or give the producer a serializer"
    )


def _headers_of(headers: Headers) -> Headers:
    """Return headers as a record holds them; raises TypeError if they are invalid."""
    if isinstance(headers, Mapping):
        raise TypeError(
            "expected headers as pairs (name, value), found a mapping: give its items()"
        )
    checked = []
    for name, value in headers:
        if not isinstance(name, str):
            raise TypeError(f"expected a header's name to be str, found {type(name).__name__}")
        checked.append((name, None if value is None else _bytes_of(f"header {name!r}", value)))
    return tuple(checked)


def _check_timestamp(timestamp_ms: int) -> None:
    if not isinstance(timestamp_ms, int):
        raise TypeError(f"expected timestamp_ms to be int, found {type(timestamp_ms).__name__}")
    if not 0 <= timestamp_ms <= TIMESTAMP_MAX:
        raise ValueError(f"expected timestamp_ms of 0 or more, found {timestamp_ms}")
