"""The page of scenarios matches the models."""

from __future__ import annotations

from pathlib import Path

from raylog.loadtest.operations import BY_KIND
from raylog.loadtest.scenario_page import HEAD, PAGES, markdown

PAGE = Path(__file__).parents[3] / "docs" / "load-tests" / "scenarios.md"


def test_the_page_of_scenarios() -> None:
    advice = (
        "write it again: python -m raylog.loadtest.scenario_page > docs/load-tests/scenarios.md"
    )
    assert PAGE.read_text() == markdown(), advice


def test_defaults_of_omitted_fields_are_documented() -> None:
    page = markdown()
    assert "| `percentile` | none | Percentile of the operation's latency. One of `p50_ms`," in page
    assert "| `rate` | required | Records/s" in page
    assert "| `replication` | 3, or fewer brokers |" in page
    assert "| |" not in page.replace("|  |", "| |")


def test_every_operation_is_reported() -> None:
    operations = {one for performed in BY_KIND.values() for one in performed}
    assert [one for one in sorted(operations) if f"`{one}`" not in HEAD] == []


def test_every_field_is_reported() -> None:
    for _, _, models in PAGES:
        for model in models:
            for name, field in model.model_fields.items():
                assert field.description or name in ("kind", "distribution"), f"{model}.{name}"
