"""Metrics that a broker sends somewhere itself, now and then (`metrics.reporters`)."""

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
"""Name -> module, whose function `make` makes the reporter."""
NAMES = tuple(_MODULES)


class Reporter(Protocol):
    """Takes what a scrape has told. It is called in a thread, one call at a time."""

    def report(self, samples: Sequence[Sample], now_ms: int) -> None:
        """Send samples with the values of all labels, as of a time since the epoch."""


def reporters(names: Sequence[str]) -> list[Reporter]:
    """The reporters of these names; raises InvalidConfig where one cannot work here."""
    made: list[Reporter] = []
    for name in names:
        try:
            made.append(import_module(_MODULES[name]).make())
        except (MissingExtra, InvalidConfig) as why:
            raise InvalidConfig(f"{REPORTERS}: {name} cannot be used: {why}") from why
    return made
