"""Keeps the memory of freed batches for new ones."""

from __future__ import annotations

_KEPT_BYTES = 4 * 1024 * 1024


def keep_freed_memory() -> None:
    """Make glibc's malloc keep the memory of freed batches instead of returning it at once.

    Otherwise the kernel clears the pages of each new batch, which takes longer than filling them.
    Freeing one large block is enough: glibc then serves blocks of up to that size from its heap,
    and keeps up to twice as much for reuse. Other mallocs are not affected.
    """
    bytearray(_KEPT_BYTES)
