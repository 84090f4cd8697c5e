"""CPU time of a piece of work, on a machine with other load."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

ATTEMPTS = 3


def cpu_s(work: Callable[[], object], enough_s: float) -> float:
    """Return the least CPU seconds of several attempts; stop once one takes `enough_s` or less.

    Other load on the machine also increases CPU time. The garbage collector is off meanwhile: a
    collection would scan all objects that the tests of this process have made.
    """
    least_s = float("inf")
    for _ in range(ATTEMPTS):
        gc.collect()
        gc.disable()
        try:
            began_s = time.thread_time()
            work()
            least_s = min(least_s, time.thread_time() - began_s)
        finally:
            gc.enable()
        if least_s <= enough_s:
            break
    return least_s
