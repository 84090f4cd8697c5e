"""Broker keys that Apache Kafka does not have: health, interceptors."""

from __future__ import annotations

from raylog.actors.config_keys import ConfigKey, ConfigType

_T = ConfigType

OWN = (
    ConfigKey(
        "health.listener",
        _T.STRING,
        None,
        "host:port where a broker answers GET /healthz and /readyz over HTTP, for probes, and "
        "/metrics, for Prometheus. Port 0 is a free one, and the same after each start if nobody "
        "has taken it; DescribeConfigs reports the one in use. Unset: nowhere, but raylog up "
        "without --address sets 127.0.0.1:0; an empty value turns it off. Who reaches it may read, "
        "and change nothing.",
    ),
    ConfigKey(
        "metrics.topics.max",
        _T.INT,
        "200",
        "Topics that each process of a broker gives time series of their own in its metrics; the "
        "others are told together.",
        low=0,
    ),
    ConfigKey(
        "metrics.groups.max",
        _T.INT,
        "200",
        "Groups that each coordinator gives time series of their own in its metrics; the others "
        "are told together.",
        low=0,
    ),
    ConfigKey(
        "metrics.reporters",
        _T.LIST,
        "",
        "Where a broker sends its metrics by itself, beside telling them at health.listener: "
        "opentelemetry (an exporter that OTEL_* environment variables choose), ray (metrics of "
        "Ray; raylog up --metrics sets it).",
        choices=("opentelemetry", "ray"),
    ),
    ConfigKey(
        "metrics.report.interval.ms",
        _T.INT,
        "15000",
        "Time between two of these reports.",
        low=1_000,
    ),
    ConfigKey(
        "raylog.interceptors.timeout.ms",
        _T.INT,
        "5000",
        "Time one call of an interceptor may take before the request that needs it fails.",
        low=1,
    ),
    ConfigKey(
        "raylog.interceptors.files.dir",
        _T.STRING,
        None,
        "Directory of the files that options of interceptors may name; unset: none may.",
    ),
)
