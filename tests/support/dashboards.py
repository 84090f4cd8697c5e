"""The dashboards in deploy/grafana, and their queries as Grafana sends them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_DIRECTORY = Path(__file__).parents[2] / "deploy/grafana"
DASHBOARDS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text()) for path in sorted(_DIRECTORY.glob("*.json"))
}


def panels_of(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all panels, including rows."""
    return list(dashboard["panels"])


def queries_of(dashboard: dict[str, Any]) -> Iterator[str]:
    """Yield the queries of panels, variables and annotations, unexpanded."""
    for panel in panels_of(dashboard):
        for target in panel.get("targets", ()):
            yield target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]
    for annotation in dashboard["annotations"]["list"]:
        yield annotation["expr"]


def filled_in(dashboard: dict[str, Any], query: str, interval: str) -> str:
    """Return a query with all variables set to `All`, for a scrape interval."""
    for variable in dashboard["templating"]["list"]:
        query = query.replace(f"${variable['name']}", variable.get("allValue", ""))
    return query.replace("$__rate_interval", interval)
