"""A broker's settings for transactions, parsed once."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.actors.config import setting


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The broker's transaction.* settings; times in ms."""

    timeout_max_ms: int = setting("transaction.max.timeout.ms")
    """Longest timeout that a producer may request."""
    two_phase_commit: bool = setting("transaction.two.phase.commit.enable")
    """Whether producers may take part in two-phase commits of an external system (KIP-939)."""
    expiration_ms: int = setting("transactional.id.expiration.ms")
    """A transactional id that is idle for this long is forgotten."""
    abort_interval_ms: int = setting("transaction.abort.timed.out.transaction.cleanup.interval.ms")
    """How often transactions are checked for their timeout."""
    expiry_interval_ms: int = setting("transaction.remove.expired.transaction.cleanup.interval.ms")
    """How often transactional ids are checked for expiry."""
