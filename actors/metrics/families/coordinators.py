"""Metrics of coordinators: groups and their lag, transactions, and the shards that hold them."""

from __future__ import annotations

from raylog.actors.metrics.family import Scope, Table

LOAD_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)

TABLE = Table(
    "Coordinators",
    Scope.PROCESS,
    "Reported by the coordinators of groups (`role` is `group`) and of transactions "
    "(`transaction`). Each coordinates the groups or transactional ids of the partitions of "
    "`__consumer_offsets` or `__transaction_state` that its broker leads.",
)
SHARDS = TABLE.gauge(
    "raylog_coordinator_partitions",
    "Partitions of the internal topic in this process, by `state`: `active` or `loading`.",
    "state",
)
LOADS = TABLE.histogram(
    "raylog_coordinator_load_seconds",
    "How long it took to read a partition of the internal topic before its keys were served.",
    bounds=LOAD_SECONDS,
)
LOAD_FAILURES = TABLE.counter(
    "raylog_coordinator_load_failures_total", "Failed loads; each is retried."
)
RECORDS = TABLE.counter(
    "raylog_coordinator_records_total",
    "Records appended to the internal topic: committed offsets, groups, transactions.",
)
REFUSALS = TABLE.counter(
    "raylog_coordinator_append_failures_total",
    "Appends to the internal topic that were refused or got no answer.",
)

GROUPS_TABLE = Table(
    "Groups",
    Scope.PROCESS,
    "Reported by the coordinators of groups. A coordinator has separate series for the first "
    "`metrics.groups.max` groups with committed offsets, and reports all others as "
    '`group="(others)"`. Within a group it does so for the 20 topics with the most lag, and '
    'reports the others as `topic="(others)"`.',
)
GROUPS = GROUPS_TABLE.gauge(
    "raylog_groups",
    "Groups by `type` (`classic`, `consumer`) and `state`. Groups that have only offsets count as "
    "classic and `Empty`.",
    "type",
    "state",
)
MEMBERS = GROUPS_TABLE.gauge("raylog_group_members", "Members of groups.", "type")
REBALANCES = GROUPS_TABLE.counter(
    "raylog_group_rebalances_total",
    "Generations of classic groups, and target assignments of KIP-848 groups.",
)
LEAVINGS = GROUPS_TABLE.counter(
    "raylog_group_members_left_total",
    "Members that left, timed out, or were removed; members that leave together count once.",
)
LAG = GROUPS_TABLE.gauge(
    "raylog_group_lag_records",
    "Records between committed offsets and the ends of partitions, summed up. A scrape starts the "
    "computation in the background; the next scrape reports the result.",
    "group",
    "topic",
)
LAG_SKIPPED = GROUPS_TABLE.gauge(
    "raylog_group_lag_partitions_skipped",
    "Partitions with committed offsets that the lag leaves out: their leader did not answer, "
    "there are more than 2,000 of them, or groups have more than 100,000 committed offsets.",
)

TRANSACTIONS_TABLE = Table(
    "Transactions", Scope.PROCESS, "Reported by the coordinators of transactions."
)
TRANSACTIONS = TRANSACTIONS_TABLE.gauge(
    "raylog_transactions",
    "Transactional ids by `state`, as Kafka names it: `Ongoing` is an open transaction, "
    "`PrepareCommit` and `PrepareAbort` one whose markers are being written.",
    "state",
)
OLDEST = TRANSACTIONS_TABLE.gauge(
    "raylog_transaction_oldest_age_seconds",
    "Age of the oldest open transaction; 0 if there is none.",
)
ENDED = TRANSACTIONS_TABLE.counter(
    "raylog_transactions_ended_total",
    "Transactions completed by `outcome`: `committed` or `aborted`.",
    "outcome",
)
TIMED_OUT = TRANSACTIONS_TABLE.counter(
    "raylog_transactions_timed_out_total",
    "Transactions that the coordinator aborted because they were open for too long.",
)
