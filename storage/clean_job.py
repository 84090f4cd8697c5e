"""Job of one cleaning (`cleaning.py`) or correction (`correcting.py`): puts its results in place.

A segment replaces its group in this order:

1. the worker writes its file and index under temporary names and makes the file durable;
2. the index gets its name;
3. the `cleaner` file records durably what the segment replaces;
4. the segment gets its name, durably;
5. the log reads it instead of the group, whose files are removed like expired ones.

After a crash at any point, opening finds either the group or the segment: a segment that has its
name has passed step 3. A full disk ends the cleaning before step 4, and the group stays. The worker
takes no part in steps 2 to 5: it may end at any time, and its leftovers are removed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import assert_never

from raylog.storage.checkpoint import CleanerFile, CleanerState, Swap
from raylog.storage.cleaning import Cleaning
from raylog.storage.correcting import Correction
from raylog.storage.disk import remove
from raylog.storage.layout import index_name
from raylog.storage.segment import Segment
from raylog.storage.segment_work import (
    Failed,
    Finished,
    KeysRead,
    Made,
    Outcome,
    Unchanged,
    temporary_path,
)
from raylog.wire.errors import KafkaError


@dataclass(slots=True)
class CleanJob:
    """One cleaning of the first segments of a log, or one correction of neighbouring segments.

    None of these segments grows.

    Call `work.step` in an executor or another process, give its outcome to `take` in an executor,
    then give the job to `Log.end_clean`; repeat until that returns False. `swapped` is the last
    step's result for the log: the group and the segment that replaces it.
    """

    work: Cleaning | Correction
    cleaner_file: CleanerFile
    state: CleanerState  # as it is on disk
    segments: list[Segment]  # those not processed yet
    failure: OSError | KafkaError | None = None
    damaged: str | None = None  # name of a segment
    done: bool = False
    stopping: bool = False
    swapped: tuple[list[Segment], Segment] | None = None
    records_read: int = 0
    looked_to: int = 0
    """End of the last segment that a step processed."""
    damages: list[str] = field(default_factory=list)
    """Damage that a correction found and left as it was."""
    on_stop: Callable[[], None] | None = None
    """Stops a step that another process runs."""
    _clean_end: int | None = None

    def take(self, outcome: Outcome) -> None:
        """Process the outcome of a step. Blocking."""
        self.swapped = None
        try:
            self._take(outcome)
        except OSError as failure:
            self.failure = failure

    def _take(self, outcome: Outcome) -> None:
        match outcome:
            case KeysRead(end_offset, records):
                self._clean_end, self.records_read = end_offset, records
            case Made():
                self.swapped = self._put_in_place(outcome)
                self.looked_to = outcome.summary.next_offset
            case Unchanged(damage):
                self.looked_to = self.segments.pop(0).next_offset
                if damage is not None:
                    self.damages.append(damage)
            case Finished():
                if not self.stopping and self._clean_end is not None:
                    self.state = replace(self.state, first_dirty_offset=self._clean_end)
                    self.cleaner_file.write(self.state)
                self.done = True
            case Failed(failure, damaged):
                self.failure, self.damaged = failure, damaged
            case _:
                assert_never(outcome)

    def abandon(self) -> None:
        """End the job because its worker is gone. Blocking; finished swaps stay."""
        self.swapped = None
        self.done = True
        try:
            self._remove_temporary_files()
        except OSError as failure:
            self.failure = failure

    def stop(self) -> None:
        """Ask the running step to end soon; no other step follows."""
        self.stopping = True
        self.work.stop()
        if self.on_stop is not None:
            self.on_stop()

    def _put_in_place(self, made: Made) -> tuple[list[Segment], Segment]:
        group = self.segments[: made.group]
        segment = Segment(made.name, group[-1].created_ms)
        segment.restore(made.summary, made.aborted)
        segment.trusted_size = 0  # all of it was just checked and written
        segment.file_size = segment.size
        swaps = (*self.state.swaps, Swap(segment.name, segment.next_offset))
        state = replace(self.state, swaps=swaps)
        disk, directory = self.work.disk, self.work.directory
        index = index_name(segment.name)
        try:
            modified_ms = disk.modified_ms(f"{directory}/{group[-1].name}")
            disk.set_modified_ms(self._temporary(segment.name), modified_ms)
            disk.rename(self._temporary(index), f"{directory}/{index}")
            self.cleaner_file.write(state)
            disk.rename(self._temporary(segment.name), f"{directory}/{segment.name}")
            disk.fsync_dir(directory)
        except OSError:
            for name in (segment.name, index):
                remove(disk, f"{directory}/{name}")
                remove(disk, self._temporary(name))
            raise
        self.state = state
        del self.segments[: made.group]
        return group, segment

    def _temporary(self, name: str) -> str:
        return temporary_path(self.work.directory, name, self.work.token)

    def _remove_temporary_files(self) -> None:
        """Remove the files of an unfinished segment."""
        disk, directory = self.work.disk, self.work.directory
        for name in disk.listdir(directory):
            if f".{self.work.token}." in name:
                remove(disk, f"{directory}/{name}")
