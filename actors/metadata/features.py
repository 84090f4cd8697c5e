"""Features of this build, as in ApiVersions (KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TRANSACTION_VERSION = "transaction.version"
"""The feature that sets the version of transactions."""
ELIGIBLE_LEADERS = "eligible.leader.replicas.version"
GROUP_VERSION = "group.version"
"""The feature that lets consumers use the protocol of KIP-848."""


@dataclass(frozen=True, slots=True)
class SupportedFeature:
    """The levels that this build supports, both inclusive."""

    low: int
    high: int
    unset: int = 0
    """The level if the metadata has none, because builds without the feature wrote it."""


SUPPORTED: dict[str, SupportedFeature] = {
    # Kafka 4.3's metadata level. Nothing here depends on it, but clients and tools expect it.
    "metadata.version": SupportedFeature(7, 30),
    # KIP-966. At level 0 the last in-sync replica stays in sync, whatever happens to it.
    ELIGIBLE_LEADERS: SupportedFeature(0, 1),
    # KIP-890. At level 2 each transaction has its own epoch, and leaders add partitions for
    # producers. Below, producers add them and keep their epoch.
    TRANSACTION_VERSION: SupportedFeature(0, 2),
    # KIP-848. At level 0, requests of its consumers are refused. Older builds always served them.
    GROUP_VERSION: SupportedFeature(0, 1, unset=1),
    # KIP-853: voters can be added and removed, which was always possible.
    "kraft.version": SupportedFeature(1, 1, unset=1),
}


def level_of(name: str, known: Mapping[str, int]) -> int:
    """Return the level of a feature, given the levels that the metadata has."""
    level = known.get(name)
    if level is not None:
        return level
    feature = SUPPORTED.get(name)
    return 0 if feature is None else feature.unset


def finalized(known: Mapping[str, int]) -> dict[str, int]:
    """Return all features in use, with their levels."""
    levels = {name: level_of(name, known) for name in SUPPORTED} | dict(known)
    return {name: level for name, level in levels.items() if level}
