"""Metrics of gateways: requests and connections of clients."""

from __future__ import annotations

from raylog.actors.metrics.family import Scope, Table

TABLE = Table(
    "Requests and connections",
    Scope.PROCESS,
    "Reported by each gateway. `api` is the name of a Kafka API, such as `Produce`. The time of a "
    "request starts when the gateway takes the complete request from the connection, and ends when "
    "it passes the answer to the operating system.",
)
REQUESTS = TABLE.counter("raylog_requests_total", "Requests received.", "api")
REQUEST_SECONDS = TABLE.histogram(
    "raylog_request_seconds",
    "Time from a request to its answer. It includes the time that a Fetch waits for records.",
    "api",
)
STAGE_SECONDS = TABLE.histogram(
    "raylog_request_stage_seconds",
    "Time of a request by `stage`: `queue` (large requests wait for their turn and are decoded in "
    "a thread), `local` (decoding, the handler in the gateway, and everything else that the same "
    "process does without waiting), `remote` (waiting for replicas, coordinators, the controller "
    "or records) and `send` (waiting for earlier answers of the connection).",
    "api",
    "stage",
)
ERRORS = TABLE.counter(
    "raylog_errors_total",
    "Error codes in answers, one for each partition or other item that failed. `code` is the name "
    "of a Kafka error. Coordinators report those of the requests that they answer.",
    "api",
    "code",
)
NETWORK_BYTES = TABLE.counter(
    "raylog_network_bytes_total",
    "Bytes from (`in`) and to (`out`) clients.",
    "direction",
)
BYTES_OUT = TABLE.counter(
    "raylog_topic_bytes_out_total",
    "Bytes of batches sent to consumers. Topics are limited as for logs (metrics.topics.max).",
    "topic",
)
CONNECTIONS = TABLE.gauge("raylog_connections", "Open connections of clients.", "listener")
ACCEPTED = TABLE.counter("raylog_connections_accepted_total", "Connections accepted.")
CLOSED = TABLE.counter(
    "raylog_connections_closed_total",
    "Connections that the broker closed, by `reason`: `limit` (max.connections.per.ip), `silent` "
    "(idle for too long, or too slow) and `protocol` (unknown requests, requests that are "
    "malformed or too large, failed writes with acks=0).",
    "reason",
)
IN_FLIGHT = TABLE.gauge("raylog_requests_in_flight", "Requests that have not been answered yet.")
PARKED = TABLE.gauge(
    "raylog_requests_parked",
    "Requests in flight that wait for records or for other members of a group.",
)
HELD_BACK = TABLE.gauge(
    "raylog_requests_held_back",
    "Requests that wait because a replica or coordinator cannot keep up.",
)
PAUSED = TABLE.gauge(
    "raylog_connections_paused", "Connections from which the gateway currently does not read."
)
MEMORY = TABLE.gauge(
    "raylog_request_memory_bytes",
    "Memory of requests, and of answers that clients have not read (queued.max.request.bytes).",
)
FETCH_SESSIONS = TABLE.gauge("raylog_fetch_sessions", "Incremental fetch sessions of clients.")
SEGMENT_MAPS = TABLE.gauge(
    "raylog_segment_maps", "Segment files that are mapped into memory for fetches."
)
