"""What is asked of a client: the subscriptions that match it, taken together (KIP-714)."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import NamedTuple

from raylog.actors.config_client_metrics import INTERVAL_MS_DEFAULT, Subscription
from raylog.actors.patterns import compiled

ALL = "*"
"""In place of prefixes of names: all metrics."""


class Asked(NamedTuple):
    """What one client shall push."""

    metrics: tuple[str, ...]
    """Prefixes of names, or ALL alone; nothing where no subscription matches."""
    push_interval_ms: int
    subscription_id: int
    """Another one for another client or other metrics; it is 32 bits with a sign."""


def asked_of(
    subscriptions: tuple[Subscription, ...], instance_id: bytes, client: Mapping[str, str]
) -> Asked:
    """The metrics of all subscriptions that match, at the shortest of their intervals.

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
