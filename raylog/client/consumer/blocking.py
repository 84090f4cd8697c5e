"""The blocking consumer: runs the consumer core's event loop in a thread of its own.

Fetches, heartbeats and commits continue in that thread while the caller processes records. The
caller's thread takes and decodes fetched records itself; only calls that must wait go through the
other thread.
"""

from __future__ import annotations

import inspect
import re
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar, overload

from raylog.client.admin.groups import CommittedOffset
from raylog.client.arrow import TABLE_BYTES
from raylog.client.background import BackgroundLoop
from raylog.client.closing import Closing, OfOneProcess
from raylog.client.cluster import TopicPartition
from raylog.client.consumer.aio import (
    CLOSE_TIMEOUT_MS,
    POLL_RECORDS_MAX,
    AsyncConsumer,
    listener_method,
)
from raylog.client.consumer.arguments import require_limits, require_timeout
from raylog.client.consumer.commits import Done, Offsets
from raylog.client.consumer.core import ConsumerCore, WrongState
from raylog.client.consumer.decoding import Decoding, K, V, decoding
from raylog.client.consumer.fetched import ConsumedRecords
from raylog.client.consumer.group.wanted import wanted_of
from raylog.client.consumer.listener import RebalanceListener
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.consumer.settings import ConsumerSettings
from raylog.client.consumer.statistics import ConsumerStatistics
from raylog.client.interception import Chain
from raylog.client.interceptors import ClientInterceptor, ConsumerRecord
from raylog.client.io import run_blocking
from raylog.client.serializers import Deserializer
from raylog.client.setting_parsing import Config, client_and_consumer
from raylog.client.settings import ClientSettings
from raylog.client.streams import AsyncIo

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # it has no types

    from raylog.client.consumer.buffered import BatchTaker

T = TypeVar("T")
_ITERATION_POLL_MS = 60_000.0


class Consumer(OfOneProcess, Closing, Generic[K, V]):
    """Reads topics as a group member, or manually assigned partitions.

    `with Consumer("localhost:9092", group_id="g") as consumer:`. Settings have Kafka's names, in a
    mapping or as keyword arguments. Threads can share a consumer; their calls run one after
    another, except `wakeup`, which never waits. Create a consumer in each process: a child of
    `fork` cannot use its parent's.
    """

    @overload
    def __init__(
        self: Consumer[bytes, bytes],
        config: Config = None,
        /,
        *,
        key_deserializer: None = None,
        value_deserializer: None = None,
        interceptors: Sequence[str | ClientInterceptor] = ...,
        **settings: object,
    ) -> None: ...
    @overload
    def __init__(
        self: Consumer[bytes, V],
        config: Config = None,
        /,
        *,
        value_deserializer: Deserializer[V],
        key_deserializer: None = None,
        interceptors: Sequence[str | ClientInterceptor] = ...,
        **settings: object,
    ) -> None: ...
    @overload
    def __init__(
        self: Consumer[K, bytes],
        config: Config = None,
        /,
        *,
        key_deserializer: Deserializer[K],
        value_deserializer: None = None,
        interceptors: Sequence[str | ClientInterceptor] = ...,
        **settings: object,
    ) -> None: ...
    @overload
    def __init__(
        self,
        config: Config = None,
        /,
        *,
        key_deserializer: Deserializer[K],
        value_deserializer: Deserializer[V],
        interceptors: Sequence[str | ClientInterceptor] = ...,
        **settings: object,
    ) -> None: ...
    def __init__(
        self,
        config: Config = None,
        /,
        *,
        key_deserializer: object = None,
        value_deserializer: object = None,
        interceptors: Sequence[str | ClientInterceptor] = (),
        **settings: object,
    ) -> None:
        """Without deserializers, keys and values are bytes. Raises InvalidSetting."""
        client, own = client_and_consumer(config, settings)
        chain = Chain([*own.interceptors, *interceptors], settings)
        self._begin(client, own, decoding(key_deserializer, value_deserializer, chain), chain)

    @classmethod
    def of_settings(
        cls, client: ClientSettings, settings: ConsumerSettings
    ) -> Consumer[bytes, bytes]:
        """Return a consumer of bytes with these settings."""
        consumer: Consumer[bytes, bytes] = Consumer.__new__(Consumer)
        chain = Chain(settings.interceptors)
        consumer._begin(client, settings, Decoding(None, None, chain), chain)
        return consumer

    def _begin(
        self,
        client: ClientSettings,
        settings: ConsumerSettings,
        decoding: Decoding[K, V],
        chain: Chain,
    ) -> None:
        io = AsyncIo()
        self._decoding = decoding
        self._background = BackgroundLoop()
        self._background.at_end.add(io.finish)
        self._core = ConsumerCore(io, client, settings, interceptors=chain)
        self._background.at_end.add(self._core.disconnect)
        self._inner: AsyncConsumer[bytes, bytes] = AsyncConsumer.over(self._core)
        self._listener: object = None
        self._lock = threading.RLock()
        self._is_serving = False
        """Whether the lock's owner is serving a rebalance step."""
        self._callbacks: deque[Callable[[], None]] = deque()

    # -- subscription and assignment -------------------------------------------------------------

    def subscribe(
        self,
        topics: str | re.Pattern[str] | Iterable[str],
        listener: RebalanceListener | None = None,
    ) -> None:
        """Subscribe to topics, replacing the previous subscription.

        `topics` is a topic, several topics, or a pattern: compiled, or a string that starts with
        "^". A pattern must match whole names. The next poll joins the group. The listener is called
        in the thread that polls.
        """
        on_server = self._core.settings.group_protocol == "consumer"
        wanted = wanted_of(topics, on_server=on_server)
        with self._lock:
            self._do(lambda: self._core.subscribe(wanted))
            self._listener = listener

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics; for a pattern, the known topics that match it."""
        return self._do(self._inner.subscription)

    def unsubscribe(self) -> None:
        """Leave the group, or drop the assignment."""
        with self._lock:
            self._give_up(self._core.control.settings.operation_timeout_ms)
            self._run(self._core.unsubscribe("the consumer unsubscribes"))
            self._listener = None

    def assign(self, starts: Mapping[TopicPartition, int] | Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, replacing the previous assignment.

        A mapping gives each partition its start: an offset, EARLIEST or LATEST. Without one, a
        partition starts at its committed offset, or else where `auto.offset.reset` says.
        """
        self._do(lambda: self._core.assign(starts))

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        with self._core.fetcher.lock:
            return self._core.fetcher.assignment()

    def seek(self, key: TopicPartition, offset: int | CommittedOffset) -> None:
        """Continue from an offset, EARLIEST or LATEST. Assign the partition if it is new."""
        self._do(lambda: self._inner.seek(key, offset))

    def seek_to_beginning(self, keys: Iterable[TopicPartition] = ()) -> None:
        """Continue from the first record of each partition (default: all assigned ones)."""
        self._do(lambda: self._inner.seek_to_beginning(keys))

    def seek_to_end(self, keys: Iterable[TopicPartition] = ()) -> None:
        """Continue from the end of each partition (default: all assigned ones)."""
        self._do(lambda: self._inner.seek_to_end(keys))

    def seek_to_timestamp(self, keys: Iterable[TopicPartition], timestamp_ms: int) -> None:
        """Continue from the first record at or after a time, or from the end if there is none."""
        self._run(self._inner.seek_to_timestamp(keys, timestamp_ms))

    def pause(self, keys: Iterable[TopicPartition]) -> None:
        """Stop returning records of these partitions; records already fetched are kept."""
        self._do(lambda: self._inner.pause(keys))

    def resume(self, keys: Iterable[TopicPartition]) -> None:
        """Return records of paused partitions again."""
        self._do(lambda: self._inner.resume(keys))

    def paused(self) -> list[TopicPartition]:
        """Return the paused partitions."""
        return self._do(self._inner.paused)

    def position(self, key: TopicPartition) -> int:
        """Return the next record's offset; raise WrongState if the partition is not assigned."""
        progress = self._core.fetcher.progress_of(key)
        if progress is not None and (position := progress.position) is not None:
            return position
        return self._run(self._core.position(key))

    # -- records -----------------------------------------------------------------------------------

    def poll(
        self, timeout_ms: float = 1_000, max_records: int = POLL_RECORDS_MAX
    ) -> list[ConsumedRecords]:
        """Return records by partition, as bytes; wait up to `timeout_ms` for the first ones.

        Batches are not split, so the result may exceed `max_records` by up to one batch. This is
        the fastest way to read records. Deserializers and interceptors are not called.
        """
        require_limits(max_records=max_records)
        fetcher = self._core.fetcher
        with self._lock:
            return self._until(timeout_ms, lambda: fetcher.take(max_records)) or []

    def poll_records(
        self, timeout_ms: float = 1_000, max_records: int | None = None
    ) -> list[ConsumerRecord[K, V]]:
        """Return up to `max_records` records (None: max.poll.records), none after `timeout_ms`."""
        fetcher = self._core.fetcher
        count = self._core.settings.max_poll_records if max_records is None else max_records
        require_limits(max_records=count)
        with self._lock:
            groups = self._until(timeout_ms, lambda: fetcher.take(count, exactly=True))
            return self._decoding.records(groups, fetcher.seek) if groups else []

    def poll_table(
        self,
        timeout_ms: float = 1_000,
        max_records: int | None = None,
        max_bytes: int = TABLE_BYTES,
    ) -> pa.Table:
        """Return records as an Arrow table with `raylog.client.arrow.tables.SCHEMA`, maybe empty.

        Batches are not split, so the table may exceed the limits by up to one batch. Needs
        raylog[arrow].
        """
        from raylog.extras import check

        check("arrow", "poll_table")
        require_limits(max_records=1 if max_records is None else max_records, max_bytes=max_bytes)
        from raylog.client.arrow.tables import poll_table

        with self._lock:
            return run_blocking(
                poll_table(_Bulk(self), timeout_ms, max_records=max_records, max_bytes=max_bytes)
            )

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        """Yield records forever; the position is just after the last record yielded."""
        while True:
            self._core.check_reads()
            yield from self.poll_records(_ITERATION_POLL_MS, 1)

    def _until(self, timeout_ms: float, take: Callable[[], T | None]) -> T | None:
        """Serve the group until something can be taken or time is up."""
        core = self._core
        self._background.check()
        require_timeout(timeout_ms)
        deadline_ms = core.io.now_ms() + timeout_ms
        while True:
            if core.needs_attention:
                self._attend(deadline_ms)
                if core.is_closed:  # a listener closed it
                    return None
            elif core.group is not None:
                core.group.polled_ms = core.io.now_ms()
            if self._callbacks:
                self._call_back()
            taken = take()
            if core.fetcher.has_work:
                self._background.post(core.nudge)
            now_ms = core.io.now_ms()
            if taken or now_ms >= deadline_ms:
                return taken
            self._run(core.wait(deadline_ms - now_ms))

    def _attend(self, deadline_ms: float) -> None:
        """Do what is due before records are handed out."""
        self._do(self._core.begin_poll)
        if self._is_serving:
            raise WrongState("a rebalance listener cannot poll: it is called by a poll")
        self._serve(deadline_ms)

    def _serve(self, deadline_ms: float, *, leaving: bool = False) -> None:
        """Serve the pending rebalance steps; raise what the listener raises.

        Steps that take longer continue in the next call, unless the consumer is `leaving`.
        """
        before, self._is_serving = self._is_serving, True
        try:
            self._serve_steps(deadline_ms, leaving=leaving)
        finally:
            self._is_serving = before

    def _serve_steps(self, deadline_ms: float, *, leaving: bool) -> None:
        core = self._core
        failure: Exception | None = None
        while (step := core.step) is not None:
            left_ms = deadline_ms - core.io.now_ms()
            if not self._run(core.is_settled(step, left_ms, leaving=leaving)):
                break
            call = self._run(core.begin(step))
            method = listener_method(self._listener, call) if call is not None else None
            try:
                if call is not None and method is not None:
                    result = method(call.partitions)
                    if inspect.isawaitable(result):
                        self._run(_awaited(result))
            except Exception as error:  # noqa: BLE001 - raised below: the rebalance goes on first
                failure = failure or error
            if not core.is_closed:
                self._run(core.finish(step))
        if failure is not None:
            raise failure

    # -- commits -----------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset | int] | None = None) -> None:
        """Commit offsets (None: the current positions) and wait; raise CommitFailed or KafkaError.

        After RebalanceInProgress, nothing was committed: poll, then check what is still assigned.
        """
        self._run(self._core.commit(offsets))
        self._call_back()

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset | int] | None = None,
        callback: Done | None = None,
    ) -> None:
        """Commit without waiting. An older commit never overwrites a newer one.

        The next call of `poll`, `commit` or `close` calls `callback(offsets, failure)`, in the
        order of the commits.
        """

        def done(committed: Offsets, failure: Exception | None) -> None:
            if callback is not None:
                self._callbacks.append(lambda: callback(committed, failure))

        self._do(lambda: self._core.commit_async(offsets, done))

    def _call_back(self) -> None:
        """Call the callbacks of completed commits."""
        while self._callbacks:
            self._callbacks.popleft()()

    def committed(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the group's committed offsets, without partitions that have none."""
        return self._run(self._inner.committed(keys))

    def group_metadata(self) -> GroupMetadata:
        """Return what a producer's `send_offsets_to_transaction` needs; raise InvalidSetting."""
        return self._do(self._core.group_metadata)

    def enforce_rebalance(self, reason: str = "") -> None:
        """Rejoin the group, which starts a rebalance."""
        self._do(lambda: self._core.enforce_rebalance(reason))

    # -- lookups -----------------------------------------------------------------------------------

    def beginning_offsets(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset of the first record, by partition."""
        return self._run(self._inner.beginning_offsets(keys))

    def end_offsets(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last readable record, by partition."""
        return self._run(self._inner.end_offsets(keys))

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        """Return offset and timestamp of the first record at or after a time, or None."""
        return self._run(self._inner.offsets_for_times(times_ms))

    def lag(self, key: TopicPartition) -> int:
        """Return how many records are left to read, as of the last fetch or else as of now."""
        return self._run(self._inner.lag(key))

    def partitions_for(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic; raise UnknownTopicOrPartition."""
        return self._run(self._inner.partitions_for(topic))

    def topics(self) -> dict[str, int]:
        """Return all topics with their partition counts."""
        return self._run(self._core.topics())

    def statistics(self) -> ConsumerStatistics:
        """Return counts since the start, and the state of each partition."""
        return self._do(self._inner.statistics)

    def metrics(self) -> dict[str, float]:
        """Return the numbers in `statistics`, by name."""
        return self.statistics().as_metrics()

    # -- closing -----------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Make the current or the next poll raise WokenUp. Can be called from any thread."""
        self._background.post(self._core.wakeup)

    def close(self, timeout_ms: float = CLOSE_TIMEOUT_MS, leave_group: bool | None = None) -> None:
        """Commit, leave the group and close the connections. Does nothing if already closed.

        A dynamic member leaves unless `leave_group` is False. A static member (group.instance.id)
        leaves only if it is True; otherwise it stays a member until its session times out.
        """
        with self._lock:
            if self._background.unusable is not None:
                return
            deadline_ms = self._core.io.now_ms() + timeout_ms
            try:
                self._give_up(timeout_ms)
            finally:
                left_ms = max(0.0, deadline_ms - self._core.io.now_ms())
                try:
                    self._run(self._core.close(left_ms, leave_group))
                finally:
                    self._background.stop()
            self._call_back()

    def _give_up(self, timeout_ms: float) -> None:
        """Serve the last rebalance step before `unsubscribe` or `close` leaves the group."""
        if self._do(self._core.last_step) is not None:
            self._serve(self._core.io.now_ms() + timeout_ms, leaving=True)

    def _run(self, coroutine: Coroutine[object, object, T]) -> T:
        """Run a coroutine in the consumer's thread."""
        return self._background.call(coroutine)

    def _do(self, function: Callable[[], T]) -> T:
        """Call a function in the consumer's thread."""

        async def called() -> T:
            return function()

        return self._background.call(called())


BlockingConsumer = Consumer
"""The class's name in version 0.1."""


class _Bulk:
    """Adapts a consumer to `BatchSource`, for bulk readers in the caller's thread."""

    def __init__(self, consumer: Consumer[K, V]) -> None:
        self.settings = consumer._core.settings
        self.assignment = consumer._core.fetcher.assignment
        self.seek = consumer._core.fetcher.seek
        self._until = consumer._until
        self._give = consumer._core.fetcher.give

    async def poll_into(self, taker: BatchTaker, timeout_ms: float) -> None:
        """Hand batches over until the taker is full or none are left; never suspends."""
        self._until(timeout_ms, lambda: self._give(taker))


async def _awaited(result: object) -> None:
    """Await what a listener's coroutine function returned."""
    assert inspect.isawaitable(result), "it was looked at"
    await result
