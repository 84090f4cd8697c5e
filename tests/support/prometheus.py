"""Debian's Prometheus and promtool, and the names of metric families in queries."""

from __future__ import annotations

import re
import shutil

import pytest

from raylog.actors.metrics.families.table import FAMILIES
from raylog.actors.metrics.family import Family, Kind

_NAME = re.compile(r"\braylog_\w+")
_OF_HISTOGRAM = ("_bucket", "_count", "_sum")


def promtool() -> str:
    """Return the path of promtool; skip the test if it is not installed."""
    return _tool("promtool")


def prometheus() -> str:
    """Return the path of prometheus; skip the test if it is not installed."""
    return _tool("prometheus")


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed: it is in Debian's package prometheus")
    return path


def families_in(query: str) -> list[Family]:
    """Return the metric families that a query reads; fail if one is not in the table."""
    return [_family(name) for name in _NAME.findall(query)]


def _family(name: str) -> Family:
    found = FAMILIES.get(name)
    if found is not None and found.kind is not Kind.HISTOGRAM:
        return found
    for end in _OF_HISTOGRAM:
        histogram = FAMILIES.get(name.removesuffix(end)) if name.endswith(end) else None
        if histogram is not None and histogram.kind is Kind.HISTOGRAM:
            return histogram
    raise AssertionError(f"no metric family is named {name}")
