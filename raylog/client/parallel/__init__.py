"""Parallel processing: one consumer, a sliding window of cells, and workers that run a function.

Names are loaded when they are first used (PEP 562).
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raylog.client.parallel.consumer import ParallelConsumer, WorkerKind
    from raylog.client.parallel.effects import ProcessingFailed, Statistics
    from raylog.client.parallel.policy import DeadLetter, Order, RetryPolicy

_HOMES = {
    "consumer": ("ParallelConsumer", "WorkerKind"),
    "effects": ("ProcessingFailed", "Statistics"),
    "policy": ("DeadLetter", "Order", "RetryPolicy"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "DeadLetter",
    "Order",
    "ParallelConsumer",
    "ProcessingFailed",
    "RetryPolicy",
    "Statistics",
    "WorkerKind",
]


def __getattr__(name: str) -> object:
    """Load a public name's module when it is first used."""
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'raylog.client.parallel' has no attribute {name!r}")
    return getattr(import_module(f"raylog.client.parallel.{home}"), name)


def __dir__() -> list[str]:
    """Public names, loaded or not."""
    return sorted(__all__)
