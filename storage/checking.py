"""Old data is checked once before it is served: what nobody has read since the log was opened.

What recovery scanned and what was appended since is known to be right. Of all else only the indexes
were read, and a disk may have changed it. A job reads it beside the event loop, some way ahead.
"""

from dataclasses import dataclass

from raylog.storage.disk import Disk
from raylog.storage.epochs import LeaderEpochs
from raylog.storage.files import SegmentFiles
from raylog.storage.reader import Slice
from raylog.storage.scan import Surroundings, scan
from raylog.storage.segment import Segment

AHEAD_BYTES = 4 * 1024 * 1024


class Unchecked:
    """Parts of segments that nobody has checked, as (position, end), by the segment's name."""

    __slots__ = ("_parts",)

    def __init__(self, segments: list[Segment]) -> None:
        """Everything that was not scanned on opening."""
        self._parts = {
            segment.name: [(0, segment.trusted_size)]
            for segment in segments
            if segment.trusted_size
        }

    def touches(self, found: Slice) -> bool:
        """Whether anything of a slice is unchecked."""
        end = found.position + found.length
        parts = self._parts.get(found.segment_id)
        return parts is not None and any(
            found.position < until and start < end for start, until in parts
        )

    def copied(self, name: str, size: int, copy: str) -> None:
        """The first `size` bytes of a segment were copied as they are."""
        parts = [(start, min(until, size)) for start, until in self._parts.get(name, ())]
        self._parts[copy] = [part for part in parts if part[0] < part[1]]

    def remove(self, name: str, position: int, end: int) -> None:
        """A part was checked."""
        left = []
        for start, until in self._parts.pop(name, ()):
            left += [
                part
                for part in ((start, min(until, position)), (max(start, end), until))
                if part[0] < part[1]
            ]
        if left:
            self._parts[name] = left


@dataclass(slots=True)
class CheckJob:
    """Check the batches of a slice, and of what lies behind it, as far as it is worth the while.

    `damage` says what is wrong; `end` is where the checked part ends.
    """

    disk: Disk
    files: SegmentFiles
    segment: Segment
    found: Slice
    size: int
    epochs: LeaderEpochs
    end: int = 0
    damage: str | None = None
    failure: OSError | None = None

    def run(self) -> None:
        """Blocking. Call once."""
        try:
            self._check()
        except OSError as failure:
            self.failure = failure

    def _check(self) -> None:
        found = self.found
        enough = found.position + found.length
        limit = min(max(enough, found.position + AHEAD_BYTES), self.size)
        self.end = found.position
        with self.files.opened(self.segment) as fd:
            around = Surroundings(end_offset=self.segment.next_offset)
            for position, header, _ in scan(
                self.disk, fd, found.position, self.size, around=around, check=True
            ):
                if position == found.position and header.last_offset < found.first_offset:
                    break
                if header.next_offset > self.segment.next_offset:
                    break
                last_offset = max(header.base_offset, header.last_offset)
                if header.partition_leader_epoch != self.epochs.epoch_for(last_offset):
                    break  # the log start may be within the batch, and epochs begin there
                self.end = position + header.size
                if self.end >= limit:
                    break
        if self.end < enough:
            self.damage = f"no batch is whole and right at byte {self.end}"
