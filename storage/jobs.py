"""What blocks: made by the log, run by the shell in an executor thread, handed back to the log.

A job works on what it was given when it was made, never on the log, so that appends and reads go
on meanwhile. A failure is kept in the job, for the log to judge when the job comes back.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from raylog.storage.checkpoint import HighWatermarkFile, LogState, Reached, StateFile, write_file
from raylog.storage.disk import Disk, is_passing, remove
from raylog.storage.files import SegmentFiles
from raylog.storage.index import encode_index
from raylog.storage.layout import index_name, producers_name
from raylog.storage.producers import ProducerSnapshot
from raylog.storage.rewriting import note_if_possible
from raylog.storage.segment import Segment


class Snapshot(NamedTuple):
    """Producer states that are to be encoded and written."""

    offset: int
    states: ProducerSnapshot


class DerivedFile(NamedTuple):
    """A file to be written that could be made again from the segments."""

    name: str
    contents: bytes


@dataclass(slots=True)
class FlushJob:
    """Make everything below `up_to` durable, and write the indexes of full segments.

    `failure` is a write-back that failed: the data may be lost, whatever a later one says. A note
    of it is left at once
    `index_failure` is of an index; the first `indexed` of `retired` have theirs, and the others
    can be tried again.
    """

    disk: Disk
    files: SegmentFiles
    directory: str
    up_to: int
    descriptors: list[int] = field(default_factory=list)  # the job's own: it closes them
    names: list[str] = field(default_factory=list)  # segments without an open descriptor
    retired: list[Segment] = field(default_factory=list)
    indexed: int = 0
    failure: OSError | None = None
    index_failure: OSError | None = None

    def run(self) -> None:
        """Blocking. Call once."""
        try:
            self._sync()
        except OSError as failure:
            self.failure = failure
            note_if_possible(self.disk, self.directory)
            return
        try:
            with self.files.lock:
                self._write_indexes()
        except OSError as failure:
            self.index_failure = failure

    def _sync(self) -> None:
        if not self.names and not self.descriptors:
            return
        try:
            for name in self.names:
                self.descriptors.append(self.disk.open(self.files.path(name)))
            for fd in self.descriptors:
                self.disk.fdatasync(fd)
        finally:
            for fd in self.descriptors:
                self.disk.close(fd)
        self.disk.fsync_dir(self.directory)
        self.files.sync_name()

    def _write_indexes(self) -> None:
        for segment in self.retired:
            index = segment.index
            if index is not None:  # else it was read from its file, which is there already
                path = self.files.path(index_name(segment.name))
                data = encode_index(segment.summary(), index, segment.aborted or [])
                write_file(self.disk, path, data, durable=False)
            self.indexed += 1


@dataclass(slots=True)
class CheckpointJob:
    """Make producer snapshots and the log's state durable, then remove what is not needed.

    Several may be under way: the older one then leaves the newer state alone. After a `failure`
    that does not pass nobody knows which state a power loss would leave: it is noted at once.
    """

    disk: Disk
    files: SegmentFiles
    directory: str
    state_file: StateFile
    state: LogState | None  # None if it is saved already
    number: int
    high_watermark_file: HighWatermarkFile
    reached: Reached
    snapshots: list[Snapshot]
    doomed: list[str]
    index: DerivedFile | None = None  # of the growing segment
    failure: OSError | None = None

    def run(self) -> None:
        """Blocking. Call once."""
        try:
            with self.files.lock:
                self._write()
        except OSError as failure:
            self.failure = failure
            if not is_passing(failure):
                note_if_possible(self.disk, self.directory)

    def _write(self) -> None:
        for snapshot in self.snapshots:  # first: records that it stands for may go with this
            path = self.files.path(producers_name(snapshot.offset))
            write_file(self.disk, path, snapshot.states.encode(), durable=True)
        if self.index is not None:
            path = self.files.path(self.index.name)
            write_file(self.disk, path, self.index.contents, durable=False)
        if self.state is not None:
            self.state_file.write(self.state, self.number)
            self.files.sync_name()
        self.high_watermark_file.write(self.reached)
        for name in self.doomed:
            remove(self.disk, self.files.path(name))
