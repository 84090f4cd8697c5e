"""What transactional clients know: what they sent, and what they were told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from raylog.simulation.clients import Ledger
from raylog.wire.records import BatchHeader, Record

FIRST_VERSION = 1
OWN_EPOCHS = 2
"""The transaction version in which every transaction has its own epoch (KIP-890)."""


class Identity(NamedTuple):
    """A transactional application. Several of its instances may be alive."""

    transactional_id: str
    version: int
    timeout_ms: int


@dataclass(slots=True, eq=False)
class Sent:
    """One transaction, as the writing instance knows it."""

    label: str
    values: dict[str, list[bytes]] = field(default_factory=dict)
    """The values by partition."""
    asked_to_commit: bool = False
    outcome: bool | None = None
    """Whether it was committed; None if the client does not know."""


@dataclass(slots=True)
class StableLedger(Ledger):
    """What clients know about one partition with transactional records."""

    committed: dict[int, bytes] = field(default_factory=dict)
    """Records that read_committed returned, by offset."""
    passed: int = 0
    """The furthest position of a read_committed reader."""
    stable: dict[int, int] = field(default_factory=dict)
    """Last stable offsets by high watermark, as they were told."""
    batches: list[tuple[BatchHeader, list[Record]]] = field(default_factory=list)
    """The whole log, read at the end."""


@dataclass(slots=True)
class History:
    """All transactions of one simulation."""

    sent: list[Sent] = field(default_factory=list)
    instances: dict[str, set[str]] = field(default_factory=dict)
    """By transactional id, the instances that ever began to use it."""

    def begin(self, label: str) -> Sent:
        """Begin a transaction."""
        sent = Sent(f"{label}/{len(self.sent)}")
        self.sent.append(sent)
        return sent

    def count(self, *, committed: bool) -> int:
        """The number of transactions that clients know to be committed, or aborted."""
        return sum(one.outcome is committed for one in self.sent)
