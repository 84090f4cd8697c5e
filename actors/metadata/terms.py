"""Which controllers have written metadata, and from which offset on each.

Controller epochs alone do not tell two histories apart: metadata that goes on from an older copy
has the same epochs once more. So each controller draws a nonce, and writes it with its epoch.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import NamedTuple

from raylog.actors.plain import distinct

TERMS_MAX = 4_096
"""Terms that are kept; about 20 bytes each in a snapshot. With a new controller every hour they
reach back for 170 days."""

NONCE_END = 1 << 48
"""Nonces are below, and not 0: any program that reads JSON keeps them as they are."""


@distinct
class Term(NamedTuple):
    """The time of one controller."""

    epoch: int
    nonce: int
    """Drawn by the controller; 0 in records of builds that drew none."""
    start: int
    """Offset of its first record, or of one of its records if the first is not known."""


class Terms(tuple[Term, ...]):
    """Terms in order, without a gap; where there are more than TERMS_MAX the first are dropped."""

    __slots__ = ()

    @property
    def is_cut(self) -> bool:
        """Whether there may have been earlier ones."""
        return len(self) >= TERMS_MAX

    @property
    def nonce(self) -> int:
        """Of the last term; 0 if there is none."""
        return self[-1].nonce if self else 0

    def begun(self, epoch: int, nonce: int, start: int) -> Terms:
        """These and a new one."""
        return Terms((*self, Term(epoch, nonce, start))[-TERMS_MAX:])

    def ended_at(self, offset: int) -> Terms:
        """The terms of a snapshot up to an offset.

        One of an older build has no terms: what looks like a term without a nonce, from the
        beginning on, is then the last of many, and only its last record is known to be its own.
        """
        if not offset:
            return Terms()
        if len(self) == 1 and not self[0].nonce:
            return Terms([self[0]._replace(start=offset - 1)])
        return self

    def at(self, offset: int) -> Term | None:
        """The term of the record at an offset; None if it is older than what is known."""
        found = bisect_right(self, offset, key=attrgetter("start"))
        return self[found - 1] if found else None
