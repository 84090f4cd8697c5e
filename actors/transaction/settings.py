"""What a broker's configuration says about transactions, read once."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.actors.config import BrokerSettings


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The broker's transaction.* keys; times in ms."""

    timeout_max_ms: int = 900_000
    """Longest timeout that a producer may ask for."""
    two_phase_commit: bool = False
    """Whether producers may take part in somebody else's two-phase commit (KIP-939)."""
    expiration_ms: int = 604_800_000
    """Silence after which a transactional id is forgotten."""
    abort_interval_ms: int = 10_000
    """Between two looks for transactions past their timeout."""
    expiry_interval_ms: int = 3_600_000
    """Between two looks for expired transactional ids."""


def transaction_settings(settings: BrokerSettings) -> TransactionSettings:
    """The settings of a broker that was started with these."""
    number = settings.number
    return TransactionSettings(
        timeout_max_ms=number("transaction.max.timeout.ms"),
        two_phase_commit=settings.flag("transaction.two.phase.commit.enable"),
        expiration_ms=number("transactional.id.expiration.ms"),
        abort_interval_ms=number("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
        expiry_interval_ms=number("transaction.remove.expired.transaction.cleanup.interval.ms"),
    )
