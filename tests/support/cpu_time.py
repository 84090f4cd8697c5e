"""How much of the processor something takes, on a machine that others share."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

ATTEMPTS = 3


def cpu_s(work: Callable[[], object], enough_s: float) -> float:
    """CPU seconds of this thread: the least of some attempts, fewer once one takes `enough_s`.

    Other work on the machine makes CPU time longer as well, and a pass of the garbage collector
    looks at all that the tests of this process have made.
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
