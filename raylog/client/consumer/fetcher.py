"""Reading assigned partitions: positions, fetches, and handling of errors.

Fetch v4-18 in sessions (KIP-227); topics have ids from v13 on (KIP-516). Each broker has one fetch
in flight; the next is sent before the records of the last are decoded. While one of a broker's
partitions has enough buffered, its other partitions are not fetched: the broker would hold that
fetch, and with it this partition's next records, until another one has data (KAFKA-17182). Only
partitions that changed are looked at, because a consumer may have 10,000.

`step` takes responses and sends fetches. It is called by `poll` (`Fetcher` alone, over any Io) or
by a task of `ConsumerCore`, while another thread takes records, so every change holds `lock`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from raylog.client.cluster import TopicPartition
from raylog.client.consumer.agenda import Agenda, aligned
from raylog.client.consumer.buffered import BatchTaker, Buffered
from raylog.client.consumer.fetched import ConsumedRecords, FetchedBatches
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.consumer.positions import Positions, reset_to
from raylog.client.consumer.progress import COMMITTED, NOWHERE, Progress
from raylog.client.consumer.session import SESSION_ERRORS, Asked
from raylog.client.consumer.settings import ConsumerSettings
from raylog.client.consumer.sources import Source
from raylog.client.core import Core
from raylog.client.errors import ClientError, InvalidSetting
from raylog.client.refusals import check
from raylog.client.retries import code_of, is_retriable
from raylog.client.routes import Routes
from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode, KafkaError, OffsetOutOfRange, error_of
from raylog.wire.messages.fetch import FetchResponse, PartitionData
from raylog.wire.uuids import ZERO_UUID

T = TypeVar("T")

_BY_NAME_LAST = 12
"""The newest Fetch version with topic names instead of ids."""
_SESSIONS_SINCE = 7
_ANSWER_SLACK_MS = 10_000
"""How much later than `max_wait_ms` a response may come."""
_FETCH_BYTES_MIN = 64 * 1024
"""With less free room in `prefetch_bytes`, nothing is fetched."""


class Fetcher(Buffered):
    """A consumer of manually assigned partitions. For use by one task at a time."""

    def __init__(
        self, core: Core, settings: ConsumerSettings, positions: Positions | None = None
    ) -> None:
        """Give `positions` a core of its own if fetches must not delay lookups."""
        self.positions = positions or Positions(core, settings)
        super().__init__(self.positions.lock)
        self.settings = settings
        self.positions.drop_blocks = self._drop_blocks
        self.bytes_taken = self.fetches = 0
        self._core = core
        self._cluster = self.positions.core.cluster
        self._sources: dict[int, Source] = {}
        self._again = Agenda()
        self._routes = Routes(core, self.positions.core, self.positions.missing.look)
        self._unplaced: dict[TopicPartition, None] = {}
        """Partitions of topics that are being looked up for the first time."""

    # -- assignment ----------------------------------------------------------------------------

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """Read only these partitions, each from an offset, EARLIEST or LATEST."""
        with self.lock:
            self.remove(set(self._assigned) - set(starts))
            for key, start in starts.items():
                self.seek(key, start)

    def seek(self, key: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """Continue from an offset, EARLIEST or LATEST; add the partition if it is new."""
        with self.lock:
            self._fresh(key).go_to(offset, leader_epoch)
            if offset >= 0:
                self.moved[key] = None

    def start_from(self, key: TopicPartition, start: int) -> None:
        """Continue from where a lookup says: a timestamp in ms, EARLIEST, LATEST or COMMITTED."""
        with self.lock:
            self._fresh(key).look_for(start)

    def _fresh(self, key: TopicPartition) -> Progress:
        """Return a partition's progress with an empty buffer, added if it is new."""
        progress = self._assigned.get(key)
        if progress is None:
            progress = self._assigned[key] = Progress(key)
        self._drop_blocks(progress)
        self._leave_source(progress)  # a fetch being built must not ask from the old position
        progress.not_before_ms = 0.0
        progress.backoff = None
        progress.topic_id = ZERO_UUID
        self._failures.pop(key, None)
        self.positions.forget(key)
        self._touched[key] = None
        return progress

    def remove(self, keys: Iterable[TopicPartition]) -> None:
        """Stop reading partitions; ignore unassigned ones."""
        with self.lock:
            for key in sorted(keys):
                progress = self._assigned.pop(key, None)
                if progress is None:
                    continue
                self._drop_blocks(progress)
                self._leave_source(progress)
                self._touched.pop(key, None)
                self._paused.pop(key, None)
                self._again.drop(key)
                self.moved.pop(key, None)
                self._failures.pop(key, None)
                self.positions.forget(key)

    def pause(self, keys: Iterable[TopicPartition]) -> None:
        """Stop handing out and fetching these partitions.

        Fetched records are kept until their room is needed for other partitions.
        """
        with self.lock:
            for key in keys:
                self._paused[key] = progress = self._assigned[key]
                progress.is_paused = True
                self._ready.pop(key, None)
                self._touched[key] = None

    def resume(self, keys: Iterable[TopicPartition]) -> None:
        """Continue paused partitions where they stopped."""
        with self.lock:
            for key in keys:
                progress = self._assigned[key]
                progress.is_paused = False
                self._paused.pop(key, None)
                if progress.blocks:
                    self._ready[key] = progress
                self._touched[key] = None

    def paused(self) -> list[TopicPartition]:
        """Return the paused partitions."""
        return list(self._paused)

    def stop_at(self, key: TopicPartition, offset: int) -> None:
        """Fetch nothing from an offset on. Batches come whole, so records after it may come."""
        with self.lock:
            self._assigned[key].stop = offset
            self._touched[key] = None

    async def position(self, key: TopicPartition) -> int:
        """Return the offset of the next record to be handed out."""
        progress = self._assigned[key]
        await self._core.repeat(lambda: self.look_up_now(progress))
        assert progress.position is not None, f"{key} was looked up"
        return progress.position

    def group_metadata(self) -> GroupMetadata:
        """Return the group of `group_id`, without a member: manual assignment needs none."""
        if self.settings.group_id is None:
            raise InvalidSetting("expected a consumer with a group_id, found one without")
        return GroupMetadata(self.settings.group_id)

    def close(self) -> None:
        """Close the consumer's connections."""
        self._routes.close()
        self._core.close()

    # -- returning records ---------------------------------------------------------------------

    async def poll(self, timeout_ms: float, max_records: int) -> list[ConsumedRecords]:
        """Return buffered records, or the first that arrive within the timeout.

        Batches are not split, so the result may exceed `max_records` by less than one batch. Raises
        OffsetOutOfRange if the settings say so, and errors that are not retriable.
        """
        return await self._poll(timeout_ms, lambda: self.take(max_records)) or []

    async def poll_block(self, timeout_ms: float) -> FetchedBatches | None:
        """Return one fetched block undecoded, for bulk readers. Raises as `poll` does."""
        return await self._poll(timeout_ms, self.take_block)

    async def poll_into(self, taker: BatchTaker, timeout_ms: float) -> None:
        """Hand undecoded batches to a taker until it is full or none are left. Raises as `poll`.

        Batches of one partition come one after the other.
        """
        await self._poll(timeout_ms, lambda: self.give(taker))

    async def _poll(self, timeout_ms: float, take: Callable[[], T | None]) -> T | None:
        """Fetch until something can be taken or time is up."""
        deadline_ms = self._core.io.now_ms() + timeout_ms
        while True:
            await self._core.io.wait(self.any_done, 0)
            await self.step()
            taken = take()
            if taken:
                self._touch_found()
                await self.step()
            now_ms = self._core.io.now_ms()
            if taken or now_ms >= deadline_ms:
                return taken
            await self._core.wait_for(lambda: self.has_work, min(deadline_ms, self.next_try_ms()))

    # -- fetches -------------------------------------------------------------------------------

    def any_done(self) -> bool:
        """Whether any fetch was answered."""
        return any(source.is_done for source in tuple(self._sources.values()))  # for any thread

    @property
    def has_work(self) -> bool:
        """Whether `step` would do something at once."""
        return bool(self._touched) or self.any_done() or self._routes.has_news

    async def step(self, *, look_up: bool = True) -> None:
        """Take all responses that have arrived and send the next requests.

        Leaders are looked up and connected to in the background, so a leader that does not answer
        delays only its own partitions.

        `look_up`: find positions as well, which may take long; otherwise another task does it.
        """
        self._collect()
        await self._refresh()
        self._place()
        if look_up and self.positions.is_wanted:
            await self.look_up()
            self._place()
        for source in list(self._sources.values()):
            if source.pending is None and source.session.wanted and not source.full:
                await self._fetch(source)

    async def look_up_now(self, progress: Progress) -> None:
        """Find a position that is unknown; raise the lookup's error."""
        key, core = progress.key, self.positions.core
        await core.io.wait(
            lambda: not self.positions.is_asking(key), core.settings.operation_timeout_ms
        )
        if progress.position is not None:
            return
        with self.lock:
            self.positions.want(progress)
        failed = await self._look_up([key])
        if key in failed:
            if is_retriable(failed[key]):
                await core.refresh([key.topic])
            raise failed[key]

    async def look_up(self, keys: Collection[TopicPartition] | None = None) -> None:
        """Find positions (None: all), as `step` does unless `look_up=False`."""
        for key, error in (await self._look_up(keys)).items():
            if not is_retriable(error) and key in self._assigned:
                self._fail(key, error)

    async def _look_up(
        self, keys: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, Exception]:
        try:
            failed = await self.positions.look_up(self._assigned, keys)
            with self.lock:
                for key, error in failed.items():
                    self._delay([key], error if is_retriable(error) else None)
            return failed
        finally:
            self._touch_found()

    def _touch_found(self) -> None:
        with self.lock:
            for key, is_new in self.positions.found().items():
                if key in self._assigned:
                    self._touched[key] = None
                    if is_new:
                        self.moved[key] = None

    def _place(self) -> None:
        """Add each changed partition to the fetch session of the broker to fetch it from."""
        with self.lock:
            now_ms = self._core.io.now_ms()
            self._touched.update(dict.fromkeys(self._again.due(now_ms)))
            touched, self._touched = self._touched, {}
            for key in touched:
                progress = self._assigned.get(key)
                if progress is not None:
                    self._place_one(progress, now_ms)

    def _place_one(self, progress: Progress, now_ms: float) -> None:
        self._see_topic(progress)
        home = NOWHERE
        if self._routes.is_refreshing and progress.key.topic not in self._cluster.topics:
            self._unplaced[progress.key] = None
        elif self._wants(progress, now_ms):
            try:
                home = self._home_of(progress, now_ms)
            except KafkaError as error:
                self._delay([progress.key], error)
        if progress.home not in (NOWHERE, home):
            self._leave_source(progress)
        progress.home = home
        if home != NOWHERE:
            source = self._sources.get(home)
            if source is None:
                source = self._sources[home] = Source(home)
            source.session.want(progress.key, progress.topic_id)
            if progress.is_full:
                source.full[progress.key] = None
            else:
                source.full.pop(progress.key, None)

    def _see_topic(self, progress: Progress) -> None:
        """Record the topic's id. Another id means a recreated topic: drop the old position."""
        key, topic = progress.key, self._cluster.topics.get(progress.key.topic)
        if topic is None or topic.topic_id in (ZERO_UUID, progress.topic_id):
            return
        if progress.topic_id != ZERO_UUID and progress.fetch_offset is not None:
            self.start_from(key, COMMITTED)
            self.moved.pop(key, None)
            progress.high_watermark = progress.last_stable_offset = -1
        progress.topic_id = topic.topic_id

    def _wants(self, progress: Progress, now_ms: float) -> bool:
        """Return whether to fetch a partition now; request a lookup if it needs a position."""
        if progress.not_before_ms > now_ms:
            self._again.set(progress.key, progress.not_before_ms)
            return False
        if progress.is_paused:
            return False
        if progress.fetch_offset is None:
            self.positions.want(progress)
            return False
        if progress.is_at_stop:
            return False
        epoch = self._cluster.leader_epoch_of(progress.key)
        if epoch is not None and self.positions.needs_check(progress, epoch):
            self.positions.want(progress)
            return False
        return True

    def _home_of(self, progress: Progress, now_ms: float) -> int:
        """Return the broker to fetch from: the preferred replica, until it expires, or the leader.

        Raises LeaderNotAvailable or UnknownTopicOrPartition.
        """
        if progress.replica != NOWHERE:
            is_gone = progress.replica in self._cluster.partition(progress.key).offline
            is_gone |= progress.replica not in self._cluster.nodes
            if now_ms < progress.replica_until_ms and not is_gone:
                self._again.set(progress.key, progress.replica_until_ms)
                return progress.replica
            progress.replica = NOWHERE
        return self._cluster.leader_of(progress.key)

    def _leave_source(self, progress: Progress) -> None:
        source = self._sources.get(progress.home)
        if source is not None:
            source.drop(progress.key)
        progress.home = NOWHERE

    async def _fetch(self, source: Source) -> None:
        """Send one broker a fetch, if it is connected and there is room for the response."""
        try:
            if await self._routes.reach(source.node_id) and self._has_room():
                await self._submit(source)
        except (ClientError, KafkaError) as error:
            self._lost(source, error)

    def _has_room(self) -> bool:
        """Return whether to fetch now; make room by dropping what paused partitions have."""
        if self._room() >= _FETCH_BYTES_MIN:
            return True
        self._evict_paused()
        return self._room() >= _FETCH_BYTES_MIN or not (self.buffered_bytes or self.any_pending)

    async def _submit(self, source: Source) -> None:
        version = await self._core.version_on(source.node_id, ApiKey.FETCH)
        with self.lock:
            if not source.session.wanted:
                return  # a seek has taken them out meanwhile; the next step places them again
            brokers = sum(bool(other.session.wanted) for other in self._sources.values())
            limit = min(self.settings.max_bytes, self.settings.prefetch_bytes // brokers)
            source.max_bytes = max(_FETCH_BYTES_MIN, min(limit, self._room()))
            self._sources[source.node_id] = self._sources.pop(source.node_id)  # others come first
            part = source.session.next(with_session=version >= _SESSIONS_SINCE)
            asked = {key: self._asked(key) for key in part.partitions}
            request = source.request(self.settings, part, asked)
        source.pending = await self._core.submit(
            source.node_id,
            request,
            FetchResponse,
            timeout_ms=max(
                self._core.settings.request_timeout_ms,
                self.settings.max_wait_ms + _ANSWER_SLACK_MS,
            ),
            at_most=_BY_NAME_LAST if source.by_name else None,
        )
        self.fetches += 1

    def _room(self) -> int:
        """Return how many bytes may be fetched besides those buffered and in flight."""
        taken = sum(source.max_bytes for source in self._sources.values())
        return self.settings.prefetch_bytes - self.buffered_bytes - taken

    @property
    def any_pending(self) -> bool:
        """Whether any fetch is in flight."""
        return any(source.pending is not None for source in self._sources.values())

    def _asked(self, key: TopicPartition) -> Asked:
        progress = self._assigned[key]
        assert progress.fetch_offset is not None, "only what has a position is fetched"
        epoch = self._cluster.leader_epoch_of(key)
        return Asked(
            key,
            progress.topic_id,
            progress.fetch_offset,
            progress.generation,
            -1 if epoch is None else epoch,
        )

    # -- responses -----------------------------------------------------------------------------

    def _collect(self) -> None:
        """Take all responses that have arrived; keep non-retriable errors for the next poll."""
        for source in [source for source in self._sources.values() if source.is_done]:
            pending, source.pending = source.pending, None
            source.max_bytes = 0
            assert pending is not None, "it is done"
            with self.lock:
                try:
                    response = pending.result()
                    check(response.error_code, "fetch")
                except (ClientError, KafkaError) as error:
                    self._lost(source, error)
                    continue
                source.session.answered(response.session_id)
                self._take_response(source, response, by_id=pending.version > _BY_NAME_LAST)

    def _take_response(self, source: Source, response: FetchResponse, *, by_id: bool) -> None:
        in_session = source.session.in_session
        for topic in response.responses:
            name = source.session.names.get(topic.topic_id, "") if by_id else topic.topic
            for answer in topic.partitions:
                asked = in_session.get(TopicPartition(name, answer.partition_index))
                if asked is None or (by_id and asked.topic_id != topic.topic_id):
                    continue  # it left the session, or its topic was recreated
                progress = self._assigned.get(asked.key)
                if progress is not None and progress.generation == asked.generation:
                    self._take_answer(progress, answer, asked, source.node_id)

    def _take_answer(
        self, progress: Progress, answer: PartitionData, asked: Asked, node_id: int
    ) -> None:
        """Take one partition's part of a response."""
        key, offset = progress.key, asked.offset
        if offset != progress.fetch_offset:
            return  # the position has moved since the request
        if answer.error_code != ErrorCode.NONE:
            leader = answer.current_leader
            if leader is not None:
                self._cluster.moved(key, leader.leader_id, leader.leader_epoch)
            self._refused(progress, error_of(answer.error_code, f"{key} at offset {offset}"))
            return
        progress.checked_epoch = max(progress.checked_epoch, asked.leader_epoch)
        progress.high_watermark = answer.high_watermark
        progress.last_stable_offset = answer.last_stable_offset
        if answer.preferred_read_replica >= 0 and answer.preferred_read_replica != node_id:
            progress.replica = answer.preferred_read_replica
            max_age_ms = self._core.settings.metadata_max_age_ms
            progress.replica_until_ms = self._core.io.now_ms() + max_age_ms
            self._touched[key] = None
        else:
            progress.backoff = None
        records = answer.records
        if not records:
            return
        assert isinstance(records, memoryview), "decoded records are a view of the answer"
        self._buffer(progress, records, answer, offset)

    def _buffer(
        self, progress: Progress, records: memoryview, answer: PartitionData, offset: int
    ) -> None:
        """Buffer fetched records."""
        aborted = None
        if self.settings.read_committed:
            aborted = [
                (transaction.producer_id, transaction.first_offset)
                for transaction in answer.aborted_transactions or ()
            ]
        try:
            block = FetchedBatches(
                progress.key,
                records,
                from_offset=offset,
                high_watermark=answer.high_watermark,
                aborted=aborted,
                decompressed_bytes_max=self.settings.decompressed_bytes_max,
                checks_crcs=self.settings.check_crcs,
            )
        except KafkaError as error:
            self._fail(progress.key, error)
            self._delay([progress.key], None)
            return
        progress.fetch_offset = block.end_offset
        if block.last_leader_epoch >= 0:
            progress.fetch_epoch = block.last_leader_epoch
        progress.blocks.append(block)
        self.buffered_bytes += block.size
        self.bytes_taken += block.size
        self._touched[progress.key] = None
        if not progress.is_paused:
            self._ready[progress.key] = progress

    def _refused(self, progress: Progress, error: KafkaError) -> None:
        """Handle an error code for one partition."""
        key = progress.key
        if progress.replica != NOWHERE:
            # The leader has newer metadata, but may name the same replica again.
            self._delay([key], error if is_retriable(error) else None)
            return
        if not isinstance(error, OffsetOutOfRange):
            if is_retriable(error):
                self._delay([key], error)
            else:
                self._fail(key, error)
                self._delay([key], None)
            return
        start = reset_to(self.settings)
        if progress.blocks:  # hand out the buffer first, then ask again
            self._delay([key], None)
        elif start is None:
            self._fail(key, error)
            self._delay([key], None)
        else:
            self.start_from(key, start)

    def _lost(self, source: Source, error: Exception) -> None:
        """Handle the failure of a whole fetch."""
        source.max_bytes = 0
        source.session.begin_anew(code := code_of(error))
        if code in SESSION_ERRORS and code is not ErrorCode.UNKNOWN_TOPIC_ID:
            return  # retry at once, with all partitions
        if not is_retriable(error):
            self._fail(source.node_id, error)
        self._delay(list(source.session.wanted), error)

    def _fail(self, cause: object, error: Exception) -> None:
        """Keep an error for a poll to raise; only the newest for each cause."""
        with self.lock:
            self._failures[cause] = error

    def _delay(self, keys: Iterable[TopicPartition], error: Exception | None) -> None:
        """Back partitions off; with an error, also refresh their leaders."""
        now_ms = self._core.io.now_ms()
        with self.lock:
            for key in keys:
                progress = self._assigned.get(key)
                if progress is None:
                    continue
                progress.backoff = progress.backoff or self._core.backoff()
                progress.not_before_ms = aligned(
                    now_ms, progress.backoff.next_ms(), self._core.settings.retry_backoff_ms
                )
                progress.replica = NOWHERE
                self._touched[key] = None
                if error is not None:
                    self._routes.mark_stale(key.topic)
                    self.positions.missing.look_at(key)

    async def _refresh(self) -> None:
        """Refresh the metadata of topics that are unknown or whose leaders may have moved."""
        with self.lock:
            if self._routes.has_news:
                self._routes.has_news = False
                self._touched.update(self._unplaced)
                self._unplaced.clear()
            unknown = {key.topic for key in self._touched} - self._cluster.topics.keys()
        try:
            await self._routes.refresh(unknown)
        except (ClientError, KafkaError) as error:
            self._fail("metadata", error)

    def next_try_ms(self) -> float:
        """Return when `step` has something to do even if no response arrives."""
        return self._again.next_ms

    def metadata_seen(self, topics: Iterable[str]) -> None:
        """Look at the partitions of topics whose leaders may have moved."""
        names = set(topics)
        self.positions.missing.look(names)
        with self.lock:
            self._touched.update((key, None) for key in self._assigned if key.topic in names)
