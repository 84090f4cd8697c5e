"""Features of this build, as ApiVersions announces them (KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TRANSACTION_VERSION = "transaction.version"
"""The feature that says which transactions the cluster can do."""
ELIGIBLE_LEADERS = "eligible.leader.replicas.version"
GROUP_VERSION = "group.version"
"""The feature that lets consumers use the protocol of KIP-848."""


@dataclass(frozen=True, slots=True)
class SupportedFeature:
    """Levels that this build can work at, both inclusive."""

    low: int
    high: int
    unset: int = 0
    """The level where the metadata says nothing: builds wrote it that did not know the feature."""


SUPPORTED: dict[str, SupportedFeature] = {
    # Kafka 4.3's metadata level. Nothing here depends on it; clients and tools expect it.
    "metadata.version": SupportedFeature(7, 30),
    # KIP-966. At level 0 the last replica in sync stays in sync whatever becomes of it.
    ELIGIBLE_LEADERS: SupportedFeature(0, 1),
    # KIP-890. At level 2 each transaction has an epoch of its own, and leaders add partitions for
    # producers; below, producers add them, and keep their epoch.
    TRANSACTION_VERSION: SupportedFeature(0, 2),
    # KIP-848. At level 0 the requests of its consumers are refused. Older builds served it always.
    GROUP_VERSION: SupportedFeature(0, 1, unset=1),
    # KIP-853: voters can be added and removed, as they always could.
    "kraft.version": SupportedFeature(1, 1, unset=1),
}


def level_of(name: str, known: Mapping[str, int]) -> int:
    """The level of a feature, where the metadata tells those that are `known`."""
    level = known.get(name)
    if level is not None:
        return level
    feature = SUPPORTED.get(name)
    return 0 if feature is None else feature.unset


def finalized(known: Mapping[str, int]) -> dict[str, int]:
    """All features that are in use, with their levels."""
    levels = {name: level_of(name, known) for name in SUPPORTED} | dict(known)
    return {name: level for name, level in levels.items() if level}
