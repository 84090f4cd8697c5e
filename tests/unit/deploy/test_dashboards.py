"""Grafana's dashboards, as far as they can be checked without Grafana."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.dashboards import DASHBOARDS, panels_of, queries_of
from tests.support.prometheus import families_in

_REFERENCES = {"${datasource}"}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_queries_read_families_that_there_are(name: str) -> None:
    for query in queries_of(DASHBOARDS[name]):
        assert families_in(query), query


@pytest.mark.parametrize("name", DASHBOARDS)
def test_labels_of_legends_are_labels_of_the_query(name: str) -> None:
    """A legend that names another label would stay empty."""
    for panel in panels_of(DASHBOARDS[name]):
        for target in panel.get("targets", ()):
            for part in target["legendFormat"].split("{{")[1:]:
                label = part.partition("}}")[0]
                known = {label for one in families_in(target["expr"]) for label in one.all_labels}
                assert label in known, (panel["title"], label)
                grouped = "by (" in target["expr"]
                assert not grouped or f"{label}" in target["expr"], (panel["title"], label)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_have_places_of_their_own_within_the_grid(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels_of(DASHBOARDS[name]):
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        cells = {
            (place["x"] + right, place["y"] + down)
            for right in range(place["w"])
            for down in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def test_dashboards_have_names_of_their_own_and_any_data_source() -> None:
    uids = [one["uid"] for one in DASHBOARDS.values()]
    assert len(set(uids)) == len(uids) == 5
    for dashboard in DASHBOARDS.values():
        ids = [panel["id"] for panel in panels_of(dashboard)]
        assert len(set(ids)) == len(ids)
        assert {source["uid"] for source in _sources(dashboard)} == _REFERENCES


def _sources(part: Any) -> list[dict[str, str]]:
    if isinstance(part, list):
        return [found for one in part for found in _sources(one)]
    if not isinstance(part, dict):
        return []
    own = [part["datasource"]] if "datasource" in part else []
    return own + [found for one in part.values() for found in _sources(one)]
