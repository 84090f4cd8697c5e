"""The figures of pandas, against small cases counted by hand, and the comparison."""

import json
from typing import Any

import pytest

from raylog.demo.figures import Figures, Key, compare, decode, delays

pd = pytest.importorskip("pandas")

TEN, ELEVEN = "2013-01-01T10:00:00Z", "2013-01-01T11:00:00Z"


def flight(carrier: str, origin: str, hour: str, delay: int | None) -> dict[str, Any]:
    departed = None if delay is None else 500 + delay
    return {
        "carrier": carrier,
        "origin": origin,
        "time_hour": hour,
        "flight": 1,
        "dep_time": departed,
        "dep_delay": delay,
    }


def weather(origin: str, hour: str, visib: float, wind: float, precip: float) -> dict[str, Any]:
    return {
        "origin": origin,
        "time_hour": hour,
        "visib": visib,
        "wind_speed": wind,
        "precip": precip,
    }


AIRLINES = [{"carrier": "UA", "name": "United"}, {"carrier": "AA", "name": "American"}]
FLIGHTS = [
    flight("UA", "EWR", TEN, 15),
    flight("UA", "EWR", TEN, -2),
    flight("UA", "JFK", TEN, None),
    flight("UA", "EWR", ELEVEN, None),
    flight("AA", "LGA", TEN, 14),
]
WEATHER = [
    weather("EWR", TEN, 10.0, 3.0, 0.0),
    weather("EWR", TEN, 2.5, 3.0, 0.0),
    weather("JFK", TEN, 3.0, 25.0, 0.0),
    weather("EWR", ELEVEN, 9.0, 24.0, 0.01),
]


@pytest.fixture
def wanted() -> dict[Key, Figures]:
    return delays(pd.DataFrame(FLIGHTS), pd.DataFrame(WEATHER), pd.DataFrame(AIRLINES))


def test_flights_are_counted_by_carrier_and_hour(wanted: dict[Key, Figures]) -> None:
    """The newest row of a table counts; hours without weather count as fair."""
    assert wanted == {
        ("UA", TEN): {
            "airline": "United",
            "flights": 3,
            "cancelled": 1,
            "late": 1,
            "delay_sum": 13,
            "delay_mean": 6.5,
            "delay_max": 15,
            "rough_weather": 3,
            "visibility_min": 2.5,
        },
        ("UA", ELEVEN): {
            "airline": "United",
            "flights": 1,
            "cancelled": 1,
            "late": 0,
            "delay_sum": None,
            "delay_mean": None,
            "delay_max": None,
            "rough_weather": 1,
            "visibility_min": 9.0,
        },
        ("AA", TEN): {
            "airline": "American",
            "flights": 1,
            "cancelled": 0,
            "late": 0,
            "delay_sum": 14,
            "delay_mean": 14.0,
            "delay_max": 14,
            "rough_weather": 0,
            "visibility_min": None,
        },
    }


def value(key: Key, figures: Figures) -> bytes:
    return json.dumps({"carrier": key[0], "hour": key[1], **figures}).encode()


def test_a_record_is_a_key_and_figures() -> None:
    figures = {"flights": 3}
    assert decode(value(("UA", TEN), figures)) == (("UA", TEN), figures)


def test_equal_rows_agree(wanted: dict[Key, Figures]) -> None:
    found = compare([value(key, figures) for key, figures in wanted.items()], wanted)
    assert found.agrees
    assert found.equal == 3


def test_each_difference_is_reported(wanted: dict[Key, Figures]) -> None:
    ten, eleven, other = ("UA", TEN), ("UA", ELEVEN), ("AA", TEN)
    found = compare(
        [
            value(ten, wanted[ten]),
            value(ten, wanted[ten]),
            value(other, wanted[other] | {"late": 1}),
            value(("ZZ", TEN), wanted[ten]),
        ],
        wanted,
    )
    assert not found.agrees
    assert found.equal == 1
    assert [line.split(": ")[0] for line in found.differences] == [
        f"UA at {TEN}",
        f"AA at {TEN}",
        f"ZZ at {TEN}",
        f"UA at {ELEVEN}",
    ]
    again, changed, unknown, missing = found.differences
    assert "comes again" in again
    assert "late is 1, pandas says 0" in changed
    assert "no such row" in unknown
    assert "is missing" in missing
    assert eleven in wanted


def test_a_figure_that_is_left_out_is_a_difference() -> None:
    found = compare([value(("UA", TEN), {})], {("UA", TEN): {"delay_max": None}})
    assert not found.agrees
