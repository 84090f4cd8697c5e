"""What the controller tells: of itself, the metadata, and all brokers and partitions."""

from __future__ import annotations

from raylog.actors.metrics.family import Scope, Table

APPEND_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

TABLE = Table(
    "Controller and cluster",
    Scope.CLUSTER,
    "Reported by the controller. Gauges are absent while none serves. Counters begin anew with "
    "each controller process.",
)
EPOCH = TABLE.gauge("raylog_controller_epoch", "Controller epoch; each new controller raises it.")
LEASE_AGE = TABLE.gauge(
    "raylog_controller_lease_age_seconds",
    "For how long a majority of the voters has not been heard; the controller stops serving when "
    "that is too long.",
)
ELECTIONS = TABLE.counter(
    "raylog_elections_total", "Leaders elected, those that went back to preferred replicas too."
)
UNCLEAN_ELECTIONS = TABLE.counter(
    "raylog_unclean_elections_total",
    "Leaders elected that were not in sync: records may be lost.",
)
UNCLEAN_AT = TABLE.gauge(
    "raylog_last_unclean_election_timestamp_seconds",
    "When the controller process last elected a leader that was not in sync, since the Unix epoch; "
    "0 if it has not.",
)
FENCINGS = TABLE.counter("raylog_fencings_total", "Brokers fenced.")
BROKERS = TABLE.gauge(
    "raylog_brokers", "Registered brokers by `state`: `active`, `fenced`, `shutting down`.", "state"
)
TOPICS = TABLE.gauge("raylog_topics", "Topics, internal ones too.")
CLUSTER_PARTITIONS = TABLE.gauge("raylog_cluster_partitions", "Partitions of all topics.")
OFFLINE = TABLE.gauge("raylog_offline_partitions", "Partitions that have no leader.")
OUT_OF_SYNC = TABLE.gauge(
    "raylog_out_of_sync_partitions",
    "Partitions with a replica that is not in sync, as the metadata has it.",
)
REASSIGNING = TABLE.gauge("raylog_reassigning_partitions", "Partitions that are being moved.")
DISPLACED = TABLE.gauge(
    "raylog_displaced_leaders", "Partitions not led by their preferred replica."
)
LOG_END = TABLE.gauge(
    "raylog_metadata_log_end_offset", "End of the metadata log, what is not committed included."
)
UNCOMMITTED = TABLE.gauge(
    "raylog_metadata_uncommitted_records",
    "Metadata records that no majority of the voters has synced yet.",
)
SINCE_SNAPSHOT = TABLE.gauge(
    "raylog_metadata_log_size_bytes", "Bytes of the metadata log since its last snapshot."
)
RECORDS = TABLE.counter("raylog_metadata_records_total", "Metadata records written.")
APPENDS = TABLE.histogram(
    "raylog_metadata_append_seconds",
    "How long a majority of the voters took to sync what was written.",
    bounds=APPEND_SECONDS,
)
VOTER_LAG = TABLE.gauge(
    "raylog_metadata_voter_lag_records",
    "Metadata records that a voter lacks, as far as it has told.",
    "voter",
)
