"""A real broker inside a test: `EmbeddedBroker`, and the pytest fixture `raylog_broker`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raylog.testing.embedded import EmbeddedBroker

__all__ = ["EmbeddedBroker"]


def __getattr__(name: str) -> object:
    """Import the broker when it is first asked for: the pytest plug-in needs only pytest."""
    if name == "EmbeddedBroker":
        from raylog.testing.embedded import EmbeddedBroker

        return EmbeddedBroker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
