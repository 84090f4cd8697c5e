"""Pauses Python's garbage collector."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """Disable the garbage collector while many objects are created that all stay.

    It would traverse them repeatedly. It is off in all threads meanwhile, so the context must be
    short and must not call application code.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
