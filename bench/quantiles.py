"""Quantiles of measured times, where there are samples enough to know them."""

from __future__ import annotations

import math
from collections.abc import Collection

BEYOND_MIN = 5
"""So many samples lie beyond a quantile at least: of fewer it would be little but the maximum."""


def quantile(values: Collection[float], part: float) -> float | None:
    """The smallest value that so large a part of all does not exceed; None of too few samples."""
    if len(values) * (1 - part) < BEYOND_MIN - 1e-9:
        return None
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def told(value: float | None, decimals: int, scale: float = 1.0) -> str:
    """A quantile in a table, times `scale`; a dash where it is not known."""
    return "-" if value is None else f"{scale * value:,.{decimals}f}"
