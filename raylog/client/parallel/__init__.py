"""Parallel processing: one consumer, a sliding window of cells, and workers that run a function.

Public names are loaded on first use (PEP 562).
"""

from typing import TYPE_CHECKING

from raylog.lazy import lazy_names

if TYPE_CHECKING:
    from raylog.client.parallel.consumer import ParallelConsumer, WorkerKind
    from raylog.client.parallel.effects import ProcessingFailed, Statistics
    from raylog.client.parallel.policy import DeadLetter, Order, RetryPolicy

__all__ = [
    "DeadLetter",
    "Order",
    "ParallelConsumer",
    "ProcessingFailed",
    "RetryPolicy",
    "Statistics",
    "WorkerKind",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "raylog.client.parallel.consumer": ("ParallelConsumer", "WorkerKind"),
        "raylog.client.parallel.effects": ("ProcessingFailed", "Statistics"),
        "raylog.client.parallel.policy": ("DeadLetter", "Order", "RetryPolicy"),
    },
)
