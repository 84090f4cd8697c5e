"""What a client should push: the combination of all subscriptions that match it (KIP-714)."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import NamedTuple

from raylog.actors.config.client_metrics import INTERVAL_MS_DEFAULT, Subscription
from raylog.actors.patterns import compiled

ALL = "*"
"""All metrics, in place of name prefixes."""


class Asked(NamedTuple):
    """What one client should push."""

    metrics: tuple[str, ...]
    """Prefixes of names, or only ALL; empty if no subscription matches."""
    push_interval_ms: int
    subscription_id: int
    """A signed 32-bit id that is different for other clients and other metrics."""


def asked_of(
    subscriptions: tuple[Subscription, ...], instance_id: bytes, client: Mapping[str, str]
) -> Asked:
    """Return the metrics of all matching subscriptions, at the shortest of their intervals.

    `client` has a value for each selector.
    """
    metrics: set[str] = set()
    interval_ms = INTERVAL_MS_DEFAULT
    for one in subscriptions:
        if _matches(one, client):
            metrics.update(one.metrics)
            interval_ms = min(interval_ms, one.interval_ms)
    names = (ALL,) if ALL in metrics else tuple(sorted(metrics))
    check = zlib.crc32(f"{names} {interval_ms}".encode(), zlib.crc32(instance_id))
    return Asked(names, interval_ms, check - (1 << 31))


def _matches(subscription: Subscription, client: Mapping[str, str]) -> bool:
    return all(
        compiled(expression).fullmatch(client[selector]) is not None
        for selector, expression in subscription.match.items()
    )
