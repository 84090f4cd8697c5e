"""What clients tell of themselves, and gateways pass on (KIP-714)."""

from __future__ import annotations

from raylog.actors.metrics.family import Scope, Table

TABLE = Table(
    "Metrics that clients push",
    Scope.PROCESS,
    "Clients push metrics (KIP-714) where a subscription asks for them: [metrics of clients]"
    "(#metrics-of-clients). A gateway keeps 500 series of each client, 10,000 in all, and forgets "
    "a client that has pushed nothing for three push intervals.",
)
CLIENT_METRIC = TABLE.gauge(
    "raylog_client_metric",
    "The last value that a client has pushed. `metric` is Kafka's name, `attributes` what the "
    "client adds to it, such as `topic=orders`. Counters are summed up from the first push on.",
    "client_id",
    "client_instance_id",
    "metric",
    "attributes",
)
PUSHES = TABLE.counter(
    "raylog_client_pushes_total",
    "Pushes of clients by the error that they were answered with, or NONE.",
    "code",
)
PUSHED_BYTES = TABLE.counter(
    "raylog_client_pushed_bytes_total", "Bytes of the pushes that were taken, compressed."
)
DROPPED_POINTS = TABLE.counter(
    "raylog_client_points_dropped_total", "Numbers of clients for which no series was left."
)
