"""The seeds that find planted mistakes: reads and writes the tables of docs/RELIABILITY.md."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs" / "RELIABILITY.md"
_ROW = r"^(\| `{}`[^|]*\| )(\d+)( \|)"


def seeds() -> dict[str, int]:
    """By mistake, the seed in its row."""
    rows = re.finditer(_ROW.format(r"(?P<name>\w+)"), DOCS.read_text(), re.MULTILINE)
    return {row["name"]: int(row[3]) for row in rows}


def show(name: str, seed: int) -> None:
    """Write a seed into a mistake's row."""
    row = re.compile(_ROW.format(name), re.MULTILINE)
    text, count = row.subn(rf"\g<1>{seed}\g<3>", DOCS.read_text())
    assert count == 1, f"{name} has {count} rows in {DOCS}"
    DOCS.write_text(text)
