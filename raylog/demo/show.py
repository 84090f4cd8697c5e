"""Shows the result as a table, as blocks in the terminal and as a picture."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import TypeVar
from zoneinfo import ZoneInfo

from rich.table import Table

from raylog.demo.figures import Figures, Key

NEW_YORK = ZoneInfo("America/New_York")
HOURS = range(5, 24)
"""No flight departs at night."""
BLOCKS = " ▁▂▃▄▅▆▇█"
_EIGHTHS = 8
_FULL_MIN = 40.0
"""The mean delay of a full block or the last colour."""
_PLOT_COLUMNS = 73
_PLOT_ROWS = 6
_DATES_SHOWN = 10

Rows = Mapping[Key, Figures]
K = TypeVar("K")


@dataclass(slots=True)
class Total:
    """Sums over some rows."""

    airline: str = ""
    flights: int = 0
    cancelled: int = 0
    late: int = 0
    delay_min: int = 0
    rough_weather: int = 0

    def add(self, figures: Figures) -> None:
        """Add a row."""
        self.airline = figures["airline"] or ""
        self.flights += figures["flights"]
        self.cancelled += figures["cancelled"]
        self.late += figures["late"]
        self.delay_min += figures["delay_sum"] or 0
        self.rough_weather += figures["rough_weather"]

    @property
    def departed(self) -> int:
        """The number of flights that were not cancelled."""
        return self.flights - self.cancelled

    @property
    def mean_min(self) -> float:
        """The mean delay of flights that departed; 0 without any."""
        return self.delay_min / self.departed if self.departed else 0.0


def local_hour(hour: str) -> datetime:
    """Return the hour of a key in New York's local time."""
    return datetime.fromisoformat(hour).astimezone(NEW_YORK)


def totals(rows: Rows, group: Callable[[str, datetime], K]) -> dict[K, Total]:
    """Return the sums by group of carrier and hour."""
    found: dict[K, Total] = defaultdict(Total)
    for (carrier, hour), figures in rows.items():
        found[group(carrier, local_hour(hour))].add(figures)
    return dict(found)


def carriers_table(rows: Rows) -> Table:
    """Create a table with a line per carrier, most flights first, and delays by hour as blocks."""
    by_carrier = totals(rows, lambda carrier, _: carrier)
    by_hour = totals(rows, lambda carrier, at: (carrier, at.hour))
    title = f"{len(rows):,} rows of the result topic, summed up per carrier; delays in minutes"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.add_column("airline", no_wrap=True, width=23)
    for name in ("flights", "cancelled", "late", "rough", "delay"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(f"by hour {HOURS[0]}-{HOURS[-1]}", no_wrap=True, width=len(HOURS))
    for carrier, total in sorted(by_carrier.items(), key=lambda pair: -pair[1].flights):
        hours = [by_hour.get((carrier, hour), Total()).mean_min for hour in HOURS]
        table.add_row(
            f"{carrier} {_short(total.airline)}",
            f"{total.flights:,}",
            f"{total.cancelled:,}",
            f"{total.late / max(1, total.departed):.0%}",
            f"{total.rough_weather / total.flights:.0%}",
            f"{total.mean_min:.1f}",
            "".join(block(mean / _FULL_MIN) for mean in hours),
        )
    return table


def _short(airline: str) -> str:
    """Return a company's name without its legal form."""
    for kind in (" Inc.", " Co.", " Corporation"):
        airline = airline.removesuffix(kind)
    return airline


def block(share: float) -> str:
    """Return a block character of this height, where 1 is full; a space for 0 or less."""
    return BLOCKS[max(0, min(_EIGHTHS, round(share * _EIGHTHS)))]


def daily_means(rows: Rows) -> list[tuple[date, float]]:
    """Return the mean delay in minutes of each day in New York."""
    by_day = totals(rows, lambda _, at: at.date())
    return [(day, total.mean_min) for day, total in sorted(by_day.items())]


def plot_text(values: Sequence[float]) -> list[str]:
    """Plot a column per value, as lines of text. If there are too many, neighbours share one."""
    width = max(1, -(-len(values) // _PLOT_COLUMNS))
    groups = [values[at : at + width] for at in range(0, len(values), width)]
    heights = [max(0.0, sum(group) / len(group)) for group in groups]
    top = max(heights, default=0.0) or 1.0
    lines = []
    for row in reversed(range(_PLOT_ROWS)):
        label = f"{top * (row + 1) / _PLOT_ROWS:5.0f} │"
        lines.append(label + "".join(block(high / top * _PLOT_ROWS - row) for high in heights))
    return [*lines, "      └" + "─" * len(heights)]


def daily_plot(rows: Rows) -> str:
    """Plot the mean delay per day for the terminal."""
    means = daily_means(rows)
    title = f"mean delay in minutes per day, {means[0][0]} to {means[-1][0]}"
    return "\n".join([title, *plot_text([mean for _, mean in means])])


def draw(rows: Rows, path: Path) -> None:
    """Draw the picture: delays per day, and per carrier and hour of the day."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    means = daily_means(rows)
    by_hour = totals(rows, lambda carrier, at: (carrier, at.hour))
    by_carrier = totals(rows, lambda carrier, _: carrier)
    carriers = sorted(by_carrier, key=lambda one: -by_carrier[one].flights)
    figure = Figure(figsize=(11, 8), layout="constrained")
    FigureCanvasAgg(figure)
    days, grid = figure.subplots(2)
    days.bar([day for day, _ in means], [mean for _, mean in means], color="#36648b")
    ticks = [day for day, _ in means[:: max(1, len(means) // _DATES_SHOWN)]]
    days.set_xticks(ticks, [f"{day:%b %d}" for day in ticks])
    days.set(title="Departures from New York, 2013", ylabel="mean delay, min")
    cells = [
        [
            by_hour[carrier, hour].mean_min if (carrier, hour) in by_hour else float("nan")
            for hour in HOURS
        ]
        for carrier in carriers
    ]
    image = grid.imshow(cells, aspect="auto", cmap="YlOrRd", vmin=0, vmax=_FULL_MIN)
    grid.set_xticks(range(len(HOURS)), [str(hour) for hour in HOURS])
    grid.set_yticks(range(len(carriers)), [by_carrier[one].airline for one in carriers])
    grid.set(xlabel="hour of the scheduled departure, New York")
    figure.colorbar(image, ax=grid, label="mean delay, min")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
