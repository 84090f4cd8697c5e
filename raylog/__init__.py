"""Raylog: a replicated log that speaks the Kafka wire protocol, as Ray actors.

Every import of a Raylog module runs this one first, so it loads the public names on first use.
"""

from typing import TYPE_CHECKING

from raylog.lazy import lazy_names

if TYPE_CHECKING:
    from raylog.client import (
        Admin,
        AsyncAdmin,
        AsyncClient,
        AsyncConsumer,
        AsyncProducer,
        BlockingClient,
        BlockingConsumer,
        BlockingProducer,
        Consumer,
        Producer,
    )
    from raylog.testing import EmbeddedBroker

__version__ = "0.1.0"
"""The only place that states the version: the build and the client's requests read it here."""

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncProducer",
    "BlockingClient",
    "BlockingConsumer",
    "BlockingProducer",
    "Consumer",
    "EmbeddedBroker",
    "Producer",
    "__version__",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "raylog.client": (
            "Admin",
            "AsyncAdmin",
            "AsyncClient",
            "AsyncConsumer",
            "AsyncProducer",
            "BlockingClient",
            "BlockingConsumer",
            "BlockingProducer",
            "Consumer",
            "Producer",
        ),
        "raylog.testing": ("EmbeddedBroker",),
    },
    "__version__",
)
