"""Quantiles of measured times, if there are enough samples."""

from __future__ import annotations

import math
from collections.abc import Collection

BEYOND_MIN = 5
"""The least samples beyond a quantile. With fewer it would be little but the maximum."""


def quantile(values: Collection[float], part: float) -> float | None:
    """The smallest value that this part of all does not exceed; None with too few samples."""
    if len(values) * (1 - part) < BEYOND_MIN - 1e-9:
        return None
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def quantile_text(value: float | None, decimals: int, scale: float = 1.0) -> str:
    """A quantile for a table, times `scale`; a dash if it is unknown."""
    return "-" if value is None else f"{scale * value:,.{decimals}f}"
