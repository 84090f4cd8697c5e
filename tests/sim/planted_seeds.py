"""Which seed finds a planted mistake: the tables of docs/RELIABILITY.md, read and written."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs" / "RELIABILITY.md"
_ROW = r"^(\| `{}`[^|]*\| )(\d+)( \|)"


def seeds() -> dict[str, int]:
    """Mistake to the seed that its row shows."""
    rows = re.finditer(_ROW.format(r"(?P<name>\w+)"), DOCS.read_text(), re.MULTILINE)
    return {row["name"]: int(row[3]) for row in rows}


def show(name: str, seed: int) -> None:
    """Have a mistake's row show a seed."""
    row = re.compile(_ROW.format(name), re.MULTILINE)
    text, count = row.subn(rf"\g<1>{seed}\g<3>", DOCS.read_text())
    assert count == 1, f"{name} has {count} rows in {DOCS}"
    DOCS.write_text(text)
