"""Metrics that clients push to gateways (KIP-714)."""

from __future__ import annotations

from raylog.actors.metrics.family import Scope, Table

TABLE = Table(
    "Metrics that clients push",
    Scope.PROCESS,
    "Clients push metrics (KIP-714) if a subscription asks for them: [metrics of clients]"
    "(monitoring.md#metrics-of-clients). A gateway keeps 500 series per client, 10,000 in all, and "
    "forgets a client that has pushed nothing for three push intervals.",
)
CLIENT_METRIC = TABLE.gauge(
    "raylog_client_metric",
    "The last value that a client pushed. `metric` is Kafka's name, `attributes` are those that "
    "the client adds, such as `topic=orders`. Counters are accumulated from the first push on.",
    "client_id",
    "client_instance_id",
    "metric",
    "attributes",
)
PUSHES = TABLE.counter(
    "raylog_client_pushes_total",
    "Pushes of clients, by the error code of the answer, or NONE.",
    "code",
)
PUSHED_BYTES = TABLE.counter(
    "raylog_client_pushed_bytes_total", "Compressed bytes of the accepted pushes."
)
DROPPED_POINTS = TABLE.counter(
    "raylog_client_points_dropped_total",
    "Data points of clients that were dropped because no series was left.",
)
