"""Clients' metrics subscriptions (KIP-714): which clients push which metrics, and how often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from raylog.actors.config_keys import ConfigKey, ConfigType
from raylog.actors.config_values import split_list
from raylog.wire.errors import InvalidConfig, InvalidRequest

_INTERVAL, _MATCH, _METRICS = "interval.ms", "match", "metrics"
INTERVAL_MS_DEFAULT = 300_000
_INTERVAL_MS_MIN = 100
_INTERVAL_MS_MAX = 3_600_000
SELECTORS = {
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
}

CLIENT_METRICS_KEYS: dict[str, ConfigKey] = {
    key.name: key
    for key in (
        ConfigKey(
            _INTERVAL,
            ConfigType.INT,
            str(INTERVAL_MS_DEFAULT),
            "How often clients push their metrics, ms.",
        ),
        ConfigKey(
            _MATCH, ConfigType.LIST, "", "Which clients: selector=regular expression, all of them."
        ),
        ConfigKey(
            _METRICS, ConfigType.LIST, "", "Prefixes of the metrics that clients push; * is all."
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Subscription:
    """One subscription, as its settings have it."""

    interval_ms: int
    metrics: tuple[str, ...]
    """Prefixes of names."""
    match: dict[str, str]
    """Selector -> regular expression that its whole value must match."""


def subscription_of(configs: Mapping[str, str]) -> Subscription:
    """The subscription that has these settings, which were checked when they were made."""
    patterns = (one.partition("=") for one in split_list(configs.get(_MATCH, "")))
    return Subscription(
        int(configs.get(_INTERVAL, INTERVAL_MS_DEFAULT)),
        tuple(split_list(configs.get(_METRICS, ""))),
        {selector.strip(): expression.strip() for selector, _, expression in patterns},
    )


def check_client_metrics(configs: Mapping[str, str]) -> None:
    """Raise InvalidRequest or InvalidConfig unless a subscription may have these settings."""
    interval = configs.get(_INTERVAL)
    if interval is not None and not _INTERVAL_MS_MIN <= int(interval) <= _INTERVAL_MS_MAX:
        raise InvalidRequest(
            f"Invalid value {interval} for {_INTERVAL}, interval must be between "
            f"{_INTERVAL_MS_MIN} and {_INTERVAL_MS_MAX} (1 hour)"
        )
    for pattern in split_list(configs.get(_MATCH, "")):
        selector, _, expression = pattern.partition("=")
        if selector.strip() not in SELECTORS or not _is_expression(expression.strip()):
            raise InvalidConfig(f"Illegal client matching pattern: {pattern}")


def _is_expression(text: str) -> bool:
    # RE2 takes longer to import than all this, and is hardly ever needed.
    from raylog.actors.patterns import BadPattern, compiled

    try:
        compiled(text)
    except BadPattern:
        return False
    return bool(text) and "=" not in text
