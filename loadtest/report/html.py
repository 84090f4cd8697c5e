"""The report of one or several runs as one HTML file that needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from raylog.loadtest.results import Result


def write_html(results: Sequence[Result], path: Path) -> None:
    """Write the report. Several results of one scenario are compared, by their targets."""
    raise NotImplementedError
