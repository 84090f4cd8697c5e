"""What a process leaves out of the collector's passes."""

from __future__ import annotations

import gc

_MANY_SLICES, _FREEZE_SLICES = 32, 16


def leave_out_code() -> None:
    """A process has loaded its code: the collector leaves that out from now on.

    It is 70,000 objects, at which each full pass would look for 50 ms, with the event loop held.
    """
    gc.collect()
    gc.freeze()


def stay(slices: int) -> None:
    """So many slices of a few hundred objects were made by now, and all will stay.

    Where they are many the collector leaves out what there is: else it would look at all of it
    again and again, for a tenth of a second each time with 100,000 partitions.
    """
    if slices >= _MANY_SLICES and slices % _FREEZE_SLICES == 0:
        gc.freeze()
