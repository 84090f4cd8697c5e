"""One producer over a client's core: records in, batches out, transactions.

`step` never waits for answers to batches, so that one coroutine serves a caller that sends as it
goes as well as a background task.
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
    from raylog.client.producer.batch import Heard
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
"""Next offsets to read, to be committed."""


class ProducerCore:
    """One producer over a client's core. Not for several tasks at once, `append…` apart."""

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
        """When to look for topics that are not used any more."""
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
            "round_robin": self._in_turn,
            "random": self._anywhere,
            "consistent": self._as_empty_key,
            "murmur2": self._as_empty_key,
        }.get(name)
        """Where records without a key go; None: to the sticky partition."""

    # -- records in ----------------------------------------------------------------------------

    def append(  # noqa: C901 — called for each record: a call more would cost a tenth of it
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
        listener: Listener | None = None,
    ) -> bool:
        """Take a record; returns whether there is something to do (`step`, `make_room`).

        Whoever steps must then look again when it has to be next: a batch may have begun.

        Raises UnknownTopicOrPartition while the topic's metadata is not here (see `prepare`), and
        in a transactional producer what `begin_transaction` or `abort_transaction` must cure.
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
        heard: Heard | None = None,
    ) -> int:
        """Take many records, each key and value, at once; returns their size, at least 1.

        Whoever hears of their ends needs a partition.
        Raises as `append`, with nothing taken; RecordTooLarge and what the types of rows are wrong
        for comes before the first is taken too.
        """
        assert heard is None or partition is not None, "rows of one partition keep their order"
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
            self._extend(topic, to, chosen, of, heard)
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
        """Take a whole batch, encoded already; returns as `append`.

        `body` is the records section of a batch of format v2, not compressed: offset deltas from 0
        to `record_count` - 1, timestamp deltas from `first_timestamp_ms`. It goes behind what the
        partition has, and gets its header, sequence numbers and codec when it is sent. It should
        hold about `batch_bytes` at most: what a broker finds too large is split like others.
        `listener` is told of the end of its last record. Raises as `append`.
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
        """A topic's partitions; raises UnknownTopicOrPartition while they are not known."""
        view = self._topic(topic)
        known = self._partitions.get(topic)
        if known is None or known[0] is not view:
            known = self._partitions[topic] = (view, sorted(view.partitions))
        return known[1]

    def next_partition(self, topic: str) -> int:
        """The partition for a batch of records without keys; each call moves on.

        Raises UnknownTopicOrPartition while the topic's metadata is not here (see `prepare`).
        """
        self._sticky.pop(topic, None)
        return self._turns.next_free(self._topic(topic))

    @property
    def is_full(self) -> bool:
        """Whether new records should wait (see `make_room`)."""
        return self._accumulator.is_full

    async def prepare(self, topic: str) -> None:
        """Learn a topic's partitions; the broker may create it."""
        if not isinstance(topic, str):
            raise TypeError(f"expected topic to be str, found {type(topic).__name__}")

        async def attempt() -> None:
            await self._core.refresh([topic], create=True)
            if not self._core.cluster.topic(topic).partitions:
                raise UnknownTopicOrPartition(f"topic {topic!r} has no partitions yet")

        await self._core.repeat(attempt, timeout_ms=self.settings.max_block_ms)

    async def make_room(self) -> None:
        """Send and wait until new records may be taken; raises BufferExhausted."""
        deadline_ms = self._core.io.now_ms() + self.settings.max_block_ms
        while self.is_full:
            if self._core.io.now_ms() >= deadline_ms:
                raise self.exhausted(self.settings.max_block_ms)
            await self.step(everything=True)
            await self._sender.wait(deadline_ms, everything=True)

    def exhausted(self, timeout_ms: float) -> BufferExhausted:
        """The failure of a caller that has waited so long for room."""
        return BufferExhausted(
            f"{self._accumulator.held_bytes} bytes are unacknowledged for {timeout_ms:.0f} ms: "
            f"{self.refusal or 'is a broker down?'}"
        )

    @property
    def refusal(self) -> str | None:
        """Why what is unacknowledged is sent again; None if that is not known."""
        return self._sender.refusal

    @property
    def delivered_count(self) -> int:
        """Records acknowledged so far."""
        return self.reports.delivered_count

    # -- out -----------------------------------------------------------------------------------

    async def step(self, *, everything: bool = False) -> None:
        """Take the answers that are here, then send what is ready (or all there is)."""
        await self._sender.step(everything=everything)
        now_ms = self._core.io.now_ms()
        if now_ms >= self._forget_at_ms and not self.is_full:  # who waits for room goes on soon
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
        """Send all and wait for every record's end; raises DeliveryFailed if one failed."""
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
        """Raise DeliveryFailed if records failed that have no listener, since last asked.

        In a transaction that is AbortRequired, or ProducerUnusable.
        """
        if self._transactions is not None:
            self.reports.forget_failures()
            self._transactions.state.check()
        else:
            self.reports.raise_failures()

    @contextmanager
    def unfinished(self) -> Iterator[Set[Batch]]:
        """The batches of what was taken before; each leaves the set when it has met its end."""
        awaited = self._accumulator.await_all()
        try:
            yield awaited
        finally:
            self._accumulator.await_no_more(awaited)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held or in flight."""
        return self._accumulator.is_empty

    async def wait_for_work(self, interrupted: Callable[[], bool], *, everything: bool) -> None:
        """Wait for an answer, for a batch that may be sent, or until `interrupted()`."""
        await self._sender.wait(float("inf"), everything=everything, interrupted=interrupted)

    def statistics(self) -> ProducerStatistics:
        """What was done so far, and how it stands."""
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
        """Let everything that is held or in flight fail; more may be taken then."""
        self._sender.abandon(reason, for_good=False)

    def close(self) -> None:
        """End the producer's connections; what is not flushed is lost, and its listeners told."""
        self._sender.abandon(ClientError("the producer was closed"), for_good=True)
        self._core.close()

    def abandon(self) -> None:
        """End a producer that the program has not closed, with a warning if records are lost."""
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
        """Take the transactional id over, once, before all else."""
        await self._transactional().initialize()

    def begin_transaction(self) -> None:
        """Begin a transaction; records of before and of other transactions are all delivered."""
        self._transactional().begin()

    async def send_offsets_to_transaction(self, offsets: Offsets, group: GroupMetadata) -> None:
        """Commit a group's offsets if the transaction is committed, and not otherwise."""
        await self._transactional().send_offsets(offsets, group)

    async def commit_transaction(self) -> None:
        """Deliver all records, then commit."""
        self.prepare_end(commit=True)
        await self._finish_all()
        await self.end_transaction(commit=True)

    async def abort_transaction(self) -> None:
        """Give up what was not sent, wait for the answers to what was, then abort."""
        self.prepare_end(commit=False)
        await self._finish_all()
        await self.end_transaction(commit=False)

    def prepare_end(self, *, commit: bool) -> None:
        """Take no more records; whoever steps this producer makes it idle next."""
        self._transactional().state.begin_end(commit=commit)

    async def end_transaction(self, *, commit: bool) -> None:
        """End the transaction of a producer that is idle."""
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
        """A topic's metadata; raises UnknownTopicOrPartition where it has to be asked for.

        The error of an earlier answer is not raised: the topic may be there by now.
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
        """The partition for the records to come that name none and have no key."""
        chosen = self._turns.next_free(self._topic(topic))
        self._sticky[topic] = chosen
        self._accumulator.choose((topic, chosen))
        return chosen

    def _grouped(
        self,
        topic: str,
        records: list[PlainRecord],
        sizes: list[int],
        partition: int | None,
    ) -> dict[int | None, tuple[list[PlainRecord], list[int]]]:
        """Records and their sizes by partition; None: the sticky one, whichever that is."""
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
        heard: Heard | None,
    ) -> None:
        """Add records to one partition, or a batch's worth each to the sticky ones."""
        start = 0
        while start < len(records):
            to = partition
            if to is None:
                to = self._sticky.get(topic)
                if to is None or start:
                    to = self._stick(topic)
            try:
                start += self._accumulator.extend((topic, to), records, sizes, start, heard)
            except KeyError:
                self._open(topic, to)

    def _append_elsewhere(self, topic: str, record: PlainRecord, listener: Listener | None) -> bool:
        """Add a record to another partition than the last, if there is one."""
        partition = self._stick(topic)
        try:
            outcome = self._accumulator.append((topic, partition), record, listener)
        except KeyError:
            self._open(topic, partition)
            outcome = self._accumulator.append((topic, partition), record, listener)
        return outcome is not Appended.COLLECTED

    def _in_turn(self, topic: str) -> int:
        return self._turns.next(self._topic(topic))

    def _anywhere(self, topic: str) -> int:
        return self._turns.any(self._topic(topic))

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
    """The steps of a producer; None if there are none: then nothing of them is imported.

    Interceptors of its settings go first. A partitioner that is a name is one of the core's.
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
    """A record of key and value; TypeError for all else."""
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
    """A copy of what is like bytes; TypeError for all else."""
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise TypeError(
        f"expected {what} to be bytes or None, found {type(data).__name__}: "
        "encode it, or give the producer a serializer"
    )


def _headers_of(headers: Headers) -> Headers:
    """The headers as records have them; TypeError for what no record has."""
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
