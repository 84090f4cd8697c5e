"""The controllers that have written the metadata, and the offsets at which their terms began.

Controller epochs alone cannot distinguish two histories: metadata that continues from an older copy
reuses the same epochs. So each controller draws a nonce and writes it with its epoch.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import NamedTuple

from raylog.actors.message import distinct

TERMS_MAX = 4_096
"""Maximum number of terms to keep. Each takes about 20 bytes in a snapshot. With a new controller
every hour they cover 170 days."""

NONCE_END = 1 << 48
"""Nonces are below this, and not 0, so that every JSON parser preserves them."""


@distinct
class Term(NamedTuple):
    """The term of one controller."""

    epoch: int
    nonce: int
    """Drawn by the controller; 0 in records of older builds."""
    start: int
    """Offset of its first record, or of one of its records if the first is unknown."""


class Terms(tuple[Term, ...]):
    """Consecutive terms, in order; beyond TERMS_MAX the oldest are dropped."""

    __slots__ = ()

    @property
    def is_cut(self) -> bool:
        """Whether there may have been earlier ones."""
        return len(self) >= TERMS_MAX

    @property
    def nonce(self) -> int:
        """Nonce of the last term; 0 if there is none."""
        return self[-1].nonce if self else 0

    def begun(self, epoch: int, nonce: int, start: int) -> Terms:
        """Return these terms with a new one added."""
        return Terms((*self, Term(epoch, nonce, start))[-TERMS_MAX:])

    def ended_at(self, offset: int) -> Terms:
        """Return the terms of a snapshot up to an offset.

        A snapshot of an older build has no terms. What looks like one term without a nonce,
        starting at 0, is then the last of many, and only its last record is known to belong to it.
        """
        if not offset:
            return Terms()
        if len(self) == 1 and not self[0].nonce:
            return Terms([self[0]._replace(start=offset - 1)])
        return self

    def at(self, offset: int) -> Term | None:
        """Return the term of the record at an offset; None if it is older than the known terms."""
        found = bisect_right(self, offset, key=attrgetter("start"))
        return self[found - 1] if found else None
