"""The result of a handler of the controller's machine: records to append, and the response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from raylog.actors.metadata.records import Record

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """Records to write and replay together, or not at all, and the response sent afterwards."""

    records: list[Record]
    response: R
    more: bool = False
    """Whether this is one of several steps: the handler is called again after these records have
    been replayed.

    The last step has the response. Requests handled between two steps see the progress so far.
    """
