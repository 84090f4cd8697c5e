"""The page of metrics matches the table."""

from pathlib import Path

from raylog.actors.metrics.page import render_markdown

PAGE = Path(__file__).parents[4] / "docs/metrics.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == render_markdown(), (
        "python -m raylog.actors.metrics.page > docs/metrics.md"
    )


def test_no_text_breaks_the_tables() -> None:
    rows = [line for line in render_markdown().splitlines() if line.startswith("| `raylog_")]
    assert len(rows) > 80
    assert {line.count(" | ") for line in rows} == {3}
