"""Broker settings that Apache Kafka does not have: for health, metrics and interceptors."""

from __future__ import annotations

from functools import partial

from raylog.actors.config.keys import ConfigKey, ConfigType, ResourceType

_T = ConfigType
_broker = partial(ConfigKey, ResourceType.BROKER)

RAYLOG_KEYS = (
    _broker(
        "health.listener",
        _T.STRING,
        None,
        "host:port at which the broker answers GET /healthz and /readyz, for probes, and /metrics, "
        "for Prometheus. Anyone who can reach it can read them, but not change anything. Port 0 "
        "means a free port, which is kept over restarts if possible; DescribeConfigs reports it. "
        "Unset: no listener, but raylog up without --address sets 127.0.0.1:0. An empty value "
        "disables it there as well.",
        reader="broker.health",
    ),
    _broker(
        "metrics.topics.max",
        _T.INT,
        "200",
        "Number of topics that have separate time series in the metrics of each process. The "
        "others are summed up as (others).",
        low=0,
        reader="gateway.actor",
    ),
    _broker(
        "metrics.groups.max",
        _T.INT,
        "200",
        "Number of groups that have separate time series in the metrics of each coordinator. The "
        "others are summed up as (others).",
        low=0,
        reader="group.actor",
    ),
    _broker(
        "metrics.reporters",
        _T.LIST,
        "",
        "Where the broker pushes its metrics, in addition to health.listener: opentelemetry (an "
        "exporter that OTEL_* environment variables configure), ray (Ray's metrics; set by raylog "
        "up --metrics).",
        choices=("opentelemetry", "ray"),
        reader="metrics.reporting",
    ),
    _broker(
        "metrics.report.interval.ms",
        _T.INT,
        "15000",
        "Time between two pushes of the metrics.reporters.",
        low=1_000,
        reader="metrics.reporting",
    ),
    _broker(
        "raylog.interceptors.timeout.ms",
        _T.INT,
        "5000",
        "Longest time that one call of an interceptor may take before its request fails.",
        low=1,
        reader="gateway.interception",
    ),
    _broker(
        "raylog.interceptors.files.dir",
        _T.STRING,
        None,
        "Directory of the files that options of interceptors may name. Unset: options may not name "
        "files.",
        reader="gateway.interception",
    ),
)
