"""Reporters that push a broker's metrics elsewhere (`metrics.reporters`)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Protocol

from raylog.actors.metrics.samples import Sample
from raylog.extras import MissingExtra
from raylog.wire.errors import InvalidConfig

REPORTERS = "metrics.reporters"
INTERVAL = "metrics.report.interval.ms"
_MODULES = {
    "opentelemetry": "raylog.actors.metrics.opentelemetry",
    "ray": "raylog.actors.runtime.ray_metrics",
}
"""Modules by name; their function `make` returns the reporter."""
NAMES = tuple(_MODULES)


class Reporter(Protocol):
    """Pushes scraped metrics. It is called in a thread, one call at a time."""

    def report(self, samples: Sequence[Sample], now_ms: int) -> None:
        """Send samples with the values of all labels, scraped at `now_ms` since the epoch."""


def reporters(names: Sequence[str]) -> list[Reporter]:
    """Return the reporters of these names; raises InvalidConfig if one cannot be used here."""
    made: list[Reporter] = []
    for name in names:
        try:
            made.append(import_module(_MODULES[name]).make())
        except (MissingExtra, InvalidConfig) as why:
            raise InvalidConfig(f"{REPORTERS}: {name} cannot be used: {why}") from why
    return made
