"""The blocking consumer: the asyncio one in a thread of its own, records decoded by the caller.

Fetches, heartbeats and commits go on in that thread while the caller processes. What was fetched is
taken and decoded by the caller's thread; only what has to wait goes through the other.
"""

from __future__ import annotations

import inspect
import re
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar, overload

from raylog.client.admin.groups import CommittedOffset
from raylog.client.arrow import TABLE_BYTES
from raylog.client.background import BackgroundLoop
from raylog.client.closing import OfOneProcess
from raylog.client.cluster import TopicPartition
from raylog.client.config import Config, client_and_consumer
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
from raylog.client.settings import ClientSettings
from raylog.client.streams import AsyncIo

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # it has no types

    from raylog.client.consumer.buffered import BatchTaker

T = TypeVar("T")
_ITERATION_POLL_MS = 60_000.0


class Consumer(OfOneProcess, Generic[K, V]):
    """Reads topics as a member of a group, or partitions assigned by hand.

    `with Consumer("localhost:9092", group_id="g") as consumer:`; settings have Kafka's names, in a
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
        """Without deserializers keys and values are bytes. Raises InvalidSetting."""
        client, own = client_and_consumer(config, settings)
        chain = Chain([*own.interceptors, *interceptors], settings)
        self._begin(client, own, decoding(key_deserializer, value_deserializer, chain), chain)

    @classmethod
    def of_settings(
        cls, client: ClientSettings, settings: ConsumerSettings
    ) -> Consumer[bytes, bytes]:
        """A consumer from ready settings."""
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
        """Whether a step of a rebalance is being done, by whoever has the lock."""
        self._callbacks: deque[Callable[[], None]] = deque()

    # -- what to read ----------------------------------------------------------------------------

    def subscribe(
        self,
        topics: str | re.Pattern[str] | Iterable[str],
        listener: RebalanceListener | None = None,
    ) -> None:
        """Subscribe to topics, in place of the previous subscription.

        `topics` is a topic, several, or a pattern: compiled, or text that starts with "^". A
        pattern must match whole names. The next poll joins the group. The listener is called in
        the thread that polls.
        """
        on_server = self._core.settings.group_protocol == "consumer"
        wanted = wanted_of(topics, on_server=on_server)
        with self._lock:
            self._do(lambda: self._core.subscribe(wanted))
            self._listener = listener

    def subscription(self) -> frozenset[str]:
        """The subscribed topics; for a pattern, the topics that are known to match it."""
        return self._do(self._inner.subscription)

    def unsubscribe(self) -> None:
        """Leave the group, or drop the assignment."""
        with self._lock:
            self._give_up(self._core.control.settings.operation_timeout_ms)
            self._run(self._core.unsubscribe("the consumer unsubscribes"))
            self._listener = None

    def assign(self, starts: Mapping[TopicPartition, int] | Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, in place of the previous assignment.

        Give each an offset, EARLIEST or LATEST to start at. Partitions without one start at the
        committed offset, or as `auto.offset.reset` says.
        """
        self._do(lambda: self._core.assign(starts))

    def assignment(self) -> list[TopicPartition]:
        """The assigned partitions."""
        with self._core.fetcher.lock:
            return self._core.fetcher.assignment()

    def seek(self, key: TopicPartition, offset: int | CommittedOffset) -> None:
        """Read on from an offset, EARLIEST or LATEST. Assigns the partition if it is new."""
        self._do(lambda: self._inner.seek(key, offset))

    def seek_to_beginning(self, keys: Iterable[TopicPartition] = ()) -> None:
        """Read from the first records of partitions (default: all that are assigned)."""
        self._do(lambda: self._inner.seek_to_beginning(keys))

    def seek_to_end(self, keys: Iterable[TopicPartition] = ()) -> None:
        """Read only new records of partitions (default: all that are assigned)."""
        self._do(lambda: self._inner.seek_to_end(keys))

    def seek_to_timestamp(self, keys: Iterable[TopicPartition], timestamp_ms: int) -> None:
        """Read from the first record at or after a time, or else from the end."""
        self._run(self._inner.seek_to_timestamp(keys, timestamp_ms))

    def pause(self, keys: Iterable[TopicPartition]) -> None:
        """Stop returning records of partitions; fetched records are kept."""
        self._do(lambda: self._inner.pause(keys))

    def resume(self, keys: Iterable[TopicPartition]) -> None:
        """Return records of paused partitions again."""
        self._do(lambda: self._inner.resume(keys))

    def paused(self) -> list[TopicPartition]:
        """The paused partitions."""
        return self._do(self._inner.paused)

    def position(self, key: TopicPartition) -> int:
        """Offset of the next record; raises WrongState if the partition is not assigned."""
        progress = self._core.fetcher.progress_of(key)
        if progress is not None and (position := progress.position) is not None:
            return position
        return self._run(self._core.position(key))

    # -- records -----------------------------------------------------------------------------------

    def poll(
        self, timeout_ms: float = 1_000, max_records: int = POLL_RECORDS_MAX
    ) -> list[ConsumedRecords]:
        """Records by partition, as bytes; waits up to `timeout_ms` for the first ones.

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
        """At most `max_records` records (None: max.poll.records); none after `timeout_ms`."""
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
        """Records as an Arrow table with `raylog.client.arrow.tables.SCHEMA`; it may be empty.

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
        """One record after another, without an end; the position is behind what was yielded."""
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
                if core.is_closed:  # by a listener
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
        """What is due before records are handed out."""
        self._do(self._core.begin_poll)
        if self._is_serving:
            raise WrongState("a rebalance listener cannot poll: it is called by a poll")
        self._serve(deadline_ms)

    def _serve(self, deadline_ms: float, *, leaving: bool = False) -> None:
        """Do what the group asks of the application; raises what its listener raises.

        What takes longer goes on with the next call, unless the consumer is `leaving`.
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
        """Commit offsets (None: the current positions) and wait; raises CommitFailed, KafkaError.

        After RebalanceInProgress, nothing was committed: poll, then see what is still assigned.
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
        """Call what waits for the ends of commits."""
        while self._callbacks:
            self._callbacks.popleft()()

    def committed(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Offsets that the group has committed, without partitions that have none."""
        return self._run(self._inner.committed(keys))

    def group_metadata(self) -> GroupMetadata:
        """What `send_offsets_to_transaction` of a producer needs; raises InvalidSetting."""
        return self._do(self._core.group_metadata)

    def enforce_rebalance(self, reason: str = "") -> None:
        """Join the group again, which starts a rebalance."""
        self._do(lambda: self._core.enforce_rebalance(reason))

    # -- lookups -----------------------------------------------------------------------------------

    def beginning_offsets(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of the first record, by partition."""
        return self._run(self._inner.beginning_offsets(keys))

    def end_offsets(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last readable record, by partition."""
        return self._run(self._inner.end_offsets(keys))

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        """Offset and timestamp of the first record at or after a time; None if there is none."""
        return self._run(self._inner.offsets_for_times(times_ms))

    def lag(self, key: TopicPartition) -> int:
        """Records between the position and the end, as of the last fetch or, if none, of now."""
        return self._run(self._inner.lag(key))

    def partitions_for(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic; raises UnknownTopicOrPartition."""
        return self._run(self._inner.partitions_for(topic))

    def topics(self) -> dict[str, int]:
        """All topics and how many partitions they have."""
        return self._run(self._core.topics())

    def statistics(self) -> ConsumerStatistics:
        """Counts since the start, and the state of each partition."""
        return self._do(self._inner.statistics)

    def metrics(self) -> dict[str, float]:
        """The numbers in `statistics`, by name."""
        return self.statistics().as_metrics()

    # -- ends --------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Make the current or the next poll raise WokenUp. Can be called from any thread."""
        self._background.post(self._core.wakeup)

    def close(self, timeout_ms: float = CLOSE_TIMEOUT_MS, leave_group: bool | None = None) -> None:
        """Commit, leave the group and close the connections. Has no effect if it is closed.

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
        """What `unsubscribe` and `close` do before the group is left."""
        if self._do(self._core.last_step) is not None:
            self._serve(self._core.io.now_ms() + timeout_ms, leaving=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, coroutine: Coroutine[object, object, T]) -> T:
        """Run a coroutine in the consumer's thread."""
        return self._background.call(coroutine)

    def _do(self, function: Callable[[], T]) -> T:
        """Call a function in the consumer's thread."""

        async def called() -> T:
            return function()

        return self._background.call(called())


BlockingConsumer = Consumer
"""The name in 0.1."""


class _Bulk:
    """A consumer for those who read batches in bulk, in the caller's thread."""

    def __init__(self, consumer: Consumer[K, V]) -> None:
        self.settings = consumer._core.settings
        self.assignment = consumer._core.fetcher.assignment
        self.seek = consumer._core.fetcher.seek
        self._until = consumer._until
        self._give = consumer._core.fetcher.give

    async def poll_into(self, taker: BatchTaker, timeout_ms: float) -> None:
        """Hand batches over until it is full or none is here; never suspends."""
        self._until(timeout_ms, lambda: self._give(taker))


async def _awaited(result: object) -> None:
    """Wait for what a coroutine function returned."""
    assert inspect.isawaitable(result), "it was looked at"
    await result
