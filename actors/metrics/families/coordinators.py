"""What coordinators tell: of groups, their lag, transactions, and the shards that hold them."""

from __future__ import annotations

from raylog.actors.metrics.family import Scope, Table

LOAD_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)

TABLE = Table(
    "Coordinators",
    Scope.PROCESS,
    "Reported by the coordinators of groups (`role` is `group`) and of transactions (`transaction`)"
    ": "
    "each holds the groups or transactional ids of the partitions of `__consumer_offsets` or "
    "`__transaction_state` that its broker leads.",
)
SHARDS = TABLE.gauge(
    "raylog_coordinator_partitions",
    "Partitions of the internal topic that are held here, by `state`: `active` or `loading`.",
    "state",
)
LOADS = TABLE.histogram(
    "raylog_coordinator_load_seconds",
    "How long it took to read a partition of the internal topic before its keys were served.",
    bounds=LOAD_SECONDS,
)
LOAD_FAILURES = TABLE.counter(
    "raylog_coordinator_load_failures_total", "Loads that failed, and were tried again."
)
RECORDS = TABLE.counter(
    "raylog_coordinator_records_total",
    "Records that were given to the internal topic: committed offsets, groups, transactions.",
)
REFUSALS = TABLE.counter(
    "raylog_coordinator_append_failures_total",
    "Appends that the internal topic has refused, or that got no answer.",
)

GROUPS_TABLE = Table(
    "Groups",
    Scope.PROCESS,
    "Reported by the coordinators of groups. A coordinator gives the first `metrics.groups.max` "
    "groups "
    'with committed offsets series of their own, and tells of all others as `group="(others)"`; '
    'of a group, the 20 topics with the most lag, and the others as `topic="(others)"`.',
)
GROUPS = GROUPS_TABLE.gauge(
    "raylog_groups",
    "Groups by `type` (`classic`, `consumer`) and `state`. Groups that have only offsets are "
    "classic and `Empty`.",
    "type",
    "state",
)
MEMBERS = GROUPS_TABLE.gauge("raylog_group_members", "Members of groups.", "type")
REBALANCES = GROUPS_TABLE.counter(
    "raylog_group_rebalances_total",
    "Generations begun by classic groups, and targets computed for groups of KIP-848.",
)
LEAVINGS = GROUPS_TABLE.counter(
    "raylog_group_members_left_total",
    "Members that left, fell silent, or were removed; those that leave together count once.",
)
LAG = GROUPS_TABLE.gauge(
    "raylog_group_lag_records",
    "Records between committed offsets and the ends of the partitions, summed up. It is found in "
    "the background when a scrape comes, and told by the next one.",
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
    "raylog_transaction_oldest_age_seconds", "Age of the oldest open transaction; 0 without any."
)
ENDED = TRANSACTIONS_TABLE.counter(
    "raylog_transactions_ended_total",
    "Transactions completed by `outcome`: `committed` or `aborted`.",
    "outcome",
)
TIMED_OUT = TRANSACTIONS_TABLE.counter(
    "raylog_transactions_timed_out_total",
    "Of those aborted: the coordinator did it because they were open for too long.",
)
