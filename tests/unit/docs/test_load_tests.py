"""The page of scenarios is that of the models."""

from __future__ import annotations

from pathlib import Path

from raylog.loadtest.scenario_page import PAGES, markdown

PAGE = Path(__file__).parents[3] / "docs" / "load-tests" / "scenarios.md"


def test_the_page_of_scenarios() -> None:
    told = "write it again: python -m raylog.loadtest.scenario_page > docs/load-tests/scenarios.md"
    assert PAGE.read_text() == markdown(), told


def test_every_field_is_told_of() -> None:
    for _, _, models in PAGES:
        for model in models:
            for name, field in model.model_fields.items():
                assert field.description or name in ("kind", "distribution"), f"{model}.{name}"
