"""Describes listeners for `raylog status`: where they listen, and what they advertise to clients.

There are listeners for Kafka clients, and listeners that serve metrics and health over HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raylog.actors.broker.messages import BrokerStatus

Row = dict[str, Any]


def listener_rows(brokers: list[BrokerStatus]) -> list[Row]:
    """Return the listeners of each broker that answers; a broker of an older build has just one."""
    return [row for broker in brokers for row in _rows(broker)]


def http_rows(brokers: list[BrokerStatus]) -> list[Row]:
    """Return where each broker serves metrics and health; brokers that do not are left out."""
    return [
        {"broker": broker.broker_id, "address": at, "metrics": f"http://{at}/metrics"}
        for broker in brokers
        if (at := getattr(broker, "http", ""))
    ]


def _rows(broker: BrokerStatus) -> list[Row]:
    from raylog.actors.endpoints import DEFAULT_LISTENER, endpoint_of

    listening = getattr(broker, "listening", ())
    if not listening:
        return [_row(broker, DEFAULT_LISTENER, None, broker.bootstrap)]
    rows = []
    for one in listening:
        advertised = endpoint_of(broker.endpoints, one.listener)
        at = one.address if one.host else f"*{one.address}"
        rows.append(
            _row(broker, one.listener, at, None if advertised is None else advertised.address)
        )
    return rows


def _row(broker: BrokerStatus, listener: str, at: str | None, advertised: str | None) -> Row:
    return {
        "broker": broker.broker_id,
        "listener": listener,
        "listening": at,
        "advertised": advertised,
    }
