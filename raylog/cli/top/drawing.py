"""Renders the parts of the screen of `raylog top`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from raylog.actors.log_formatting import plain
from raylog.cli.top.tables import view
from raylog.cli.top.text import summary, verdict
from raylog.cli.top.troubles import Severity, clock, waiting

if TYPE_CHECKING:
    from textual.widgets import DataTable

    from raylog.cli.top.machine import Known
    from raylog.cli.top.tables import Choice, Table, View
    from raylog.cli.top.troubles import Trouble

_STYLES = {
    Severity.CRITICAL: "bold white on red",
    Severity.SERIOUS: "bold red",
    Severity.WARNING: "yellow",
    Severity.NOTE: "dim",
}
_SEVERITY_WIDTH = 8
_CELL_MARGINS = 6
"""Width of the margins of the two columns of problems, and of the scroll bar."""
_WIDTH_MIN = 20
_LINES_MAX = 2
"""Maximum lines of each text above a table; one for problems if space is short."""
_HEIGHT_SMALL = 8
_INDENT = " " * (_SEVERITY_WIDTH + 1)


def summary_text(known: Known, now_ms: float, bootstrap: str) -> Text:
    """Return the second line of the screen."""
    if known.at_ms is None:
        return Text(plain(f"asking {bootstrap}: {waiting(known, now_ms)}"))
    when = f"at {clock(known.unix_s)}: " if known.is_stale else ""
    return Text(plain(f"{when}{summary(known)}"))


def verdict_text(
    known: Known, found: Sequence[Trouble], most: int, width: int, height: int
) -> Text:
    """Return the number of problems and the worst of them, each with what to do.

    Lines are wrapped at `width`. At most `most` problems are shown, as far as they fit in `height`
    lines.
    """
    if known.at_ms is None and not found:
        return Text("")
    wrapped = _wrapped(verdict(list(found)), width, _LINES_MAX)
    text = Text(wrapped, style="bold" if found else "green")
    left = height - _lines(wrapped)
    lines_max = _LINES_MAX if height >= _HEIGHT_SMALL else 1
    shown = 0
    for one in found[:most]:
        what = f"{one.severity.name:<{_SEVERITY_WIDTH}} {plain(one.what)}"
        what = _wrapped(what, width, lines_max)
        do = _wrapped(f"{_INDENT}-> {plain(one.do)}", width, lines_max)
        more = 1 if len(found) > shown + 1 else 0
        if _lines(what) + _lines(do) + more > left:
            break
        text.append(f"\n{what}", style=_STYLES[one.severity])
        text.append(f"\n{do}")
        left -= _lines(what) + _lines(do)
        shown += 1
    if most and len(found) > shown:
        text.append(f"\n{len(found) - shown} more: press 1")
    return text


def _lines(text: str) -> int:
    return text.count("\n") + 1


def _wrapped(text: str, width: int, lines: int) -> str:
    return textwrap.fill(
        text, max(_WIDTH_MIN, width), subsequent_indent=_INDENT, max_lines=lines, placeholder=" ..."
    )


def in_full(found: Sequence[Trouble], name: str) -> list[str]:
    """Return the lines of one problem with all its items; `name` is its row key."""
    one = found[int(name)]
    lines = [f"{one.severity.name}: {one.what}", "", f"do:  {one.do}", f"see: {one.see}"]
    return [*lines, "", *one.items] if one.items else lines


def fill_problems(grid: DataTable[Text], found: Sequence[Trouble], width: int) -> str:
    """Fill the grid with all problems; return the note below it."""
    text_width = max(_WIDTH_MIN, width - _SEVERITY_WIDTH - _CELL_MARGINS)
    with _refilled(grid, ("", "what is wrong, and what to do"), (_SEVERITY_WIDTH, text_width)):
        for number, one in enumerate(found):
            what = Text(plain(one.what))
            what.append(f"\n-> {plain(one.do)}  ({one.see})", style="dim")
            severity = Text(one.severity.name, style=_STYLES[one.severity])
            grid.add_row(severity, what, height=None, key=str(number))
    return "Enter: all that a problem is about" if found else "2 to 6: brokers, topics and the rest"


def fill_table(grid: DataTable[Text], table: Table, known: Known, choice: Choice) -> str:
    """Fill the grid with the chosen rows; return the note below it."""
    shown = view(table, known, choice)
    order = choice.order or table.order
    mark = "\N{UPWARDS ARROW}" if choice.is_reversed else "\N{DOWNWARDS ARROW}"
    titles = tuple(f"{one.title}{mark if one.key == order else ''}" for one in shown.columns)
    texts = [
        [
            Text(plain(cell), justify="right" if one.is_number else "left")
            for one, cell in zip(shown.columns, cells, strict=True)
        ]
        for cells in shown.cells()
    ]
    widths = tuple(
        max(cell_len(title), *(row[at].cell_len for row in texts)) if texts else cell_len(title)
        for at, title in enumerate(titles)
    )
    with _refilled(grid, titles, widths):
        for row, cells in zip(shown.rows, texts, strict=True):
            grid.add_row(*cells, key=str(row[0]))
    return _note(table, choice, shown)


def _note(table: Table, choice: Choice, shown: View) -> str:
    """Return how many rows are shown, and of how many."""
    if not shown.total:
        return f"no {table.name}"
    parts = [f"{len(shown.rows):,} of {shown.total:,} {table.name}"]
    if choice.text:
        parts.append(f"{shown.matching:,} with {choice.text!r} (Esc: all)")
    if len(shown.rows) < shown.matching:
        parts.append("/ finds the others")
    return ", ".join(parts)


@contextmanager
def _refilled(
    grid: DataTable[Text], titles: tuple[str, ...], widths: tuple[int, ...]
) -> Iterator[None]:
    """Clear a grid for new rows; then restore its scroll offset and, if possible, its row."""
    place = grid.scroll_offset
    name = None
    if grid.is_valid_row_index(grid.cursor_row):
        name = grid.coordinate_to_cell_key(grid.cursor_coordinate).row_key.value
    row = grid.cursor_row
    had = [(str(one.label), one.width) for one in grid.columns.values()]
    same = had == list(zip(titles, widths, strict=True))
    grid.clear(columns=not same)
    if not same:
        for title, width in zip(titles, widths, strict=True):
            grid.add_column(Text(title), width=width)
    yield
    if not grid.row_count:
        return
    if name is not None and name in grid.rows:
        row = grid.get_row_index(name)
    grid.move_cursor(row=min(row, grid.row_count - 1), scroll=False)
    grid.scroll_to(place.x, place.y, animate=False)
