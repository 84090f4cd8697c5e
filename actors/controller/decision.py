"""What a handler of the controller's machine returns: records to be written, and the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from raylog.actors.metadata.records import Record

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """Records, written and replayed together or not at all, and the answer once they are."""

    records: list[Record]
    response: R
    more: bool = False
    """Whether this is one step of many: the same is asked again when these records are replayed.

    The answer is that of the last step. Whatever is asked between two steps sees how far it got.
    """
