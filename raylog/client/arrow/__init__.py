"""Whole columns in and out: Arrow tables to record batches and back, no object for a record.

`pyarrow` and `numpy` are of the extra `arrow`; modules here are imported when a table is asked for.
"""

from __future__ import annotations

from importlib import import_module

from raylog.client.errors import MissingExtra

TABLE_BYTES = 16 * 1024 * 1024
"""Of a table's records, unless a caller wants others; exceeded by less than one batch."""
_NEEDED = ("numpy", "pyarrow")


def require_arrow() -> None:
    """Raise MissingExtra unless what tables are made of is installed."""
    for name in _NEEDED:
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            raise MissingExtra(
                f"tables need {name}, which is not installed: pip install 'raylog[arrow]'"
            ) from error
