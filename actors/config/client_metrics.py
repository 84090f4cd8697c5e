"""Client metrics subscriptions (KIP-714): which clients push which metrics, and how often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from raylog.actors.config.keys import ConfigKey, ConfigType, ResourceType
from raylog.actors.config.values import split_list
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

_key = partial(ConfigKey, ResourceType.CLIENT_METRICS, reader="config.client_metrics")

CLIENT_METRICS_KEYS: dict[str, ConfigKey] = {
    key.name: key
    for key in (
        _key(
            _INTERVAL,
            ConfigType.INT,
            str(INTERVAL_MS_DEFAULT),
            "Time between two pushes of a client's metrics.",
        ),
        _key(
            _MATCH,
            ConfigType.LIST,
            "",
            "Which clients push metrics, as selector=regular expression. All of these must match; "
            "empty matches every client.",
        ),
        _key(
            _METRICS,
            ConfigType.LIST,
            "",
            "Prefixes of the names of metrics to push. * means all metrics, empty means none.",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Subscription:
    """The parsed settings of one subscription."""

    interval_ms: int
    metrics: tuple[str, ...]
    """Prefixes of the names of metrics."""
    match: dict[str, str]
    """Selector -> regular expression that its whole value must match."""


def subscription_of(configs: Mapping[str, str]) -> Subscription:
    """Return the subscription with these settings, which were checked when they were set."""
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
    # RE2 takes long to import and is rarely needed.
    from raylog.actors.patterns import BadPattern, compiled

    try:
        compiled(text)
    except BadPattern:
        return False
    return bool(text) and "=" not in text
