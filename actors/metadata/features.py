"""Features of this build, as ApiVersions announces them (KIP-584)."""

from __future__ import annotations

from dataclasses import dataclass

TRANSACTION_VERSION = "transaction.version"
"""The feature that says which transactions the cluster can do."""
ELIGIBLE_LEADERS = "eligible.leader.replicas.version"


@dataclass(frozen=True, slots=True)
class SupportedFeature:
    """Levels that this build can work at, both inclusive."""

    low: int
    high: int


SUPPORTED: dict[str, SupportedFeature] = {
    # Kafka 4.3's metadata level. Nothing here depends on it; clients and tools expect it.
    "metadata.version": SupportedFeature(7, 30),
    # KIP-966. At level 0 the last replica in sync stays in sync whatever becomes of it.
    ELIGIBLE_LEADERS: SupportedFeature(0, 1),
    # KIP-890. At level 2 each transaction has an epoch of its own, and leaders add partitions for
    # producers; below, producers add them, and keep their epoch.
    TRANSACTION_VERSION: SupportedFeature(0, 2),
}
