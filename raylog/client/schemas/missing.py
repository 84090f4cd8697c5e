"""What to say when a package of the extra `schemas` is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from raylog.client.errors import NotSupported


@contextmanager
def needed(package: str, extra: str = "schemas") -> Iterator[None]:
    """Around an import: a missing package is named together with the extra that brings it."""
    try:
        yield
    except ImportError as failure:
        if failure.name is None or failure.name.partition(".")[0] == "raylog":
            raise
        raise NotSupported(
            f"expected the package {package}, found none: pip install 'raylog[{extra}]'"
        ) from failure
