"""How memory of batches is kept for the next ones."""

from __future__ import annotations

_KEPT_BYTES = 4 * 1024 * 1024


def keep_freed_memory() -> None:
    """Have glibc's malloc keep what freed batches took, instead of returning it at once.

    Otherwise the system clears the pages of each new batch, which takes longer than to fill them.
    The largest block that a process has freed is what malloc takes as usual from then on: it keeps
    up to twice as much for reuse. With another malloc this does nothing.
    """
    bytearray(_KEPT_BYTES)
