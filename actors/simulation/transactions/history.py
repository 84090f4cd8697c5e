"""What clients of transactions know: what they sent, what they were told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from raylog.actors.simulation.clients import Ledger
from raylog.wire.records import BatchHeader, Record

FIRST_VERSION = 1
OWN_EPOCHS = 2
"""Transaction version in which every transaction has an epoch of its own (KIP-890)."""


class Identity(NamedTuple):
    """An application that writes in transactions; several instances of it may be alive."""

    transactional_id: str
    version: int
    timeout_ms: int


@dataclass(slots=True, eq=False)
class Sent:
    """One transaction, as the instance that wrote it knows it."""

    label: str
    values: dict[str, list[bytes]] = field(default_factory=dict)
    """By partition."""
    asked_to_commit: bool = False
    told: bool | None = None
    """Whether it was committed; None: nobody has said."""


@dataclass(slots=True)
class StableLedger(Ledger):
    """What is known to clients of one partition that is written in transactions."""

    committed: dict[int, bytes] = field(default_factory=dict)
    """Records that read_committed showed, by offset."""
    passed: int = 0
    """How far the furthest reader of committed records has come."""
    stable: dict[int, int] = field(default_factory=dict)
    """High watermarks to last stable offsets, as they were told."""
    batches: list[tuple[BatchHeader, list[Record]]] = field(default_factory=list)
    """All of the log, read in the end."""


@dataclass(slots=True)
class History:
    """All transactions of one simulation."""

    sent: list[Sent] = field(default_factory=list)
    instances: dict[str, set[str]] = field(default_factory=dict)
    """Who has ever begun to use each transactional id."""

    def begin(self, label: str) -> Sent:
        """A transaction that begins."""
        sent = Sent(f"{label}/{len(self.sent)}")
        self.sent.append(sent)
        return sent

    def told(self, *, committed: bool) -> int:
        """How many their clients know to be committed, or aborted."""
        return sum(one.told is committed for one in self.sent)
