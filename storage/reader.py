"""Where a reader's next slice lies: O(1) for one that goes on where its last slice ended."""

from bisect import bisect_right
from operator import attrgetter
from typing import NamedTuple

from raylog.storage.files import SegmentFiles
from raylog.storage.segment import Segment

_HINTS_KEPT = 16
_base_offset = attrgetter("base_offset")


class Slice(NamedTuple):
    """Whole batches in one segment, the first of which holds `first_offset` or comes after it.

    `segment_id` is a file in the log's directory; `next_offset` is behind the last batch.
    """

    segment_id: str
    position: int
    length: int
    first_offset: int
    next_offset: int


def segment_index(segments: list[Segment], offset: int) -> int:
    """Index of the segment in which `offset` lies; 0 for one before all."""
    return max(bisect_right(segments, offset, key=_base_offset) - 1, 0)


class SliceReader:
    """Finds slices; remembers where the last few ended, since that is where readers go on."""

    __slots__ = ("_files", "_hints")

    def __init__(self, files: SegmentFiles) -> None:
        self._files = files
        self._hints: dict[int, tuple[Segment, int]] = {}

    def forget(self) -> None:
        """Segments went: what is remembered may be wrong."""
        self._hints.clear()

    def slice(
        self,
        segments: list[Segment],
        offset: int,
        end_offset: int,
        max_bytes: int,
        *,
        at_least_one: bool,
    ) -> Slice | None:
        """Batches from the one that holds `offset` on, which end at or before `end_offset`."""
        segment, position = self._locate(segments, offset)
        if end_offset >= segment.next_offset:
            end, next_offset = segment.size, segment.next_offset
        else:
            end, next_offset = self._locate(segments, end_offset)[1], end_offset
        if end - position > max_bytes:
            end, next_offset = self._files.boundary(
                segment, position, max_bytes, at_least_one=at_least_one
            )
        if end <= position:
            return None
        self._hints[next_offset] = segment, end
        if len(self._hints) > _HINTS_KEPT:
            del self._hints[next(iter(self._hints))]
        return Slice(segment.name, position, end - position, offset, next_offset)

    def _locate(self, segments: list[Segment], offset: int) -> tuple[Segment, int]:
        hint = self._hints.get(offset)
        if hint is not None and hint[1] < hint[0].size:
            return hint
        index = segment_index(segments, offset)
        segment = segments[index]
        if offset >= segment.next_offset and index + 1 < len(segments):
            return segments[index + 1], 0
        return segment, self._files.position_of(segment, offset)
