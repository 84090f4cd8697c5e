"""Flights as events; weather and airlines as table rows."""

import json
from pathlib import Path

from raylog.demo import flights

TEN_MS = 1_357_034_400_000
QUARTER_MS = 15 * 60_000


def test_flights_come_in_the_order_of_their_scheduled_departure(folder: Path) -> None:
    events = flights.load_flights(partitions=2)
    assert [event.timestamp_ms for event in events] == [TEN_MS] * 3 + [TEN_MS + QUARTER_MS]


def test_unknown_fields_are_null(folder: Path) -> None:
    cancelled, *_, flown = flights.load_flights(partitions=2)
    assert cancelled.key is None
    fields = json.loads(cancelled.value)
    assert fields["dep_time"] is None
    assert fields["tailnum"] is None
    assert fields["sched_dep_time"] == 500
    assert flown.key == b"N14228"
    assert json.loads(flown.value)["carrier"] == "UA"
    assert b"NaN" not in cancelled.value
    assert b"NA" not in cancelled.value


def test_flights_without_a_tail_number_are_spread(folder: Path) -> None:
    assert [event.partition for event in flights.load_flights(partitions=3)[:3]] == [0, 1, 2]
    assert len(flights.load_flights(partitions=3, limit=2)) == 2
    assert flights.load_flights(partitions=3, months=0) == []


def test_tables_have_keys(folder: Path) -> None:
    (weather,) = flights.load_weather(months=1)
    assert weather.key == b"EWR|2013-01-01T10:00:00Z"
    assert weather.timestamp_ms == TEN_MS
    assert json.loads(weather.value)["wind_gust"] is None
    assert json.loads(weather.value)["visib"] == 10.0
    assert [event.key for event in flights.load_airlines()] == [b"UA", b"AA"]


def test_days_are_those_of_utc() -> None:
    events = [flights.Event(0, ms, None, b"") for ms in (1, flights.DAY_MS - 1, flights.DAY_MS)]
    assert flights.days(events) == [events[:2], events[2:]]
    assert flights.days([]) == []


def test_the_last_event_closes_what_was_before(folder: Path) -> None:
    last = flights.load_flights(partitions=2)[-1]
    closing = flights.closing(last, 8 * flights.DAY_MS)
    assert closing.timestamp_ms == TEN_MS + 8 * flights.DAY_MS
    assert json.loads(closing.value) == {"time_hour": "2013-01-09T10:00:00+00:00", "minute": 0}


def test_the_data_is_found_without_importing_its_package() -> None:
    names = {path.name for path in flights.data_folder().iterdir()}
    assert {"flights.csv.zip", "weather.csv", "airlines.csv"} <= names
