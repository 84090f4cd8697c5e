"""The asyncio consumer."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar, overload

from raylog.client.admin.groups import CommittedOffset
from raylog.client.arrow import TABLE_BYTES
from raylog.client.closing import AsyncClosing, OfOneProcess
from raylog.client.cluster import TopicPartition, require_partitions, require_topics
from raylog.client.consumer.arguments import require_limits, require_starts, require_timeout
from raylog.client.consumer.commits import Done
from raylog.client.consumer.core import ConsumerCore, ListenerCall, WrongState
from raylog.client.consumer.decoding import Decoding, K, V, decoding
from raylog.client.consumer.fetched import ConsumedRecords, FetchedBatches
from raylog.client.consumer.group.wanted import wanted_of
from raylog.client.consumer.listener import RebalanceListener
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.consumer.statistics import ConsumerStatistics, statistics_of
from raylog.client.interception import Chain
from raylog.client.interceptors import ClientInterceptor, ConsumerRecord
from raylog.client.offsets import EARLIEST, LATEST, list_offsets
from raylog.client.serializers import Deserializer
from raylog.client.setting_parsing import Config, client_and_consumer
from raylog.client.streams import AsyncIo

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # it has no types

    from raylog.client.consumer.buffered import BatchTaker

T = TypeVar("T")
POLL_RECORDS_MAX = 10_000
CLOSE_TIMEOUT_MS = 30_000
_ITERATION_POLL_MS = 60_000.0


class AsyncConsumer(OfOneProcess, AsyncClosing, Generic[K, V]):
    """Reads topics as a group member, or manually assigned partitions. For one task at a time.

    `async with AsyncConsumer("localhost:9092", group_id="g") as consumer:`. Settings have Kafka's
    names, in a mapping or as keyword arguments. The consumer fetches, commits and sends heartbeats
    in the background, as long as the application does not block the event loop.
    """

    @overload
    def __init__(
        self: AsyncConsumer[bytes, bytes],
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
        self: AsyncConsumer[bytes, V],
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
        self: AsyncConsumer[K, bytes],
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
        self._io: AsyncIo | None = AsyncIo()
        core = ConsumerCore(self._io, client, own, interceptors=chain)
        self._begin(core, decoding(key_deserializer, value_deserializer, chain))

    @classmethod
    def over(
        cls, core: ConsumerCore, decoding: Decoding[bytes, bytes] | None = None
    ) -> AsyncConsumer[bytes, bytes]:
        """Return a consumer of bytes on top of an existing core."""
        made: AsyncConsumer[bytes, bytes] = AsyncConsumer.__new__(AsyncConsumer)
        made._io = None  # the caller owns it
        made._begin(core, decoding or Decoding(None, None, core.interceptors))
        return made

    def _begin(self, core: ConsumerCore, decoding: Decoding[K, V]) -> None:
        self.core = core
        """The core, for other wrappers of this client."""
        self._decoding = decoding
        self._listener: object = None
        self._serving: asyncio.Task[object] | None = None
        """The task that is serving a rebalance, if any."""

    # -- subscription and assignment -------------------------------------------------------------

    def subscribe(
        self,
        topics: str | re.Pattern[str] | Iterable[str],
        listener: RebalanceListener | None = None,
    ) -> None:
        """Subscribe to topics, replacing the previous subscription.

        `topics` is a topic, several topics, or a pattern: compiled, or a string that starts with
        "^". A pattern must match whole names. The next poll joins the group.
        """
        on_server = self.core.settings.group_protocol == "consumer"
        wanted = wanted_of(topics, on_server=on_server)
        self.core.subscribe(wanted)
        self._listener = listener

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics; for a pattern, the known topics that match it."""
        wanted = self.core.wanted
        if wanted.pattern is None:
            return wanted.topics
        known = {key.topic for key in self.core.fetcher.assignment()}
        watched = self.core.group.member.topics_to_watch() if self.core.group else frozenset()
        return frozenset(known | watched)

    async def unsubscribe(self) -> None:
        """Leave the group, or drop the assignment."""
        await self._give_up(self.core.control.settings.operation_timeout_ms)
        await self.core.unsubscribe("the consumer unsubscribes")
        self._listener = None

    def assign(self, starts: Mapping[TopicPartition, int] | Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, replacing the previous assignment.

        A mapping gives each partition its start: an offset, EARLIEST or LATEST. Without one, a
        partition starts at its committed offset, or else where `auto.offset.reset` says.
        """
        self.core.assign(starts)

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        return self.core.fetcher.assignment()

    def seek(self, key: TopicPartition, offset: int | CommittedOffset) -> None:
        """Continue from an offset, EARLIEST or LATEST. Assign the partition if it is new."""
        self.core.check_open()
        require_partitions([key])
        require_topics([key.topic])
        at = offset if isinstance(offset, CommittedOffset) else CommittedOffset(offset)
        require_starts({key: at.offset})
        if self.core.group is not None and self.core.fetcher.progress_of(key) is None:
            raise WrongState(f"{key} is not assigned to this consumer")
        self.core.fetcher.seek(key, at.offset, at.leader_epoch)
        self.core.start()
        self.core.nudge()

    def seek_to_beginning(self, keys: Iterable[TopicPartition] = ()) -> None:
        """Continue from the first record of each partition (default: all assigned ones)."""
        for key in list(keys) or self.assignment():
            self.seek(key, EARLIEST)

    def seek_to_end(self, keys: Iterable[TopicPartition] = ()) -> None:
        """Continue from the end of each partition (default: all assigned ones)."""
        for key in list(keys) or self.assignment():
            self.seek(key, LATEST)

    async def seek_to_timestamp(self, keys: Iterable[TopicPartition], timestamp_ms: int) -> None:
        """Continue from the first record at or after a time, or from the end if there is none."""
        self.core.check_open()
        found = await list_offsets(self.core.control, dict.fromkeys(keys, timestamp_ms))
        for key, answer in found.items():
            self.seek(key, answer.offset if answer.offset >= 0 else LATEST)

    def pause(self, keys: Iterable[TopicPartition]) -> None:
        """Stop returning records of these partitions; records already fetched are kept."""
        self.core.fetcher.pause(self._assigned(keys))
        self.core.nudge()

    def resume(self, keys: Iterable[TopicPartition]) -> None:
        """Return records of paused partitions again."""
        self.core.fetcher.resume(self._assigned(keys))
        self.core.nudge()

    def paused(self) -> list[TopicPartition]:
        """Return the paused partitions."""
        return self.core.fetcher.paused()

    async def position(self, key: TopicPartition) -> int:
        """Return the next record's offset; raise WrongState if the partition is not assigned."""
        return await self.core.position(key)

    # -- records -----------------------------------------------------------------------------------

    async def poll(
        self, timeout_ms: float = 1_000, max_records: int = POLL_RECORDS_MAX
    ) -> list[ConsumedRecords]:
        """Return records by partition, as bytes; wait up to `timeout_ms` for the first ones.

        Batches are not split, so the result may exceed `max_records` by up to one batch. This is
        the fastest way to read records. Deserializers and interceptors are not called.
        """
        return await self._poll(timeout_ms, max_records, exactly=False)

    async def poll_records(
        self, timeout_ms: float = 1_000, max_records: int | None = None
    ) -> list[ConsumerRecord[K, V]]:
        """Return up to `max_records` records (None: max.poll.records), none after `timeout_ms`."""
        count = self.core.settings.max_poll_records if max_records is None else max_records
        groups = await self._poll(timeout_ms, count, exactly=True)
        return self._decoding.records(groups, self.core.fetcher.seek) if groups else []

    async def poll_blocks(
        self, timeout_ms: float, max_bytes: int = 64 * 1024 * 1024
    ) -> list[FetchedBatches]:
        """Return fetched batches undecoded, for bulk readers."""
        require_timeout(timeout_ms)
        deadline_ms = self.core.io.now_ms() + timeout_ms
        while True:
            await self._serve(deadline_ms)
            left_ms = max(0.0, deadline_ms - self.core.io.now_ms())
            blocks = await self.core.poll_blocks(left_ms, max_bytes)
            if blocks or self.core.io.now_ms() >= deadline_ms:
                return blocks

    async def poll_table(
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

        return await poll_table(
            _Bulk(self), timeout_ms, max_records=max_records, max_bytes=max_bytes
        )

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        """Yield records forever; the position is just after the last record yielded."""
        while True:
            self.core.check_reads()
            for record in await self.poll_records(_ITERATION_POLL_MS, 1):
                yield record

    async def _poll(
        self, timeout_ms: float, max_records: int, *, exactly: bool
    ) -> list[ConsumedRecords]:
        require_limits(max_records=max_records)
        fetcher = self.core.fetcher
        taken = await self._until(timeout_ms, lambda: fetcher.take(max_records, exactly=exactly))
        return taken or []

    async def _until(self, timeout_ms: float, take: Callable[[], T | None]) -> T | None:
        """Serve the group until something can be taken or time is up."""
        core = self.core
        require_timeout(timeout_ms)
        deadline_ms = core.io.now_ms() + timeout_ms
        while True:
            core.begin_poll()
            await self._serve(deadline_ms)
            if core.is_closed:  # a listener closed it
                return None
            taken = take()
            now_ms = core.io.now_ms()
            if taken or now_ms >= deadline_ms:
                core.nudge()
                return taken
            await core.wait(deadline_ms - now_ms)

    async def _serve(self, deadline_ms: float, *, leaving: bool = False) -> None:
        """Serve the pending rebalance steps; raise what the listener raises.

        Steps that take longer continue in the next call, unless the consumer is `leaving`.
        """
        core = self.core
        if core.step is None:
            return
        before, task = self._serving, asyncio.current_task()
        if before is not None and not leaving:
            if before is task:
                raise WrongState("a rebalance listener cannot poll: it is called by a poll")
            await core.io.wait(lambda: self._serving is None, deadline_ms - core.io.now_ms())
            return
        self._serving = task
        try:
            await self._serve_steps(deadline_ms, leaving=leaving)
        finally:
            self._serving = before
            core.io.wake()

    async def _serve_steps(self, deadline_ms: float, *, leaving: bool) -> None:
        core = self.core
        failure: Exception | None = None
        while (step := core.step) is not None:
            left_ms = deadline_ms - core.io.now_ms()
            if not await core.is_settled(step, left_ms, leaving=leaving):
                break
            call = await core.begin(step)
            try:
                if call is not None:
                    await self._tell(call)
            except Exception as error:  # noqa: BLE001 - raised below: the rebalance goes on first
                failure = failure or error
            await core.finish(step)
        if failure is not None:
            raise failure

    async def _tell(self, call: ListenerCall) -> None:
        method = listener_method(self._listener, call)
        if method is not None:
            result = method(call.partitions)
            if inspect.isawaitable(result):
                await result

    # -- commits -----------------------------------------------------------------------------------

    async def commit(
        self, offsets: Mapping[TopicPartition, CommittedOffset | int] | None = None
    ) -> None:
        """Commit offsets (None: the current positions) and wait; raise CommitFailed or KafkaError.

        After RebalanceInProgress, nothing was committed: poll, then check what is still assigned.
        """
        await self.core.commit(offsets)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset | int] | None = None,
        callback: Done | None = None,
    ) -> None:
        """Commit without waiting. An older commit never overwrites a newer one.

        `callback(offsets, failure)` calls happen in the order of the commits.
        """
        self.core.commit_async(offsets, callback or _ignored)

    async def committed(
        self, keys: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the group's committed offsets, without partitions that have none."""
        return await self.core.committed(list(keys))

    def group_metadata(self) -> GroupMetadata:
        """Return what a producer's `send_offsets_to_transaction` needs; raise InvalidSetting."""
        return self.core.group_metadata()

    def enforce_rebalance(self, reason: str = "") -> None:
        """Rejoin the group, which starts a rebalance."""
        self.core.enforce_rebalance(reason)

    # -- lookups -----------------------------------------------------------------------------------

    async def beginning_offsets(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset of the first record, by partition."""
        return await self.core.offsets(keys, EARLIEST)

    async def end_offsets(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last readable record, by partition."""
        return await self.core.offsets(keys, LATEST)

    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        """Return offset and timestamp of the first record at or after a time, or None."""
        self.core.check_open()
        found = await list_offsets(self.core.control, times_ms)
        return {
            key: (one.offset, one.timestamp_ms) if one.offset >= 0 else None
            for key, one in found.items()
        }

    async def lag(self, key: TopicPartition) -> int:
        """Return how many records are left to read, as of the last fetch or else as of now."""
        position = await self.position(key)
        progress = self.core.fetcher.progress_of(key)
        known = None
        if progress is not None:
            known = progress.lag(read_committed=self.core.settings.read_committed)
        if known is not None:
            return known
        return max(0, (await self.end_offsets([key]))[key] - position)

    async def partitions_for(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic; raise UnknownTopicOrPartition."""
        self.core.check_open()
        return await self.core.control.partitions_of([topic])

    async def topics(self) -> dict[str, int]:
        """Return all topics with their partition counts."""
        return await self.core.topics()

    def statistics(self) -> ConsumerStatistics:
        """Return counts since the start, and the state of each partition."""
        return statistics_of(self.core)

    def metrics(self) -> dict[str, float]:
        """Return the numbers in `statistics`, by name."""
        return self.statistics().as_metrics()

    # -- closing -----------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Make the current or the next poll raise WokenUp. Call it from the loop's thread."""
        self.core.wakeup()

    async def close(
        self, timeout_ms: float = CLOSE_TIMEOUT_MS, leave_group: bool | None = None
    ) -> None:
        """Commit, leave the group and close the connections.

        A dynamic member leaves unless `leave_group` is False. A static member (group.instance.id)
        leaves only if it is True; otherwise it stays a member until its session times out.
        """
        if self.core.is_closed:
            return
        deadline_ms = self.core.io.now_ms() + timeout_ms
        try:
            await self._give_up(timeout_ms)
        finally:
            left_ms = max(0.0, deadline_ms - self.core.io.now_ms())
            await self.core.close(left_ms, leave_group)
            if self._io is not None:
                await self._io.finish()

    async def _give_up(self, timeout_ms: float) -> None:
        """Serve the last rebalance step before `unsubscribe` or `close` leaves the group."""
        if self.core.last_step() is not None:
            await self._serve(self.core.io.now_ms() + timeout_ms, leaving=True)

    def _assigned(self, keys: Iterable[TopicPartition]) -> list[TopicPartition]:
        self.core.check_open()
        found = list(keys)
        for key in found:
            if self.core.fetcher.progress_of(key) is None:
                raise WrongState(f"{key} is not assigned to this consumer")
        return found


class _Bulk:
    """Adapts a consumer to `BatchSource`, for bulk readers."""

    def __init__(self, consumer: AsyncConsumer[K, V]) -> None:
        self.settings = consumer.core.settings
        self.assignment = consumer.core.fetcher.assignment
        self.seek = consumer.core.fetcher.seek
        self._until = consumer._until
        self._give = consumer.core.fetcher.give

    async def poll_into(self, taker: BatchTaker, timeout_ms: float) -> None:
        """Hand batches over until the taker is full or none are left."""
        await self._until(timeout_ms, lambda: self._give(taker))


def listener_method(
    listener: object, call: ListenerCall
) -> Callable[[Sequence[TopicPartition]], object] | None:
    """Return the method to call; on_partitions_revoked replaces a missing on_partitions_lost."""
    method = getattr(listener, call.method, None)
    if method is None and call.method == "on_partitions_lost":
        method = getattr(listener, "on_partitions_revoked", None)
    return method


def _ignored(offsets: object, failure: object) -> None:
    """The callback of a commit whose outcome nobody needs."""
