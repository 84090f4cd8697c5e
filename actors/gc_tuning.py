"""Excludes long-lived objects from garbage collection."""

from __future__ import annotations

import gc

_MANY_SLICES, _FREEZE_SLICES = 32, 16


def leave_out_code() -> None:
    """Exclude the code that is loaded by now from garbage collection.

    It is some 70,000 objects, for which each full collection would stop the event loop for 50 ms.
    """
    gc.collect()
    gc.freeze()


def stay(slices: int) -> None:
    """Note that `slices` slices of a few hundred objects exist by now and will stay.

    Once there are many, the objects are excluded from garbage collection: with 100,000 partitions
    each full collection would otherwise take a tenth of a second.
    """
    if slices >= _MANY_SLICES and slices % _FREEZE_SLICES == 0:
        gc.freeze()
