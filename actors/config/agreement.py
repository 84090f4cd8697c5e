"""Checks that broker settings are consistent with each other, as Apache Kafka does at startup.

One rule is Raylog's own: broker.heartbeat.interval.ms must be below broker.session.timeout.ms,
because otherwise brokers would be fenced between two heartbeats.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass

from raylog.actors.config import BROKER_KEYS, PER_IP, PER_IP_OVERRIDES
from raylog.actors.config.values import host_counts
from raylog.wire.errors import InvalidConfig

_DEDUPE = "log.cleaner.dedupe.buffer.size"
_DEDUPE_BYTES_MIN = 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Order:
    """A rule: one setting must not exceed another."""

    lower: str
    upper: str
    strictly: bool = False
    """Whether equal values are refused, too."""

    def holds(self, lower: int, upper: int) -> bool:
        """Whether two values follow the rule."""
        return lower < upper or (lower == upper and not self.strictly)


_ORDERS = (
    _Order("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    _Order("broker.heartbeat.interval.ms", "broker.session.timeout.ms", strictly=True),
    _Order(
        "group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms", strictly=True
    ),
    *(
        _Order(f"group.consumer.{lower}{key}", f"group.consumer.{upper}{key}")
        for key in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
        for lower, upper in (("min.", ""), ("", "max."), ("min.", "max."))
    ),
)


def check_agreement(
    value: Callable[[str], str | None], changed: Container[str] | None = None
) -> None:
    """Raise InvalidConfig, naming both, if two settings contradict each other.

    `value` returns the text of the value in effect, which must already be valid. With `changed`,
    only rules that involve these keys are checked, so that an existing contradiction does not
    block other changes.
    """

    def concerns(*keys: str) -> bool:
        return changed is None or any(key in changed for key in keys)

    for order in _ORDERS:
        if concerns(order.lower, order.upper):
            _check_order(order, value)
    if concerns("queued.max.request.bytes", "socket.request.max.bytes"):
        _check_queue(value)
    if concerns(PER_IP, PER_IP_OVERRIDES):
        _check_hosts(value)
    if concerns(_DEDUPE) and _number(value, _DEDUPE) <= _DEDUPE_BYTES_MIN:
        raise InvalidConfig(
            f"{_DEDUPE} must be greater than {_DEDUPE_BYTES_MIN} (1 MiB), not "
            f"{_number(value, _DEDUPE)}"
        )


def _check_order(order: _Order, value: Callable[[str], str | None]) -> None:
    lower, upper = _number(value, order.lower), _number(value, order.upper)
    if not order.holds(lower, upper):
        relation = "less than" if order.strictly else "less than or equal to"
        raise InvalidConfig(f"{order.lower} ({lower}) must be {relation} {order.upper} ({upper})")


def _check_queue(value: Callable[[str], str | None]) -> None:
    """Check that the limit for all requests admits the largest one; 0 or less means no limit."""
    queued, largest = (
        _number(value, name) for name in ("queued.max.request.bytes", "socket.request.max.bytes")
    )
    if 0 < queued < largest:
        raise InvalidConfig(
            f"queued.max.request.bytes ({queued}) must be greater than or equal to "
            f"socket.request.max.bytes ({largest}), or -1 for no limit"
        )


def _check_hosts(value: Callable[[str], str | None]) -> None:
    """Check that at least one host can connect."""
    overrides = host_counts(BROKER_KEYS[PER_IP_OVERRIDES], value(PER_IP_OVERRIDES) or "")
    if _number(value, PER_IP) == 0 and not overrides:
        raise InvalidConfig(
            f"requirement failed: {PER_IP} can be set to zero only if {PER_IP_OVERRIDES} property "
            "is set."
        )


def _number(value: Callable[[str], str | None], name: str) -> int:
    text = value(name)
    assert text is not None, f"{name} has no default"
    return int(text)
