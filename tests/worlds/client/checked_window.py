"""A parallel consumer's window, checked against a log that remembers what really happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from raylog.client.cluster import TopicPartition
from raylog.client.interceptors import ProducerRecord
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
from raylog.client.parallel.note import NoteUnreadable, Range, decode_note
from raylog.client.parallel.policy import Failure, FailureKind, Order
from raylog.client.parallel.window import Window
from raylog.wire.record import Record

RAISED = Failure(FailureKind.RAISED, "ValueError", "no")
LOST = Failure(FailureKind.WORKER_LOST, "WorkerLost", "gone")


REFUSED = Failure(FailureKind.UNDELIVERED, "UnknownTopicOrPartition", "no such topic")
RESULT = ProducerRecord("out", b"result")


@dataclass(slots=True)
class GroupState:
    """What the members share: committed offsets, and what really happened."""

    committed: dict[TopicPartition, tuple[int, str]] = field(default_factory=dict)
    done: set[tuple[TopicPartition, int]] = field(default_factory=set)
    runs: dict[tuple[TopicPartition, int], int] = field(default_factory=dict)
    owner: dict[TopicPartition, CheckedWindow] = field(default_factory=dict)


class CheckedWindow:
    """One member of a group; every step checks the invariants.

    - a commit and its note cover finished records only;
    - records covered by the last commit or its note never run again;
    - records of one key never run concurrently, and start in order within an assignment;
    - no more runs are active than there are cells, and the note always fits.
    """

    def __init__(
        self,
        settings: WindowSettings,
        log: dict[TopicPartition, list[Record]],
        group: GroupState | None = None,
    ) -> None:
        """Without a `group`, the member is alone and owns all partitions."""
        self.settings = settings
        self.log = log
        self.now_ms = 0.0
        self.group = GroupState() if group is None else group
        self.committed, self.done = self.group.committed, self.group.done
        self.runs, self.owner = self.group.runs, self.group.owner
        self.start()
        if group is None:
            self.assign_all()

    def start(self) -> None:
        """Start a process that has no partitions."""
        self.window = Window(self.settings, Random(0))
        self.running: dict[int, RunCell] = {}
        self.given_up: set[int] = set()
        self.delivering: dict[int, Deliver] = {}
        self.results: dict[int, RunCell] = {}
        """Runs whose results are being delivered."""
        self.paused: set[TopicPartition] = set()
        self.position: dict[TopicPartition, int] = {}
        self.started: dict[tuple[TopicPartition, object], int] = {}
        self.begun: set[tuple[TopicPartition, int]] = set()
        """Records that ran in the current assignment."""

    def assign_all(self) -> None:
        for key in self.log:
            self.assign(key)

    def assign(self, key: TopicPartition) -> None:
        """Assign a partition without an owner, with its committed offset."""
        if key in self.owner:
            return
        if key in self.position:
            self.hear(key)
        self.owner[key] = self
        offset, _ = self.committed.get(key, (0, ""))
        self.position[key] = offset
        for name in [name for name in self.started if name[0] == key]:
            del self.started[name]
        self.begun = {place for place in self.begun if place[0] != key}
        self.carry_out(self.window.assigned(key, offset, self.noted(key)))

    def noted(self, key: TopicPartition) -> list[Range]:
        """Return the finished ranges that a new owner reads from the note."""
        offset, note = self.committed.get(key, (0, ""))
        try:
            return decode_note(key, offset, note)
        except NoteUnreadable:
            return []

    def revoke(self, key: TopicPartition, *, drain: bool) -> None:
        """Revoke a partition; `drain` commits before."""
        if self.owner.get(key) is not self:
            return
        if drain:
            self.carry_out(self.window.drain([key]))
            self.commit()
        del self.owner[key]
        self.hear(key)

    def fence(self, key: TopicPartition) -> None:
        """Take a partition away without the member noticing."""
        if self.owner.get(key) is self:
            del self.owner[key]

    def hear(self, key: TopicPartition) -> None:
        """Tell the member that it lost a partition."""
        if key in self.position and self.owner.get(key) is not self:
            del self.position[key]
            self.paused.discard(key)
            self.carry_out(self.window.revoked([key], self.now_ms))

    def crash(self) -> None:
        """Kill the process and start another one in its place."""
        for key in [key for key, owner in self.owner.items() if owner is self]:
            del self.owner[key]
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

    def end_run(self, cell_id: int, failure: Failure | None, *, has_result: bool = False) -> None:
        run = self.running.pop(cell_id)
        self.given_up.discard(cell_id)
        outcome = Done((RESULT,) if has_result else ()) if failure is None else failure
        if failure is None and has_result:
            self.results[cell_id] = run
        elif failure is None:
            # The function ran to its end, even if the partition was revoked meanwhile.
            self.done.update((run.key, record.offset) for record in run.records)
        self.carry_out(self.window.ran(cell_id, outcome, self.now_ms, self.wall_ms))

    def end_delivery(self, cell_id: int, *, written: bool, refusal: Failure | None = None) -> None:
        sent = self.delivering.pop(cell_id)
        if written:
            self.done.update(self.places(cell_id, sent))
            self.carry_out(self.window.delivered(cell_id, self.now_ms))
        else:
            self.carry_out(self.window.undelivered(cell_id, refusal, self.now_ms, self.wall_ms))

    def places(self, cell_id: int, sent: Deliver) -> list[tuple[TopicPartition, int]]:
        """Return the source records of what was written."""
        if RESULT in sent.outputs:
            run = self.results[cell_id]
            return [(run.key, record.offset) for record in run.records]
        found = []
        for one in sent.outputs:
            headers = {name: (value or b"").decode() for name, value in one.headers}
            partition = int(headers["raylog-original-partition"])
            key = TopicPartition(headers["raylog-original-topic"], partition)
            found.append((key, int(headers["raylog-original-offset"])))
        return found

    def pass_time(self, ms: float) -> None:
        self.now_ms += ms
        self.carry_out(self.window.tick(self.now_ms, self.wall_ms))

    def commit(self) -> None:
        points = self.window.commit_points()
        if any(self.owner.get(point.key) is not self for point in points):
            return  # refused: the member has an old generation
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
        committed, _ = self.committed.get(key, (0, ""))
        return offset < committed or any(a <= offset < b for a, b in self.noted(key))

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
            if self.owner.get(run.key) is self:
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
        """Run everything to the end without faults; all records must be finished and committed."""
        self.assign_all()
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
