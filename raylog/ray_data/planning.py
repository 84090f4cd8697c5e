"""Plans reads: bounds of partitions, offset ranges for tasks, and parts of a backlog.

Starts are inclusive, ends exclusive.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from raylog.client.cluster import TopicPartition

Positions = dict[TopicPartition, int]
Bound = str | datetime | Mapping[TopicPartition, int]
"""`"earliest"`, `"latest"`, a time (the first record at or after it), or offsets."""

EARLIEST_WORD = "earliest"
LATEST_WORD = "latest"


class BadBound(ValueError):
    """The bound is not a known word, a time with a zone, or offsets."""


class OffsetsUnavailable(ValueError):
    """Requested offsets are not in the log: they were deleted, or are not written yet."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets of one partition that one task reads."""

    key: TopicPartition
    start: int
    end: int
    size_bytes: int = 0
    """Estimated stored size."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The bounds of a partition."""

    earliest: int
    latest: int
    """With read_committed, the last stable offset."""
    size_bytes: int = 0
    """Stored size; 0 if unknown."""


def resolve(
    bound: Bound, extents: Mapping[TopicPartition, Extent], at_time: Mapping[TopicPartition, int]
) -> Positions:
    """Return each partition's offset. `at_time` has the offsets found for a bound that is a time.

    Raises OffsetsUnavailable for offsets outside the log, BadBound for unknown words.
    """
    if isinstance(bound, datetime):
        return {key: at_time.get(key, extent.latest) for key, extent in extents.items()}
    if bound == EARLIEST_WORD:
        return {key: extent.earliest for key, extent in extents.items()}
    if bound == LATEST_WORD:
        return {key: extent.latest for key, extent in extents.items()}
    if isinstance(bound, str):
        raise BadBound(f"expected 'earliest', 'latest', a time or offsets, found {bound!r}")
    missing = bound.keys() - extents.keys()
    if missing:
        raise OffsetsUnavailable(f"no such partitions: {', '.join(map(str, sorted(missing)))}")
    for key, offset in bound.items():
        extent = extents[key]
        if not extent.earliest <= offset <= extent.latest:
            raise OffsetsUnavailable(
                f"offset {offset} of {key}: the log holds {extent.earliest} to {extent.latest}"
            )
    return dict(bound)


def ranges_between(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    extents: Mapping[TopicPartition, Extent],
) -> list[OffsetRange]:
    """Return one range for each partition with something to read.

    Without a start, a partition begins at its earliest offset; without an end, it ends at its
    latest. Raises OffsetsUnavailable if records were deleted after a start was looked up.
    """
    found = []
    for key, extent in sorted(extents.items()):
        start, end = starts.get(key, extent.earliest), ends.get(key, extent.latest)
        span = extent.latest - extent.earliest
        if start < extent.earliest and start < end:
            raise OffsetsUnavailable(f"{key} begins at {extent.earliest}, {start} was deleted")
        if start < end:
            size = extent.size_bytes * (end - start) // span if span else 0
            found.append(OffsetRange(key, start, end, size))
    return found


def split(ranges: Iterable[OffsetRange], *, records_max: int, bytes_max: int) -> list[OffsetRange]:
    """Split ranges evenly into parts of at most `records_max` offsets, about `bytes_max` bytes."""
    parts = []
    for whole in ranges:
        span = whole.end - whole.start
        count = min(span, max(-(-span // records_max), -(-whole.size_bytes // bytes_max)))
        cuts = [whole.start + span * n // count for n in range(count + 1)]
        parts += [
            OffsetRange(whole.key, start, end, whole.size_bytes // count)
            for start, end in pairwise(cuts)
        ]
    return parts


def limited(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    records_max: int | None,
) -> Positions:
    """Return the ends of a batch of about `records_max` offsets, split in proportion to backlogs.

    A partition with a backlog gets at least one record, so none starves.
    """
    waiting = {key: max(0, end - starts[key]) for key, end in ends.items()}
    total = sum(waiting.values())
    if records_max is None or total <= records_max:
        return {key: starts[key] + count for key, count in waiting.items()}
    return {
        key: starts[key] + min(count, max(1, count * records_max // total))
        for key, count in waiting.items()
    }
