"""Real brokers for tests: `EmbeddedBroker`, and the pytest fixture `raylog_broker`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.lazy import lazy_names

if TYPE_CHECKING:
    from raylog.testing.embedded import EmbeddedBroker

__all__ = ["EmbeddedBroker"]

__getattr__, __dir__ = lazy_names(__name__, {"raylog.testing.embedded": ("EmbeddedBroker",)})
