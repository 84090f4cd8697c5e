"""Metrics of the controller: its own, the metadata's, and those of all brokers and partitions."""

from __future__ import annotations

from raylog.actors.metrics.family import Scope, Table

APPEND_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

TABLE = Table(
    "Controller and cluster",
    Scope.CLUSTER,
    "Reported by the controller. Gauges are absent while no controller serves. Counters start at 0 "
    "in each controller process.",
)
EPOCH = TABLE.gauge(
    "raylog_controller_epoch", "Controller epoch; each new controller increases it."
)
LEASE_AGE = TABLE.gauge(
    "raylog_controller_lease_age_seconds",
    "Time since a majority of the voters last answered. The controller stops serving when this is "
    "too long.",
)
ELECTIONS = TABLE.counter(
    "raylog_elections_total", "Leaders elected, including elections of preferred replicas."
)
UNCLEAN_ELECTIONS = TABLE.counter(
    "raylog_unclean_elections_total",
    "Leaders elected that were not in sync: records may be lost.",
)
UNCLEAN_AT = TABLE.gauge(
    "raylog_last_unclean_election_timestamp_seconds",
    "Time at which the controller process last elected a leader that was not in sync, in seconds "
    "since the Unix epoch; 0 if it has not.",
)
FENCINGS = TABLE.counter("raylog_fencings_total", "Brokers fenced.")
BROKERS = TABLE.gauge(
    "raylog_brokers", "Registered brokers by `state`: `active`, `fenced`, `shutting down`.", "state"
)
TOPICS = TABLE.gauge("raylog_topics", "Topics, including internal ones.")
CLUSTER_PARTITIONS = TABLE.gauge("raylog_cluster_partitions", "Partitions of all topics.")
OFFLINE = TABLE.gauge("raylog_offline_partitions", "Partitions that have no leader.")
OUT_OF_SYNC = TABLE.gauge(
    "raylog_out_of_sync_partitions",
    "Partitions with a replica that is not in sync, according to the metadata.",
)
REASSIGNING = TABLE.gauge("raylog_reassigning_partitions", "Partitions that are being moved.")
DISPLACED = TABLE.gauge(
    "raylog_displaced_leaders", "Partitions not led by their preferred replica."
)
LOG_END = TABLE.gauge(
    "raylog_metadata_log_end_offset", "End of the metadata log, including uncommitted records."
)
UNCOMMITTED = TABLE.gauge(
    "raylog_metadata_uncommitted_records",
    "Metadata records that a majority of the voters has not synced yet.",
)
SINCE_SNAPSHOT = TABLE.gauge(
    "raylog_metadata_log_size_bytes", "Bytes of the metadata log since its last snapshot."
)
RECORDS = TABLE.counter("raylog_metadata_records_total", "Metadata records written.")
APPENDS = TABLE.histogram(
    "raylog_metadata_append_seconds",
    "How long a majority of the voters took to sync an append.",
    bounds=APPEND_SECONDS,
)
VOTER_LAG = TABLE.gauge(
    "raylog_metadata_voter_lag_records",
    "Metadata records that a voter has not acknowledged yet.",
    "voter",
)
