"""Delays per carrier and hour, computed by pandas and compared with the result topic."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

LATE_MIN = 15
"""A departure is late if it is this many minutes after its time."""
LOW_VISIBILITY_MILES = 3.0
STRONG_WIND_MPH = 25.0

Key = tuple[str, str]
"""Carrier and hour, in UTC as ISO 8601."""
Figures = dict[str, Any]
"""Figures of one carrier and hour by name; None if unknown."""


def expected(folder: Path, months: int) -> dict[Key, Figures]:
    """Compute the figures of the first months of 2013 with pandas, from the package's files."""
    import pandas as pd

    flights = pd.read_csv(folder / "flights.csv.zip")
    weather = pd.read_csv(folder / "weather.csv", float_precision="round_trip")
    airlines = pd.read_csv(folder / "airlines.csv")
    return delays(flights[flights.month <= months], weather, airlines)


def delays(
    flights: "pd.DataFrame", weather: "pd.DataFrame", airlines: "pd.DataFrame"
) -> dict[Key, Figures]:
    """Compute the pipeline's figures without the pipeline."""
    weather = weather.drop_duplicates(["origin", "time_hour"], keep="last")
    rough = (
        (weather.visib < LOW_VISIBILITY_MILES)
        | (weather.wind_speed >= STRONG_WIND_MPH)
        | (weather.precip > 0)
    )
    weather = weather[["origin", "time_hour", "visib"]].assign(rough=rough)
    joined = flights.merge(weather, "left", on=["origin", "time_hour"]).merge(
        airlines, "left", on="carrier"
    )
    joined = joined.assign(
        late=joined.dep_delay >= LATE_MIN,
        cancelled=joined.dep_time.isna(),
        rough=joined.rough.eq(other=True),
    )
    grouped = joined.groupby(["carrier", "time_hour"]).agg(
        airline=("name", "first"),
        flights=("flight", "size"),
        cancelled=("cancelled", "sum"),
        late=("late", "sum"),
        delay_sum=("dep_delay", "sum"),
        delay_mean=("dep_delay", "mean"),
        delay_max=("dep_delay", "max"),
        rough_weather=("rough", "sum"),
        visibility_min=("visib", "min"),
    )
    return {
        (carrier, hour): _plain(figures)
        for (carrier, hour), figures in zip(grouped.index, grouped.to_dict("records"), strict=True)
    }


def _plain(figures: Figures) -> Figures:
    """Convert values to JSON's: no NaN, and None for a sum without delays."""
    plain = {name: None if value != value else value for name, value in figures.items()}
    if plain["delay_mean"] is None:
        plain["delay_sum"] = None
    return plain


def decode(value: bytes) -> tuple[Key, Figures]:
    """Decode a record of the result topic."""
    figures = json.loads(value)
    return (figures.pop("carrier"), figures.pop("hour")), figures


@dataclass(slots=True)
class Comparison:
    """The result topic compared with pandas."""

    equal: int = 0
    """The number of equal rows."""
    differences: list[str] = field(default_factory=list)
    """The differences, one line each."""

    @property
    def agrees(self) -> bool:
        """Whether every row is there once and equal."""
        return not self.differences


def compare(values: Iterable[bytes], wanted: dict[Key, Figures]) -> Comparison:
    """Compare every record of the topic. A duplicate row is a difference, too."""
    comparison = Comparison()
    seen: set[Key] = set()
    for value in values:
        key, figures = decode(value)
        at = f"{key[0]} at {key[1]}"
        if key in seen:
            comparison.differences.append(f"{at}: comes again, {figures}")
        elif key not in wanted:
            comparison.differences.append(f"{at}: pandas has no such row")
        elif figures != wanted[key]:
            comparison.differences.append(f"{at}: {_unequal(figures, wanted[key])}")
        else:
            comparison.equal += 1
        seen.add(key)
    missing = sorted(wanted.keys() - seen)
    comparison.differences += [f"{carrier} at {hour}: is missing" for carrier, hour in missing]
    return comparison


def _unequal(found: Figures, wanted: Figures) -> str:
    names = sorted(found.keys() | wanted.keys())
    return "; ".join(
        f"{name} is {found.get(name)}, pandas says {wanted.get(name)}"
        for name in names
        if found.get(name) != wanted.get(name) or (name in found) != (name in wanted)
    )
