"""Totals, blocks and plots."""

from datetime import date
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from raylog.demo import show
from raylog.demo.figures import Figures, Key

TEN, NEXT_DAY = "2013-01-01T10:00:00Z", "2013-01-02T10:00:00Z"


def row(flights: int, cancelled: int, delay_sum: int | None) -> Figures:
    return {
        "airline": "United",
        "flights": flights,
        "cancelled": cancelled,
        "late": 1,
        "delay_sum": delay_sum,
        "rough_weather": 0,
    }


ROWS: dict[Key, Figures] = {
    ("UA", TEN): row(4, 2, 20),
    ("UA", NEXT_DAY): row(3, 0, 60),
    ("AA", NEXT_DAY): row(1, 1, None),
}


def test_totals_are_weighted_by_what_departed() -> None:
    by_carrier = show.totals(ROWS, lambda carrier, _: carrier)
    assert (by_carrier["UA"].flights, by_carrier["UA"].departed) == (7, 5)
    assert by_carrier["UA"].mean_min == 16.0
    assert by_carrier["AA"].mean_min == 0.0


def test_hours_are_those_of_new_york() -> None:
    assert show.local_hour(TEN).hour == 5
    assert show.local_hour("2013-07-01T10:00:00Z").hour == 6
    assert show.daily_means(ROWS) == [(date(2013, 1, 1), 10.0), (date(2013, 1, 2), 20.0)]


@pytest.mark.parametrize(("share", "char"), [(-1, " "), (0, " "), (0.5, "▄"), (1, "█"), (9, "█")])
def test_a_block_is_as_high_as_its_share(share: float, char: str) -> None:
    assert show.block(share) == char


def test_the_highest_column_reaches_the_top() -> None:
    top, *_, bottom, axis = show.plot_text([0.0, 6.0, 12.0])
    assert top == "   12 │  █"
    assert bottom == "    2 │ ██"
    assert axis == "      └───"


def test_many_values_share_columns() -> None:
    assert {len(line) for line in show.plot_text([1.0] * 365)} == {7 + 73}
    assert show.plot_text([])[-1] == "      └"


def test_all_is_shown(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    said = StringIO()
    screen = Console(file=said, width=80)
    screen.print(show.carriers_table(ROWS))
    screen.print(show.daily_plot(ROWS))
    assert "UA United" in said.getvalue()
    assert "2013-01-01 to 2013-01-02" in said.getvalue()
    assert "…" not in said.getvalue()
    show.draw(ROWS, tmp_path / "new" / "delays.png")
    assert (tmp_path / "new" / "delays.png").read_bytes().startswith(b"\x89PNG")
