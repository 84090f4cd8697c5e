"""What each broker tells of itself."""

from __future__ import annotations

from raylog.actors.metrics.family import Scope, Table

SCRAPE_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)

TABLE = Table("Brokers", Scope.BROKER)
INFO = TABLE.gauge(
    "raylog_broker_info", "1; labels say which cluster and build it is.", "cluster", "build"
)
STATE = TABLE.gauge(
    "raylog_broker_state",
    "1 for the state that the broker is in: `starting`, `running`, `fenced`, `shutting down` or "
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
    "raylog_process_restarts", "How often the actors that run now were started again.", "role"
)
STARTS = TABLE.gauge(
    "raylog_broker_restarts", "Starts of the broker since its last clean shutdown, less the first."
)
METADATA_OFFSET = TABLE.gauge(
    "raylog_metadata_offset", "Offset up to which the broker has applied the metadata log."
)
CONTROLLER_SILENCE = TABLE.gauge(
    "raylog_controller_silence_seconds", "For how long no controller has answered the broker."
)
CONTROLLERS = TABLE.gauge(
    "raylog_active_controllers",
    "1 for the broker that tells of the whole cluster, if the controller has answered it, else 0. "
    "The sum over all brokers is 1 while the cluster has a controller and that broker is scraped.",
)
REPLICAS = TABLE.gauge("raylog_replicas", "Replicas that the broker has.")
OFFLINE_LOGS = TABLE.gauge(
    "raylog_offline_replicas", "Of them: their log could not be opened, or its disk failed."
)
DISK_BYTES = TABLE.gauge("raylog_disk_size_bytes", "Size of the volume of the data directory.")
DISK_USABLE = TABLE.gauge("raylog_disk_usable_bytes", "What is free of it.")
VOTES = TABLE.gauge(
    "raylog_metadata_voter", "1 if the broker's copy of the metadata log votes, else 0."
)
VOTE_TROUBLE = TABLE.gauge(
    "raylog_metadata_voter_failed", "1 if its copy of the metadata log takes nothing more, else 0."
)
SCRAPES = TABLE.histogram(
    "raylog_scrape_seconds",
    "How long it took to ask all processes for their metrics, before this scrape.",
    bounds=SCRAPE_SECONDS,
)
SCRAPE_FAILURES = TABLE.counter(
    "raylog_scrape_failures_total",
    "Processes that did not answer in time, or not at all: their series are missing.",
    "role",
)
