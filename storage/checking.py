"""Checks old data once before it is served: everything that opening the log did not scan.

What recovery scanned and what was appended since is known to be correct. For the rest recovery read
only the indexes, and the disk may have corrupted the data. A thread checks it, some way ahead of
the reader.
"""

from typing import NamedTuple

from raylog.storage.epochs import LeaderEpochs
from raylog.storage.files import SegmentFiles
from raylog.storage.scan import Surroundings, scan
from raylog.storage.segment import Segment, Slice

AHEAD_BYTES = 4 * 1024 * 1024


class Unchecked:
    """Unchecked parts of segments, as (position, end), by the segment's name."""

    __slots__ = ("_parts",)

    def __init__(self, segments: list[Segment]) -> None:
        """Start with everything that was not scanned on opening."""
        self._parts = {
            segment.name: [(0, segment.trusted_size)]
            for segment in segments
            if segment.trusted_size
        }

    def touches(self, found: Slice) -> bool:
        """Whether any part of a slice is unchecked."""
        end = found.position + found.length
        parts = self._parts.get(found.segment_id)
        return parts is not None and any(
            found.position < until and start < end for start, until in parts
        )

    def copied(self, name: str, size: int, copy: str) -> None:
        """Record that `copy` begins with the first `size` bytes of a segment, unchanged."""
        parts = [(start, min(until, size)) for start, until in self._parts.get(name, ())]
        self._parts[copy] = [part for part in parts if part[0] < part[1]]

    def remove(self, name: str, position: int, end: int) -> None:
        """Mark the bytes [position, end) as checked."""
        left = []
        for start, until in self._parts.pop(name, ()):
            left += [
                part
                for part in ((start, min(until, position)), (max(start, end), until))
                if part[0] < part[1]
            ]
        if left:
            self._parts[name] = left


class Checked(NamedTuple):
    """Result of checking the bytes [position, end) of a segment."""

    position: int
    end: int
    damage: str | None
    """What is wrong at `end`; None if nothing is."""


def check(
    files: SegmentFiles, segment: Segment, found: Slice, size: int, epochs: LeaderEpochs
) -> Checked:
    """Check the batches of a slice, and up to AHEAD_BYTES from its start.

    `size` is where the segment's data ended when the check began. Blocking; may raise OSError.
    """
    end = found.position
    enough = end + found.length
    limit = min(max(enough, end + AHEAD_BYTES), size)
    with files.opened(segment) as fd:
        around = Surroundings(end_offset=segment.next_offset)
        for position, header, _ in scan(files.disk, fd, end, size, around=around, check=True):
            if position == found.position and header.last_offset < found.first_offset:
                break
            if header.next_offset > segment.next_offset:
                break
            last_offset = max(header.base_offset, header.last_offset)
            if header.partition_leader_epoch != epochs.epoch_for(last_offset):
                break  # the log start may be inside the batch, and epochs begin there
            end = position + header.size
            if end >= limit:
                break
    damage = f"no batch is whole and right at byte {end}" if end < enough else None
    return Checked(found.position, end, damage)
