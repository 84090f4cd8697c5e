"""Names of the files in a partition's directory.

| file | holds | truth or derived |
|---|---|---|
| `<base>.log`, `<base>-<generation>.log` | record batches v2, zeros may follow | truth |
| `<segment>.index` | offsets, times, aborted transactions (`index.py`) | derived |
| `<offset>.producers` | producer states as of that offset (`producers.py`) | derived |
| `state` | log start, leader epochs, recovery point (`checkpoint.py`) | log start: truth |
| `cleaner` | how far it was cleaned, which segments replace others (`checkpoint.py`) | a hint |
| `high-watermark` | how far the log was at a checkpoint | a hint |
| `partition.json` | topic, topic id, partition, settings (`partition_file.py`) | metadata |
| `holes` | empty: offsets may be missing, as the log is a copy of a compacted one | a hint |
| `unflushed` | empty: a flush failed, some records are in doubt (`rewriting.py`) | a hint |
| `*.aside` | a segment that follows damage, kept until the log is whole again | - |
| `*.tmp` | a file being written; removed on opening | - |

`<base>` is the offset at which the segment begins, in 20 digits; `<segment>` is the segment's name
without `.log`. A segment's name is never used twice in the life of a partition: a segment that
replaces one whose name is used up (after truncation or cleaning) has a generation greater than any
before. So a reader can map a segment by name, and nothing that it has mapped below the log end
offset is ever cut or overwritten.

Files of a newer build are refused by name, and the log is not opened (`checkpoint.NewerVersion`).
This applies to the small files, each of which holds facts found nowhere else, and to a `*.log`
whose name is not a segment's, because a segment of another format would have another form of name.
An index of a newer build is rebuilt.

While it is written to, a segment's file is longer than its data (a hole, for readers to map); the
data ends where the next batch is incomplete, has a wrong CRC, or is out of order. A clean close
cuts the hole off. Rejected data that is not zeros is left in place, because readers may have it
mapped, and the log continues in another segment.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
PRODUCERS_SUFFIX = ".producers"
TEMPORARY_SUFFIX = ".tmp"
ASIDE_SUFFIX = ".aside"
STATE_FILE = "state"
HIGH_WATERMARK_FILE = "high-watermark"
CLEANER_FILE = "cleaner"
PARTITION_FILE = "partition.json"
HOLES_FILE = "holes"
UNFLUSHED_FILE = "unflushed"
_SMALL_FILES = (
    STATE_FILE,
    HIGH_WATERMARK_FILE,
    CLEANER_FILE,
    PARTITION_FILE,
    HOLES_FILE,
    UNFLUSHED_FILE,
)
_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, PRODUCERS_SUFFIX, TEMPORARY_SUFFIX, ASIDE_SUFFIX)

_SEGMENT = re.compile(r"(\d{20})(?:-(\d{1,18}))?\.log", re.ASCII)
_ASIDE = re.compile(r"(\d{20})(?:-(\d{1,18}))?\.log\.aside", re.ASCII)
_PRODUCERS = re.compile(r"(\d{20})\.producers", re.ASCII)


class SegmentName(NamedTuple):
    """Parts of a segment's file name; sorts by base offset, then generation."""

    base_offset: int
    generation: int


def segment_name(base_offset: int, generation: int) -> str:
    """File name of a segment; generation 0 is left out."""
    return f"{base_offset:020d}{f'-{generation}' if generation else ''}{LOG_SUFFIX}"


def parse_segment_name(name: str) -> SegmentName | None:
    """Parse a segment's file name; None for any other name."""
    match = _SEGMENT.fullmatch(name)
    return SegmentName(int(match[1]), int(match[2] or 0)) if match else None


def is_unknown_segment(name: str) -> bool:
    """Whether a file is named like a segment, but not in this build's form."""
    return name.endswith(LOG_SUFFIX) and parse_segment_name(name) is None


def holds_log(names: Iterable[str]) -> bool:
    """Whether a directory's names include part of a log: its state or a segment."""
    return any(name == STATE_FILE or name.endswith(LOG_SUFFIX) for name in names)


def is_set_aside(name: str) -> bool:
    """Whether a file is a segment set aside because it follows damage."""
    return _ASIDE.fullmatch(name) is not None


def index_name(segment: str) -> str:
    """File name of a segment's index."""
    return segment.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX


def producers_name(offset: int) -> str:
    """File name of the producer states as of `offset`."""
    return f"{offset:020d}{PRODUCERS_SUFFIX}"


def parse_producers_name(name: str) -> int | None:
    """Offset in a producer snapshot's file name; None for any other name."""
    match = _PRODUCERS.fullmatch(name)
    return int(match[1]) if match else None


def is_log_file(name: str) -> bool:
    """Whether a file in a partition's directory is ours, to be deleted with the partition."""
    return name in _SMALL_FILES or name.endswith(_SUFFIXES)
