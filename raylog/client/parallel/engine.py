"""The shell of the window: polls, commits, delivers, and carries out the window's effects."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from raylog.client.admin.groups import CommittedOffset
from raylog.client.cluster import TopicPartition
from raylog.client.consumer.commits import CommitFailed
from raylog.client.errors import ClientError, ProducerUnusable
from raylog.client.parallel.effects import (
    CommitPoint,
    Deliver,
    Effect,
    Fail,
    GiveUpCell,
    LetterWritten,
    Outcome,
    Pause,
    Resume,
    RunCell,
)
from raylog.client.parallel.interfaces import NotDelivered, Sink, Source, Workers
from raylog.client.parallel.job import failure_of
from raylog.client.parallel.note import NoteUnreadable, decode_note
from raylog.client.parallel.policy import Failure, FailureKind
from raylog.client.parallel.window import Window
from raylog.client.retries import is_retriable
from raylog.wire.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    IllegalGeneration,
    KafkaError,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMemberId,
)

log = logging.getLogger(__name__)
_NOT_OURS_ANY_MORE = (
    CommitFailed,
    FencedInstanceId,
    FencedMemberEpoch,
    IllegalGeneration,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMemberId,
)
"""Commit errors that the next rebalance resolves: the partitions belong to others by now."""
_FETCHED_IN_TURN_MAX = 64
"""How many records enter the window before other tasks of the loop get a turn."""
_END_MS = 10_000.0
"""How long a drain waits for workers that were given up."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Intervals, timeouts and limits of the shell."""

    commit_interval_ms: float = 1_000.0
    drain_timeout_ms: float = 30_000.0
    """How long a rebalance or the shutdown waits for running calls before it gives them up."""
    poll_timeout_ms: float = 100.0
    poll_records: int = 500
    transaction_bytes: int = 8 * 1024 * 1024
    """A transaction starts before its interval once this much output waits for it."""


class Engine:
    """One run of a parallel consumer, in one event loop."""

    def __init__(
        self,
        source: Source,
        sink: Sink,
        workers: Workers,
        window: Window,
        settings: EngineSettings,
        wall_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        self._source = source
        self._sink = sink
        self._workers = workers
        self._window = window
        self._settings = settings
        self._wall_ms = wall_ms
        self._is_transactional = window.settings.transactional
        self._deliveries: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = asyncio.Event()

    async def run(self, topics: Sequence[str]) -> None:
        """Process until `stop`, then drain and commit; raise the error that ended it, if any."""
        self._loop = asyncio.get_running_loop()
        self._has_to_commit = asyncio.Event()
        self._committing = asyncio.Lock()
        self._wakes: set[asyncio.Future[None]] = set()
        await self._sink.start()
        await self._workers.start(self._ran, self._fail, self._began)
        await self._source.subscribe(topics, self)
        commits = self._loop.create_task(self._commit_forever(), name="raylog commits")
        commits.add_done_callback(self._background_ended)
        try:
            await self._poll_forever()
        except (ClientError, KafkaError) as error:
            self._fail(error)
        finally:
            await self._shut_down(commits)
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Drain, commit and end; may be called before `run`. Call it in the event loop's thread."""
        self._stopping.set()

    # -- rebalances ----------------------------------------------------------------------------

    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Continue at the committed offsets, without records that the note lists as finished."""
        committed = await self._source.committed(partitions)
        for key in partitions:
            found = committed.get(key)
            finished = []
            if found is not None:
                try:
                    finished = decode_note(key, found.offset, found.metadata)
                except NoteUnreadable as error:
                    log.warning("%s; records beyond %d are all run", error, found.offset)
            offset = None if found is None else found.offset
            self._carry_out(self._window.assigned(key, offset, finished))

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Finish running calls, commit, and release the partitions."""
        try:
            await self._drain(partitions)
        finally:
            self._carry_out(self._window.revoked(partitions, self._now_ms()))

    async def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Drop the partitions without a commit: others own them."""
        log.warning("lost %s: what runs of it is not committed", _listed(partitions))
        self._carry_out(self._window.revoked(partitions, self._now_ms()))

    async def _drain(self, partitions: Sequence[TopicPartition]) -> None:
        """Finish running calls of these partitions, or give them up; then commit."""
        window = self._window
        self._carry_out(window.drain(partitions))
        if not await self._until_drained(partitions, self._settings.drain_timeout_ms):
            log.warning(
                "%s: what still runs after %g ms is given up; whoever has them next runs it again",
                _listed(partitions),
                self._settings.drain_timeout_ms,
            )
            if self._workers.can_end:
                self._carry_out(window.give_up(partitions))
                await self._until_drained(partitions, _END_MS)
        await self._commit()

    async def _until_drained(self, keys: Sequence[TopicPartition], timeout_ms: float) -> bool:
        deadline = self._loop.time() + timeout_ms / 1000
        while not self._window.is_drained(keys):
            left = deadline - self._loop.time()
            if left <= 0:
                return False
            wake: asyncio.Future[None] = self._loop.create_future()
            self._wakes.add(wake)
            await asyncio.wait([wake], timeout=left)
            self._wakes.discard(wake)
        return True

    # -- the loops -----------------------------------------------------------------------------

    async def _poll_forever(self) -> None:
        settings = self._settings
        while not self._stopping.is_set():
            found = await self._source.poll(settings.poll_timeout_ms, settings.poll_records)
            for got in found:
                key = TopicPartition(got.topic, got.partition)
                for first in range(0, len(got.records), _FETCHED_IN_TURN_MAX):
                    records = got.records[first : first + _FETCHED_IN_TURN_MAX]
                    self._carry_out(
                        self._window.fetched(key, records, self._now_ms(), self._wall_ms())
                    )
                    await asyncio.sleep(0)  # lets ended runs be replaced by new ones
            if not found:
                await asyncio.sleep(0)

    async def _commit_forever(self) -> None:
        interval_s = self._settings.commit_interval_ms / 1000
        while True:
            waiting = self._loop.create_task(self._has_to_commit.wait())
            await asyncio.wait([waiting], timeout=interval_s)
            waiting.cancel()
            self._has_to_commit.clear()
            await self._commit()

    async def _deliver(self, effect: Deliver) -> None:
        """Produce one cell's outputs, outside of transactions.

        Each delivery has its own task, so that a topic that accepts nothing does not block others.
        """
        window, cell_id = self._window, effect.cell_id
        try:
            await self._sink.send(effect.outputs)
        except NotDelivered as error:
            log.warning("results or letters were not delivered: %s", error)
            refusal = next((_refusal(why) for why in error.refused.values()), None)
            self._carry_out(window.undelivered(cell_id, refusal, self._now_ms(), self._wall_ms()))
        else:
            self._carry_out(window.delivered(cell_id, self._now_ms()))
        self._wake()

    # -- commits -------------------------------------------------------------------------------

    async def _commit(self) -> None:
        """Commit what is finished; leave a temporary failure to the next commit."""
        async with self._committing:
            try:
                if self._is_transactional:
                    await self._commit_transaction()
                else:
                    points = self._window.commit_points()
                    if points:
                        await self._source.commit(_offsets(points))
                        self._window.committed(points)
            except _NOT_OURS_ANY_MORE as error:
                log.info("a commit came too late, a rebalance is due: %s", error)
            except ProducerUnusable:
                raise
            except (ClientError, KafkaError) as error:
                if not isinstance(error, NotDelivered) and not is_retriable(error):
                    raise
                log.warning("a commit failed, the next one makes up for it: %s", error)

    async def _commit_transaction(self) -> None:
        """Produce results and commit their source offsets atomically."""
        taken = self._window.take_transaction()
        committed = False
        refused: dict[int, Failure] = {}
        try:
            if taken.outputs or taken.points:
                group = self._source.group_metadata()
                await self._sink.transact(taken.outputs, _offsets(taken.points), group)
                committed = True
        except NotDelivered as error:
            refused = {at: _refusal(why) for at, why in error.refused.items()}
            raise
        finally:
            self._carry_out(
                self._window.transaction_ended(
                    taken, committed=committed, wall_ms=self._wall_ms(), refused=refused
                )
            )

    # -- effects -------------------------------------------------------------------------------

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case RunCell(cell_id, key, records):
                    if not self._workers.run(cell_id, key, records):
                        self._window.waits_for_worker(cell_id)
                case GiveUpCell(cell_id):
                    self._workers.give_up(cell_id)
                case Deliver():
                    task = self._loop.create_task(self._deliver(effect), name="raylog delivery")
                    self._deliveries.add(task)
                    task.add_done_callback(self._deliveries.discard)
                    task.add_done_callback(self._background_ended)
                case Pause(keys):
                    self._source.pause(keys)
                case Resume(keys):
                    self._source.resume(keys)
                case Fail(error):
                    self._fail(error)
                case LetterWritten(key, offset, topic, failure):
                    where = f"{key} at offset {offset}"
                    log.warning("%s goes to %s: %s\n%s", where, topic, failure, failure.traceback)
        self._set_timer()

    def _ran(self, cell_id: int, outcome: Outcome) -> None:
        """Handle a worker's answer."""
        try:
            window = self._window
            self._carry_out(window.ran(cell_id, outcome, self._now_ms(), self._wall_ms()))
            if window.output_bytes >= self._settings.transaction_bytes:
                self._has_to_commit.set()
        except Exception as error:  # noqa: BLE001  # a broken invariant ends the run, not a callback
            self._fail(error)
        self._wake()

    def _began(self, cell_id: int) -> None:
        """Handle the start of a worker, which begins its first run."""
        self._window.began(cell_id, self._now_ms())
        self._set_timer()

    def _set_timer(self) -> None:
        """Schedule a tick for when the window next has something to do."""
        due_ms = self._window.next_due_ms
        timer = self._timer
        if timer is not None:
            if not timer.cancelled() and timer.when() * 1000 <= due_ms:
                return  # the timer fires early enough
            timer.cancel()
            self._timer = None
        if due_ms != float("inf"):
            self._timer = self._loop.call_at(due_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        try:
            self._carry_out(self._window.tick(self._now_ms(), self._wall_ms()))
        except Exception as error:  # noqa: BLE001  # as above
            self._fail(error)

    def _wake(self) -> None:
        """Make waiting drains check again."""
        for wake in self._wakes:
            if not wake.done():
                wake.set_result(None)

    def _fail(self, error: BaseException) -> None:
        """End the run; the first error is raised, later ones are logged."""
        if self._failure is None:
            self._failure = error
        else:
            log.warning("another failure while the first one ends the consumer", exc_info=error)
        self._stopping.set()

    def _background_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    async def _shut_down(self, commits: asyncio.Task[None]) -> None:
        """Drain and commit, then close everything, even if some steps fail."""
        steps: list[Callable[[], object]] = [
            lambda: self._drain(self._window.assignment()),
            lambda: self._end([commits, *self._deliveries]),
            self._workers.close,
            self._source.close,
            self._sink.close,
        ]
        for step in steps:
            try:
                await step()  # type: ignore[misc]  # each returns a coroutine
            except Exception as error:  # noqa: BLE001  # the other steps must still run
                self._fail(error)
        if self._timer is not None:
            self._timer.cancel()

    async def _end(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        """Cancel background tasks, but not a commit in progress."""
        async with self._committing:
            for task in tasks:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _now_ms(self) -> float:
        return self._loop.time() * 1000


def _offsets(points: Iterable[CommitPoint]) -> dict[TopicPartition, CommittedOffset]:
    return {point.key: CommittedOffset(point.offset, metadata=point.note) for point in points}


def _refusal(why: Exception) -> Failure:
    return failure_of(why, FailureKind.UNDELIVERED)


def _listed(keys: Sequence[TopicPartition]) -> str:
    shown = ", ".join(str(key) for key in keys[:5])
    return shown if len(keys) <= 5 else f"{shown} and {len(keys) - 5} more"
