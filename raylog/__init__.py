"""Raylog: a replicated log that speaks the Kafka wire protocol, as Ray actors.

Every import of a part of Raylog runs this module first, so it loads nothing before it is asked.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raylog.client import (
        AsyncClient,
        AsyncConsumer,
        AsyncProducer,
        BlockingClient,
        BlockingConsumer,
        BlockingProducer,
    )
    from raylog.testing import EmbeddedBroker

__version__ = "0.1.0"
"""The only place that states the version: the build and the client's requests read it here."""

__all__ = [
    "AsyncClient",
    "AsyncConsumer",
    "AsyncProducer",
    "BlockingClient",
    "BlockingConsumer",
    "BlockingProducer",
    "EmbeddedBroker",
    "__version__",
]


def __getattr__(name: str) -> object:
    """Load a public name's home when it is first used (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module 'raylog' has no attribute {name!r}")
    home = "raylog.testing" if name == "EmbeddedBroker" else "raylog.client"
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    """Public names, loaded or not."""
    return sorted(__all__)
