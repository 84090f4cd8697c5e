"""Python's garbage collector, held off where nothing is garbage yet."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """Many objects are made that all stay: the collector would look at them over and over.

    It is off in all threads meanwhile: leave soon, and call nothing of an application's.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
