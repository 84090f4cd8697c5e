"""What is read by which task: bounds of partitions, ranges of offsets, parts of a backlog.

All offsets are of records: starts inclusive, ends exclusive.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from raylog.client.cluster import TopicPartition

Positions = dict[TopicPartition, int]
Bound = str | datetime | Mapping[TopicPartition, int]
"""`"earliest"`, `"latest"`, the first record not older than a time, or offsets by partition."""

EARLIEST_WORD = "earliest"
LATEST_WORD = "latest"


class BadBound(ValueError):
    """Neither a known word nor a time with its zone nor offsets."""


class OffsetsUnavailable(ValueError):
    """Offsets that were asked for are not in the log: deleted, or not written yet."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of one partition that one task reads."""

    key: TopicPartition
    start: int
    end: int
    size_bytes: int = 0
    """Estimated, as stored."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What a partition holds."""

    earliest: int
    latest: int
    """Under read_committed the last stable offset."""
    size_bytes: int = 0
    """As stored; 0: unknown."""


def resolve(
    bound: Bound, extents: Mapping[TopicPartition, Extent], at_time: Mapping[TopicPartition, int]
) -> Positions:
    """The offset of each partition; `at_time` is where a bound that is a time was found.

    Raises OffsetsUnavailable for offsets outside the log, BadBound for words of no meaning.
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
    """One range for each partition that has something to read.

    Partitions that `starts` leaves out begin at their earliest offset, those that `ends` leaves out
    end at their latest. Raises OffsetsUnavailable if records were deleted since a start was known.
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
    """Equal parts of each range: at most so many offsets, and about so many bytes."""
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
    """Ends of a batch of about so many offsets, shared out by what each partition has waiting.

    A partition with anything waiting gets one at least, so none starves.
    """
    waiting = {key: max(0, end - starts[key]) for key, end in ends.items()}
    total = sum(waiting.values())
    if records_max is None or total <= records_max:
        return {key: starts[key] + count for key, count in waiting.items()}
    return {
        key: starts[key] + min(count, max(1, count * records_max // total))
        for key, count in waiting.items()
    }
