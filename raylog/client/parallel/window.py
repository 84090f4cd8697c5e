"""The sliding window: which records run, when, and what may be committed. Without I/O.

A cell is a batch of records of one partition, and a worker. Transitions of a cell:

| from | on | to |
|---|---|---|
| (free) | a record that may run | running |
| running | success | (free), or delivering if there are results to produce |
| running | failure, attempts are left | waiting, then running again |
| running | failure of a batch | running, record by record |
| running | the last failure | delivering: to a retry or dead-letter topic |
| delivering | no broker accepts the results | as if the run had failed |
| running | longer than the stall timeout | ending, until the worker answers |
| delivering | acknowledged | running (next record of a batch), or (free) |
| any | the partition is revoked | (free) once its worker has answered |

A record is finished when its run succeeded and its results were acknowledged, or when its letter
was. In transactions, outputs and letters are kept and sent together with the offsets.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from random import Random

from raylog.client.cluster import TopicPartition
from raylog.client.interceptors import ProducerRecord
from raylog.client.parallel.cells import PAUSING, Cell, State
from raylog.client.parallel.effects import (
    CommitPoint,
    Deliver,
    Done,
    Effect,
    Fail,
    GiveUpCell,
    LetterWritten,
    Outcome,
    ProcessingFailed,
    RunCell,
    Statistics,
    Transaction,
    WindowSettings,
)
from raylog.client.parallel.flow import Flow
from raylog.client.parallel.lanes import Lane
from raylog.client.parallel.letters import origin_of
from raylog.client.parallel.note import Range
from raylog.client.parallel.outputs import Kept, KeptOutputs
from raylog.client.parallel.partitions import Partition
from raylog.client.parallel.policy import Failure, FailureKind
from raylog.client.parallel.progress import Entry, Progress
from raylog.client.parallel.routes import Attempts, FailureRoutes
from raylog.client.retries import backoff_ms
from raylog.wire.record import Record

_DELIVERY_BACKOFF_MS = 250.0
_DELIVERY_BACKOFF_MAX_MS = 10_000.0


class Window:
    """The machine of one parallel consumer. `now_ms` has any origin; `wall_ms` is since 1970.

    Every call returns effects, to be carried out in order.
    """

    def __init__(self, settings: WindowSettings, chance: Random) -> None:
        self.settings = settings
        self.statistics = Statistics(cells=settings.cells)
        self._chance = chance
        self._routes = FailureRoutes(settings)
        self._partitions: dict[TopicPartition, Partition] = {}
        self._turns: deque[Partition] = deque()
        """Partitions that may have something to start."""
        self._cells: dict[int, Cell] = {}
        self._ids = count()
        self._timers: list[tuple[float, int, Callable[[float, int], None]]] = []
        self._effects: list[Effect] = []
        self._flow = Flow(settings, self._effects)
        self._outputs = KeptOutputs()
        self._stalls: dict[int, float] = {}
        """When each running cell stalls; the cell that started first is due first."""

    # -- queries -------------------------------------------------------------------------------

    @property
    def next_due_ms(self) -> float:
        """When `tick` has something to do; infinity if nothing is scheduled."""
        timer_ms = self._timers[0][0] if self._timers else float("inf")
        return min(timer_ms, next(iter(self._stalls.values()), timer_ms))

    @property
    def output_bytes(self) -> int:
        """Bytes of outputs that wait for a transaction."""
        return self._outputs.bytes

    def is_drained(self, keys: Iterable[TopicPartition] | None = None) -> bool:
        """Return whether these partitions (None: all) have no run or delivery in progress."""
        if keys is None:
            return not any(cell.progress.is_current for cell in self._cells.values())
        wanted = set(keys)
        return not any(
            cell.progress.is_current and cell.progress.key in wanted
            for cell in self._cells.values()
        )

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        return [partition.key for partition in self._current()]

    def commit_points(self) -> list[CommitPoint]:
        """Return what may be committed and has not been `committed` yet."""
        points = [partition.new_commit_point() for partition in self._current()]
        return [point for point in points if point is not None]

    def committed(self, points: Iterable[CommitPoint]) -> None:
        """Record what was committed."""
        self.statistics.commits += 1
        for point in points:
            partition = self._partitions.get(point.key)
            if partition is not None and partition.progress is not None:
                partition.last_commit = (point.offset, point.note)

    def count_statistics(self) -> Statistics:
        """Return up-to-date statistics."""
        found = self.statistics
        found.running = sum(
            cell.state in (State.RUNNING, State.ENDING) for cell in self._cells.values()
        )
        found.waiting = len(self._cells) - found.running
        found.buffered, found.buffered_bytes = self._flow.records, self._flow.bytes
        return found

    # -- partitions ----------------------------------------------------------------------------

    def watch_retry_topics(self, topic: str) -> list[str]:
        """Register a topic's retry topics; return their names."""
        return self._routes.watch(topic)

    def assigned(
        self, key: TopicPartition, committed: int | None, finished: Sequence[Range] = ()
    ) -> list[Effect]:
        """Add a partition, starting at `committed`; `finished` are the ranges of its note."""
        self._assign(key, committed, finished)
        return self._take_effects()

    def _assign(
        self, key: TopicPartition, committed: int | None, finished: Sequence[Range] = ()
    ) -> Partition:
        partition = self._partitions.get(key)
        if partition is None:
            partition = self._partitions[key] = Partition(key, self.settings.order)
        elif partition.progress is not None:
            self._detach(partition)
            self._partitions[key] = partition
        progress = Progress(key, committed, finished, note_bytes_max=self.settings.note_bytes_max)
        partition.progress, partition.last_commit = progress, progress.commit_point()
        self._flow.shares(len(self.assignment()))
        return partition

    def drain(self, keys: Iterable[TopicPartition]) -> list[Effect]:
        """Start no more records of these partitions, and drop waiting ones."""
        for partition in self._of(keys):
            partition.is_draining = True
            self._flow.forget(partition)
        for cell in list(self._cells.values()):
            if cell.partition.is_draining and cell.state in PAUSING:
                self._free(cell)
        return self._take_effects()

    def give_up(self, keys: Iterable[TopicPartition]) -> list[Effect]:
        """Make the workers abandon running calls of these partitions."""
        wanted = set(keys)
        for cell in self._cells.values():
            if cell.progress.key in wanted and cell.state is State.RUNNING:
                self._give_up(cell)
        return self._take_effects()

    def revoked(self, keys: Iterable[TopicPartition], now_ms: float) -> list[Effect]:
        """Remove partitions; calls that still run are not committed."""
        for partition in self._of(keys):
            self._detach(partition)
        self._flow.shares(len(self.assignment()))
        self._start_more(now_ms)
        return self._take_effects()

    # -- records -------------------------------------------------------------------------------

    def fetched(
        self, key: TopicPartition, records: Sequence[Record], now_ms: float, wall_ms: int
    ) -> list[Effect]:
        """Add a partition's next records; ignore records of an unassigned partition."""
        partition = self._partitions.get(key)
        if partition is None or partition.progress is None or not records:
            return []
        if partition.progress.base is not None and records[0].offset < partition.progress.base:
            # The log was recreated or truncated: the group's offset says nothing about this one.
            partition = self._assign(key, records[0].offset)
        progress = partition.progress
        assert progress is not None
        skipped = progress.skipped
        delays = self._routes.is_retry_topic(key.topic)
        for record in records:
            size = len(record.key or b"") + len(record.value or b"")
            due_ms = _due_ms(key, record, now_ms, wall_ms) if delays else 0.0
            entry = progress.take(record, size, due_ms)
            if entry is not None and not partition.is_draining:
                partition.lanes.add(entry)
                self._flow.add(partition, size)
        self.statistics.skipped += progress.skipped - skipped
        self._flow.balance(partition)
        self._turn(partition)
        self._start_more(now_ms)
        return self._take_effects()

    def waits_for_worker(self, cell_id: int) -> None:
        """Stop the stall timer of a run whose worker has to start first, until `began`."""
        self._stalls.pop(cell_id, None)

    def began(self, cell_id: int, now_ms: float) -> None:
        """Start the stall timer of a run whose worker had to start first."""
        cell = self._cells.get(cell_id)
        if cell is not None and cell.state is State.RUNNING:
            self._watch_for_stall(cell, now_ms)

    def ran(self, cell_id: int, outcome: Outcome, now_ms: float, wall_ms: int) -> list[Effect]:
        """Handle the outcome of a cell's run."""
        cell = self._cells[cell_id]
        assert cell.state in (State.RUNNING, State.ENDING), "each run is answered once"
        self._stalls.pop(cell_id, None)
        if not cell.progress.is_current:
            self.statistics.late += 1
            self._free(cell)
        elif isinstance(outcome, Done):
            self._succeeded(cell, outcome, now_ms)
        else:
            self._failed(cell, outcome, now_ms, wall_ms)
        self._start_more(now_ms)
        return self._take_effects()

    def delivered(self, cell_id: int, now_ms: float) -> list[Effect]:
        """Handle the acknowledgement of a cell's outputs."""
        cell = self._cells[cell_id]
        assert cell.state is State.DELIVERING
        cell.undelivered, cell.outputs = 0, ()
        if not cell.is_letter:
            self.statistics.processed += cell.sent
        if cell.progress.is_current:
            self._finish(cell, cell.sent, now_ms)
        else:
            self._free(cell)
        self._start_more(now_ms)
        return self._take_effects()

    def undelivered(
        self, cell_id: int, refusal: Failure | None, now_ms: float, wall_ms: int
    ) -> list[Effect]:
        """Handle a failed delivery. `refusal`: a retry is useless, so the run counts as failed.

        Otherwise the delivery is repeated later, for as long as the partition is assigned. Letters
        are always repeated, because they have no other place to go.
        """
        cell = self._cells[cell_id]
        assert cell.state is State.DELIVERING
        if not cell.progress.is_current or cell.partition.is_draining:
            self._free(cell)
        elif refusal is not None and not cell.is_letter:
            cell.undelivered, cell.outputs = 0, ()
            self._failed(cell, refusal, now_ms, wall_ms)
        else:
            pause_ms = backoff_ms(_DELIVERY_BACKOFF_MS, _DELIVERY_BACKOFF_MAX_MS, cell.undelivered)
            cell.undelivered += 1
            cell.state = State.REDELIVERING
            self._at(cell, now_ms + pause_ms)
        self._start_more(now_ms)
        return self._take_effects()

    def tick(self, now_ms: float, wall_ms: int) -> list[Effect]:
        """Do what is due: retries, stalls, records of retry topics."""
        for cell_id in [one for one, due_ms in self._stalls.items() if due_ms <= now_ms]:
            self._give_up(self._cells[cell_id])
        timers = self._timers
        while timers and timers[0][0] <= now_ms:
            due_ms, _, act = heapq.heappop(timers)
            act(due_ms, wall_ms)
        self._start_more(now_ms)
        return self._take_effects()

    # -- transactions --------------------------------------------------------------------------

    def take_transaction(self) -> Transaction:
        """Take all outputs and the offsets of their source records.

        Answered by `transaction_ended`, before the next one is taken.
        """
        assert self.settings.transactional
        return Transaction(self.commit_points(), self._outputs.take())

    def transaction_ended(
        self,
        taken: Transaction,
        *,
        committed: bool,
        wall_ms: int,
        refused: Mapping[int, Failure] | None = None,
    ) -> list[Effect]:
        """Handle the end of a transaction; unless it committed, its outputs join the next one.

        `refused`: failures, by position, of results for which a retry is useless. Letters for their
        source records replace these results.
        """
        for kept, failure in self._outputs.refused(refused or {}):
            self.statistics.failures += 1
            attempts = Attempts(kept.attempts.count + 1, wall_ms)
            key = kept.progress.key
            made = [
                self._letter(key, record, failure, attempts, wall_ms) for record in kept.records
            ]
            letters = tuple(one for one in made if one is not None)
            if len(letters) == len(made):
                self.statistics.processed -= len(kept.records)
                kept.outputs, kept.records = letters, ()
        self._outputs.ended(committed=committed)
        if committed:
            self.committed(taken.points)
        return self._take_effects()

    # -- runs ----------------------------------------------------------------------------------

    def _succeeded(self, cell: Cell, outcome: Done, now_ms: float) -> None:
        if outcome.outputs:
            cell.is_letter = False
            self._deliver(cell, cell.run_size, outcome.outputs, now_ms)
        else:
            self.statistics.processed += cell.run_size
            self._finish(cell, cell.run_size, now_ms)

    def _failed(self, cell: Cell, failure: Failure, now_ms: float, wall_ms: int) -> None:
        self.statistics.failures += 1
        self.statistics.stalled += failure.kind is FailureKind.STALLED
        self.statistics.workers_lost += failure.kind is FailureKind.WORKER_LOST
        if cell.partition.is_draining:
            self._free(cell)  # the partition's next owner retries it
            return
        if cell.failed_first_ms is None:
            cell.failed_first_ms = wall_ms
        if cell.run_size > 1:
            cell.is_isolating = True
            self._run(cell, now_ms)
            return
        cell.attempt += 1
        retry = self.settings.retry
        is_last = self._routes.is_retry_topic(cell.progress.key.topic)
        if not is_last and cell.attempt < retry.attempts:
            cell.state = State.WAITING
            self._at(cell, now_ms + retry.pause_ms(cell.attempt, self._chance))
            return
        self._give_to_topic(cell, failure, now_ms, wall_ms)

    def _give_to_topic(self, cell: Cell, failure: Failure, now_ms: float, wall_ms: int) -> None:
        """Send the first record to the next retry topic or to the dead-letter topic."""
        key, record = cell.progress.key, cell.entries[0].record
        attempts = Attempts(cell.attempt, cell.failed_first_ms or wall_ms)
        sent = self._letter(key, record, failure, attempts, wall_ms)
        if sent is None:
            cell.state = State.WAITING  # forever: its record is never committed
            return
        cell.is_letter = True
        self._deliver(cell, 1, (sent,), now_ms)

    def _letter(
        self,
        key: TopicPartition,
        record: Record,
        failure: Failure,
        attempts: Attempts,
        wall_ms: int,
    ) -> ProducerRecord | None:
        """Build a failed record's letter; if there is no topic for it, end the consumer."""
        made = self._routes.letter(key, record, failure, attempts, wall_ms)
        if made is None:
            where = f"{key} at offset {record.offset}"
            text = f"{where} failed {attempts.count} times, no dead-letter topic is set: {failure}"
            self._effects.append(Fail(ProcessingFailed(text)))
            return None
        self.statistics.retried_later += made.is_retry
        self.statistics.dead_lettered += not made.is_retry
        self._effects.append(LetterWritten(key, record.offset, made.sent.topic, failure))
        return made.sent

    def _deliver(
        self, cell: Cell, size: int, outputs: tuple[ProducerRecord, ...], now_ms: float
    ) -> None:
        """Produce the outputs of the cell's first records, which finishes these."""
        if self.settings.transactional:
            records = tuple(entry.record for entry in islice(cell.entries, size))
            self._outputs.add(
                Kept(
                    cell.progress,
                    outputs,
                    () if cell.is_letter else records,
                    Attempts(cell.attempt, cell.failed_first_ms or 0),
                )
            )
            if not cell.is_letter:
                self.statistics.processed += size
            self._finish(cell, size, now_ms)
            return
        cell.state, cell.sent, cell.outputs = State.DELIVERING, size, outputs
        self._effects.append(Deliver(cell.cell_id, outputs))

    def _finish(self, cell: Cell, size: int, now_ms: float) -> None:
        """Finish the cell's first records."""
        for _ in range(size):
            entry = cell.entries.popleft()
            cell.progress.finish(entry)
            self._flow.remove(cell.partition, entry.size)
        self._flow.balance(cell.partition)
        cell.attempt, cell.failed_first_ms = 0, None
        if cell.entries and not cell.partition.is_draining:
            self._run(cell, now_ms)
        else:
            self._free(cell)

    def _free(self, cell: Cell) -> None:
        """End a cell, freeing its place and its lanes."""
        del self._cells[cell.cell_id]
        partition = cell.partition
        partition.lanes.give_back(cell.lanes)
        if partition.progress is not None:
            self._turn(partition)
        elif partition.lanes.is_unused:
            self._partitions.pop(partition.key, None)

    # -- starting ------------------------------------------------------------------------------

    def _start_more(self, now_ms: float) -> None:
        """Fill free cells, taking partitions in turn."""
        turns = self._turns
        while turns and len(self._cells) < self.settings.cells:
            partition = turns.popleft()
            if self._start(partition, now_ms):
                turns.append(partition)
            else:
                partition.is_in_turn = False

    def _start(self, partition: Partition, now_ms: float) -> bool:
        """Start one cell of a partition, if any of its records may run; return whether one did."""
        progress, lanes = partition.progress, partition.lanes
        if progress is None or partition.is_draining:
            return False
        cell: Cell | None = None
        size = self.settings.batch_size
        while (entry := lanes.first()) is not None:
            if entry.due_ms > now_ms:
                self._wait_until(partition, entry.due_ms)
                break
            if not progress.may_start(entry):
                break
            if cell is None:
                cell = Cell(next(self._ids), partition, progress)
            lane, _ = lanes.take()
            cell.lanes.append(lane)
            self._fill(cell, lane, entry, now_ms)
            if len(cell.entries) >= size:
                break
        if cell is None:
            return False
        self._cells[cell.cell_id] = cell
        self._run(cell, now_ms)
        return True

    def _fill(self, cell: Cell, lane: Lane, entry: Entry, now_ms: float) -> None:
        """Move a lane's first record into a cell, and more of them while there is room."""
        progress, size = cell.progress, self.settings.batch_size
        while True:
            progress.start(entry)
            cell.entries.append(entry)
            if not lane.queue or len(cell.entries) >= size:
                return
            entry = lane.queue[0]
            if entry.due_ms > now_ms or not progress.may_start(entry):
                return
            lane.queue.popleft()

    def _run(self, cell: Cell, now_ms: float) -> None:
        """Run a cell's records, or only the first one after a failure."""
        cell.run_size = 1 if cell.is_isolating else len(cell.entries)
        cell.state = State.RUNNING
        records = tuple(entry.record for entry in islice(cell.entries, cell.run_size))
        self._effects.append(RunCell(cell.cell_id, cell.progress.key, records))
        self._watch_for_stall(cell, now_ms)

    def _watch_for_stall(self, cell: Cell, now_ms: float) -> None:
        """Start the stall timer of a run."""
        stall_ms = self.settings.retry.stall_timeout_ms
        if stall_ms is not None:
            self._stalls[cell.cell_id] = now_ms + stall_ms

    def _give_up(self, cell: Cell) -> None:
        """Make the worker abandon a run."""
        self._stalls.pop(cell.cell_id, None)
        cell.state = State.ENDING
        self._effects.append(GiveUpCell(cell.cell_id))

    def _turn(self, partition: Partition) -> None:
        """Queue a partition for `_start_more`."""
        if not partition.is_in_turn and partition.lanes.first() is not None:
            partition.is_in_turn = True
            self._turns.append(partition)

    # -- timers --------------------------------------------------------------------------------

    def _at(self, cell: Cell, due_ms: float) -> None:
        """Schedule a retry or redelivery, valid while the cell's state does not change."""
        cell.due_ms = due_ms
        cell_id, state = cell.cell_id, cell.state

        def act(due_ms: float, wall_ms: int) -> None:
            found = self._cells.get(cell_id)
            if found is not None and found.state is state and found.due_ms == due_ms:
                self._due(found, due_ms)

        heapq.heappush(self._timers, (due_ms, next(self._ids), act))

    def _due(self, cell: Cell, now_ms: float) -> None:
        if cell.state is State.WAITING:
            self._run(cell, now_ms)
            return
        cell.state = State.DELIVERING
        self._effects.append(Deliver(cell.cell_id, cell.outputs))

    def _wait_until(self, partition: Partition, due_ms: float) -> None:
        """Pause a partition until a retry topic's next record is due."""
        if partition.waits_until_ms == due_ms:
            return
        partition.waits_until_ms = due_ms
        progress = partition.progress

        def act(now_ms: float, wall_ms: int) -> None:
            if partition.progress is progress and partition.waits_until_ms == due_ms:
                partition.waits_until_ms = None
                self._flow.balance(partition)
                self._turn(partition)

        heapq.heappush(self._timers, (due_ms, next(self._ids), act))
        self._flow.balance(partition)

    # -- helpers -------------------------------------------------------------------------------

    def _detach(self, partition: Partition) -> None:
        """Remove a partition; running calls keep their cells and lanes until they end."""
        progress = partition.progress
        assert progress is not None
        progress.is_current = False
        for cell in list(self._cells.values()):
            if cell.progress is progress and cell.state in PAUSING:
                self._free(cell)
        self._outputs.let_go(progress)
        self._flow.forget(partition)
        partition.reset()
        if partition.lanes.is_unused:
            self._partitions.pop(partition.key, None)

    def _current(self) -> Iterator[Partition]:
        return (one for one in self._partitions.values() if one.progress is not None)

    def _of(self, keys: Iterable[TopicPartition]) -> list[Partition]:
        """Return those of these partitions that are assigned."""
        wanted = set(keys)
        return [partition for partition in self._current() if partition.key in wanted]

    def _take_effects(self) -> list[Effect]:
        taken = self._effects[:]
        self._effects.clear()
        return taken


def _due_ms(key: TopicPartition, record: Record, now_ms: float, wall_ms: int) -> float:
    """Return when a record of a retry topic may run."""
    not_before_ms = origin_of(key, record).not_before_ms
    return 0.0 if not_before_ms is None else now_ms + max(0, not_before_ms - wall_ms)
