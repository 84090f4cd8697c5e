"""Computes the new offsets of a group for `raylog groups reset-offsets`.

Offsets outside a partition's log are moved to its nearer end, as in Kafka's own tool.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import assert_never

from raylog.cli.failures import EXIT_USAGE, CommandFailed, text_of
from raylog.client import FoundOffset, TopicPartition

_DURATION = re.compile(
    r"P(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_MS = {"weeks": 604_800_000, "days": 86_400_000, "hours": 3_600_000, "minutes": 60_000}
_MS["seconds"] = 1_000
_COLUMNS = 3
_COLUMNS_WITH_GROUP = 4


class Place(Enum):
    """A position that every partition has."""

    EARLIEST = "earliest"
    LATEST = "latest"
    CURRENT = "current"
    """The committed offset; the log end if there is none."""


@dataclass(frozen=True, slots=True)
class ToOffset:
    """The same offset in every partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class ToTime:
    """The first record that is not older than a time; the log end if there is none."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """The committed offset plus `count`, which may be negative."""

    count: int


@dataclass(frozen=True, slots=True)
class FromFile:
    """An offset for each partition."""

    offsets: dict[TopicPartition, int]


Target = Place | ToOffset | ToTime | ShiftBy | FromFile


@dataclass(frozen=True, slots=True)
class LogRange:
    """The offsets of a partition's log: from `first` up to, but excluding, `end`."""

    first: int
    end: int

    def nearest(self, offset: int) -> int:
        """Return the offset, or the nearer end of the log if it is outside."""
        return min(max(offset, self.first), self.end)


@dataclass(frozen=True, slots=True)
class Move:
    """The planned change for one partition."""

    key: TopicPartition
    current: int | None
    """The committed offset; None if there is none."""
    asked: int
    log: LogRange

    @property
    def offset(self) -> int:
        """The offset from which the group will continue."""
        return self.log.nearest(self.asked)


def plan_moves(
    target: Target,
    logs: Mapping[TopicPartition, LogRange],
    committed: Mapping[TopicPartition, int],
    found: Mapping[TopicPartition, FoundOffset],
) -> list[Move]:
    """Plan one move for each partition of `logs`.

    `found` holds each partition's offset for the requested time. Raises CommandFailed if a
    partition without a committed offset is to be shifted.
    """
    moves = []
    for key, log in sorted(logs.items()):
        current = committed.get(key)
        asked = _asked(target, key, log, current, found.get(key))
        moves.append(Move(key, current, asked, log))
    return moves


def _asked(
    target: Target,
    key: TopicPartition,
    log: LogRange,
    current: int | None,
    found: FoundOffset | None,
) -> int:
    """Return the requested offset, which may be outside the log."""
    match target:
        case Place.EARLIEST:
            return log.first
        case Place.LATEST:
            return log.end
        case Place.CURRENT:
            return log.end if current is None else current
        case ToOffset(offset):
            return offset
        case ToTime():
            return log.end if found is None or found.offset < 0 else found.offset
        case ShiftBy(count):
            if current is None:
                raise CommandFailed(
                    f"{key} has no committed offset to shift",
                    "Give partitions that have one (--topic TOPIC:0,1), or use another --to-… "
                    "option",
                )
            return current + count
        case FromFile(offsets):
            return offsets[key]
        case _:
            assert_never(target)


def parse_instant(text: str) -> int | None:
    """Parse a time as ms since the epoch: [@]MILLISECONDS, or ISO 8601 (default: local time).

    Returns None if the text is in neither format.
    """
    digits = text.removeprefix("@")
    try:
        if digits.isascii() and digits.isdigit():
            return int(digits) if int(digits) < 2**63 else None
        return int(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000)
    except (ValueError, OverflowError):  # the latter for a time before year 1 or after 9999
        return None


def parse_duration_ms(text: str) -> int | None:
    """Parse an ISO 8601 duration of weeks, days, hours, minutes and seconds, such as P1DT2H.

    Returns None if the text is not in that format.
    """
    matched = _DURATION.fullmatch(text.upper())
    if matched is None or text.upper().endswith(("P", "T")):
        return None
    return round(sum(float(count) * _MS[unit] for unit, count in matched.groupdict("0").items()))


def parse_partitions(text: str) -> tuple[str, list[int] | None]:
    """Parse TOPIC[:0,1,2] as topic and partitions (None: all). Raises CommandFailed."""
    topic, colon, numbers = text.partition(":")
    parts = numbers.split(",")
    if not topic or (colon and not all(part.isascii() and part.isdigit() for part in parts)):
        raise CommandFailed(f"expected TOPIC or TOPIC:0,1,2, found {text!r}", exit_code=EXIT_USAGE)
    return topic, [int(part) for part in parts] if colon else None


def read_offsets(path: Path, group_id: str) -> dict[TopicPartition, int]:
    """Read offsets from a file: JSON, or CSV lines of [group,]topic,partition,offset.

    JSON is a list of objects with these names, alone or under "offsets". Entries of other groups
    are skipped. Raises CommandFailed.
    """
    text = text_of(path, "offsets as CSV or JSON")
    rows = _json_rows(path, text) if path.suffix == ".json" else _csv_rows(path, text)
    found = {}
    for where, (group, topic, partition, offset) in rows:
        if group is not None and group != group_id:
            continue
        try:
            key, value = TopicPartition(str(topic), int(str(partition))), int(str(offset))
        except ValueError:
            raise _malformed(where, f"{topic},{partition},{offset}") from None
        if key.partition < 0 or value < 0:
            raise _malformed(where, f"{topic},{partition},{offset}")
        found[key] = value
    if not found:
        raise CommandFailed(f"{path} has no offsets for group {group_id!r}", exit_code=EXIT_USAGE)
    return found


_Cells = tuple[object, object, object, object]


def _csv_rows(path: Path, text: str) -> list[tuple[str, _Cells]]:
    """Return the lines as (group or None, topic, partition, offset)."""
    rows: list[tuple[str, _Cells]] = []
    reader = csv.reader(io.StringIO(text), skipinitialspace=True)
    for cells in reader:
        where = f"{path}, line {reader.line_num}"
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) == _COLUMNS:
            rows.append((where, (None, *cells)))  # type: ignore[arg-type]  # three cells
        elif len(cells) == _COLUMNS_WITH_GROUP:
            rows.append((where, tuple(cells)))  # type: ignore[arg-type]  # four cells
        else:
            raise _malformed(where, ",".join(cells))
    return rows


def _json_rows(path: Path, text: str) -> list[tuple[str, _Cells]]:
    """Return the objects as (group or None, topic, partition, offset)."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise CommandFailed(f"{path}: {error}", exit_code=EXIT_USAGE) from error
    outer = document.get("group") if isinstance(document, dict) else None
    items = document.get("offsets") if isinstance(document, dict) else document
    if not isinstance(items, list):
        raise _malformed(str(path), text[:80])
    rows: list[tuple[str, _Cells]] = []
    for number, item in enumerate(items, 1):
        where = f"{path}, item {number}"
        if not isinstance(item, dict) or not {"topic", "partition", "offset"} <= set(item):
            raise _malformed(where, json.dumps(item)[:80])
        group = item.get("group", outer)
        rows.append((where, (group, item["topic"], item["partition"], item["offset"])))
    return rows


def _malformed(where: str, found: str) -> CommandFailed:
    return CommandFailed(
        f"{where}: expected topic, partition and offset, found {found!r}",
        "A CSV file has lines of [group,]topic,partition,offset; a JSON file has a list of "
        "objects with these names",
        EXIT_USAGE,
    )


def offsets_text(moves: list[Move], *, as_json: bool) -> str:
    """Format planned offsets so that `read_offsets` can read them."""
    if as_json:
        rows = [
            {"topic": move.key.topic, "partition": move.key.partition, "offset": move.offset}
            for move in moves
        ]
        return json.dumps(rows, indent=1) + "\n"
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows((move.key.topic, move.key.partition, move.offset) for move in moves)
    return out.getvalue()
