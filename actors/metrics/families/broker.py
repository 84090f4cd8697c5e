"""Metrics of a broker."""

from __future__ import annotations

from raylog.actors.metrics.family import Scope, Table

SCRAPE_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)

TABLE = Table("Brokers", Scope.BROKER)
INFO = TABLE.gauge(
    "raylog_broker_info", "Always 1; the labels name the cluster and the build.", "cluster", "build"
)
STATE = TABLE.gauge(
    "raylog_broker_state",
    "1 for the current state of the broker: `starting`, `running`, `fenced`, `shutting down` or "
    "`shut down`.",
    "state",
)
CHILDREN = TABLE.gauge(
    "raylog_processes",
    "Actors of the broker by role and state, as `raylog status` shows them.",
    "role",
    "state",
)
RESTARTS = TABLE.gauge(
    "raylog_process_restarts", "How often the running actors were restarted.", "role"
)
STARTS = TABLE.gauge(
    "raylog_broker_restarts", "Restarts of the broker since its last clean shutdown."
)
METADATA_OFFSET = TABLE.gauge(
    "raylog_metadata_offset", "Offset up to which the broker has applied the metadata log."
)
CONTROLLER_SILENCE = TABLE.gauge(
    "raylog_controller_silence_seconds", "Time since a controller last answered the broker."
)
CONTROLLERS = TABLE.gauge(
    "raylog_active_controllers",
    "1 for the broker that reports the whole cluster's metrics, if the controller has answered it; "
    "otherwise 0. The sum over all brokers is 1 while the cluster has a controller and that broker "
    "is scraped.",
)
REPLICAS = TABLE.gauge("raylog_replicas", "Replicas on the broker.")
OFFLINE_LOGS = TABLE.gauge(
    "raylog_offline_replicas", "Replicas whose log could not be opened, or whose disk failed."
)
DISK_BYTES = TABLE.gauge("raylog_disk_size_bytes", "Size of the volume of the data directory.")
DISK_USABLE = TABLE.gauge(
    "raylog_disk_usable_bytes", "Free bytes on the volume of the data directory."
)
VOTES = TABLE.gauge(
    "raylog_metadata_voter", "1 if the broker is a voter of the metadata quorum, otherwise 0."
)
VOTE_TROUBLE = TABLE.gauge(
    "raylog_metadata_voter_failed",
    "1 if the broker's copy of the metadata log accepts no more records, otherwise 0.",
)
SCRAPES = TABLE.histogram(
    "raylog_scrape_seconds",
    "Time that earlier scrapes took to collect the metrics of all processes.",
    bounds=SCRAPE_SECONDS,
)
SCRAPE_FAILURES = TABLE.counter(
    "raylog_scrape_failures_total",
    "Processes that did not answer a scrape in time: their series are missing.",
    "role",
)
