"""A parallel consumer's window played against a log that remembers what really happened."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from raylog.client.cluster import TopicPartition
from raylog.client.parallel.effects import (
    Deliver,
    Done,
    Effect,
    GiveUpCell,
    LetterWritten,
    Pause,
    Resume,
    RunCell,
    WindowSettings,
)
from raylog.client.parallel.note import NoteUnreadable, decode_note
from raylog.client.parallel.policy import Failure, FailureKind, Order
from raylog.client.parallel.window import Window
from raylog.wire.record import Record

RAISED = Failure(FailureKind.RAISED, "ValueError", "no")
LOST = Failure(FailureKind.WORKER_LOST, "WorkerLost", "gone")


class WindowGame:
    """One group, one member at a time; every step checks what must hold.

    - nothing is committed, and nothing noted, that was not finished;
    - what the last commit or its note knows is never run again;
    - a key's records never run at the same time, and are started in order within an assignment;
    - no more cells run than there are, and the note always fits.
    """

    def __init__(self, settings: WindowSettings, log: dict[TopicPartition, list[Record]]) -> None:
        self.settings = settings
        self.log = log
        self.now_ms = 0.0
        self.committed: dict[TopicPartition, tuple[int, str]] = {}
        self.done: set[tuple[TopicPartition, int]] = set()
        self.dead: set[tuple[TopicPartition, int]] = set()
        self.runs: dict[tuple[TopicPartition, int], int] = {}
        self.start()

    def start(self) -> None:
        """A process starts, with what was committed."""
        self.window = Window(self.settings, Random(0))
        self.running: dict[int, RunCell] = {}
        self.given_up: set[int] = set()
        self.delivering: dict[int, Deliver] = {}
        self.paused: set[TopicPartition] = set()
        self.position: dict[TopicPartition, int] = {}
        self.started: dict[tuple[TopicPartition, object], int] = {}
        self.begun: set[tuple[TopicPartition, int]] = set()
        """What ran in the current assignment."""
        for key in self.log:
            self.assign(key)

    def assign(self, key: TopicPartition) -> None:
        offset, note = self.committed.get(key, (0, ""))
        if key in self.position:
            return
        try:
            finished = decode_note(key, offset, note)
        except NoteUnreadable:
            finished = []
        self.position[key] = offset
        for name in [name for name in self.started if name[0] == key]:
            del self.started[name]
        self.begun = {place for place in self.begun if place[0] != key}
        self.carry_out(self.window.assigned(key, offset, finished))

    def revoke(self, key: TopicPartition, *, drain: bool) -> None:
        """The partition goes to another member; `drain`: after a commit."""
        if key not in self.position:
            return
        if drain:
            self.carry_out(self.window.drain([key]))
            self.commit()
        del self.position[key]
        self.paused.discard(key)
        self.carry_out(self.window.revoked([key], self.now_ms))

    def crash(self) -> None:
        self.start()

    def fetch(self, key: TopicPartition, count: int) -> None:
        if key in self.paused or key not in self.position:
            return
        records = [one for one in self.log[key] if one.offset >= self.position[key]][:count]
        if records:
            self.position[key] = records[-1].offset + 1
            self.carry_out(self.window.fetched(key, records, self.now_ms, self.wall_ms))

    @property
    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self.now_ms)

    def end_run(self, cell_id: int, failure: Failure | None) -> None:
        run = self.running.pop(cell_id)
        self.given_up.discard(cell_id)
        outcome = Done() if failure is None else failure
        if failure is None:
            # Even if the partition was taken away: the function did run to its end.
            self.done.update((run.key, record.offset) for record in run.records)
        self.carry_out(self.window.ran(cell_id, outcome, self.now_ms, self.wall_ms))

    def end_delivery(self, cell_id: int, *, written: bool, refusal: Failure | None = None) -> None:
        sent = self.delivering.pop(cell_id)
        if written:
            for one in sent.outputs:
                found = dict(one.headers)
                topic, partition = (
                    found["raylog-original-topic"],
                    found["raylog-original-partition"],
                )
                offset = found["raylog-original-offset"]
                assert topic is not None
                assert partition is not None
                assert offset is not None
                place = TopicPartition(topic.decode(), int(partition)), int(offset)
                self.done.add(place)
                self.dead.add(place)
            self.carry_out(self.window.delivered(cell_id, self.now_ms))
        else:
            self.carry_out(self.window.undelivered(cell_id, refusal, self.now_ms, self.wall_ms))

    def pass_time(self, ms: float) -> None:
        self.now_ms += ms
        self.carry_out(self.window.tick(self.now_ms, self.wall_ms))

    def commit(self) -> None:
        points = self.window.commit_points()
        for point in points:
            self.check_commit(point.key, point.offset, point.note)
            self.committed[point.key] = (point.offset, point.note)
        self.window.committed(points)

    def check_commit(self, key: TopicPartition, offset: int, note: str) -> None:
        assert len(note) <= self.settings.note_bytes_max, "the note fits"
        known = decode_note(key, offset, note)
        assert offset >= self.committed.get(key, (0, ""))[0], "a commit never goes back"
        for record in self.log[key]:
            if record.offset < offset or any(a <= record.offset < b for a, b in known):
                assert (key, record.offset) in self.done, "nothing unfinished is committed"

    def is_known(self, key: TopicPartition, offset: int) -> bool:
        committed, note = self.committed.get(key, (0, ""))
        return offset < committed or any(
            a <= offset < b for a, b in decode_note(key, committed, note)
        )

    def carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case RunCell():
                    self.check_run(effect)
                    self.running[effect.cell_id] = effect
                case GiveUpCell(cell_id):
                    self.given_up.add(cell_id)
                case Deliver(cell_id):
                    self.delivering[cell_id] = effect
                case Pause(keys):
                    self.paused.update(keys)
                case Resume(keys):
                    self.paused.difference_update(keys)
                case LetterWritten():
                    pass
                case _:
                    raise AssertionError(effect)
        assert len(self.running) <= self.settings.cells
        for key in self.position:
            partition = self.window._partitions[key]
            assert partition.progress is not None
            assert partition.progress.base is None or partition.progress.commit_point() is not None

    def check_run(self, run: RunCell) -> None:
        assert run.cell_id not in self.running
        assert 1 <= len(run.records) <= self.settings.batch_size
        busy = {lane for one in self.running.values() for lane in self.lanes(one)}
        assert not busy & self.lanes(run), "records of a lane never run at the same time"
        for record in run.records:
            place = run.key, record.offset
            assert not self.is_known(*place), "what the commit knows is not run again"
            self.runs[place] = self.runs.get(place, 0) + 1
            name = run.key, self.lane(run.key, record)
            if place not in self.begun:
                assert self.started.get(name, -1) < record.offset, "a lane's records run in order"
                self.started[name] = record.offset
                self.begun.add(place)

    def lanes(self, run: RunCell) -> set[object]:
        return {self.lane(run.key, record) for record in run.records}

    def lane(self, key: TopicPartition, record: Record) -> object:
        if self.settings.order is Order.PARTITION:
            return key
        if self.settings.order is Order.KEY and record.key is not None:
            return key, record.key
        return key, record.offset

    def finish_all(self) -> None:
        """From here on everything goes well: all records must be finished and committed."""
        for key in self.log:
            self.assign(key)
        for _ in range(100 * (2 + sum(map(len, self.log.values())))):
            for key in self.log:
                self.fetch(key, 7)
            for cell_id in list(self.running):
                self.end_run(cell_id, None)
            for cell_id in list(self.delivering):
                self.end_delivery(cell_id, written=True)
            self.pass_time(1_000)
            if all(self.is_read(key) for key in self.log) and self.window.is_drained():
                break
        self.commit()
        for key, records in self.log.items():
            missing = [one.offset for one in records if (key, one.offset) not in self.done]
            assert not missing, "no record is lost"
            if records:
                assert self.committed[key] == (records[-1].offset + 1, ""), "all is committed"

    def is_read(self, key: TopicPartition) -> bool:
        return not self.log[key] or self.position[key] > self.log[key][-1].offset
