"""What must hold in every simulation, and how often each of it was looked at."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum


class Property(StrEnum):
    """A property by name; the value says it in words."""

    ACKNOWLEDGED_KEPT = "a record acknowledged with acks=all is there in the end, where it was told"
    ONE_VALUE_AN_OFFSET = "an offset has one value, whoever reads it, whenever"
    SEQUENCE_WHOLE = "an idempotent producer's records are there once each, in order, without gaps"
    SEQUENCE_ACCEPTED = "an idempotent producer is never told of a sequence that is out of order"
    REFUSED_ABSENT = "a record refused before the append is not there"
    READS_COMMITTED = "readers get nothing at or above the high watermark"
    READS_CONTIGUOUS = "readers skip nothing and see nothing twice"
    READS_SOUND = "readers get batches whose checksum is right"
    HIGH_WATERMARK_FORWARD = "a replica's high watermark never moves back in one opening of its log"
    HIGH_WATERMARK_HELD = "a replica's high watermark is not above its log end"
    EPOCHS_FORWARD = "a replica's leader epoch never moves back in one opening of its log"
    ONE_LEADER_AN_EPOCH = "a leader epoch has one leader"
    LOG_START_FORWARD = "a replica's log start never moves back in one opening of its log"
    ISR_HOLDS_COMMITTED = "every in-sync replica holds all below the leader's high watermark"
    ISR_SETTLES = "in-sync replicas change some times a second at most"
    LAGGARDS_STAY_OUT = "who left for lagging joins again only once it has gone on"
    REPLICAS_READABLE = "a log can be read up to the high watermark"
    REPLICAS_EQUAL = "in-sync replicas are byte-equal below the high watermark"
    FLUSHED_KEPT = "what was flushed to a disk that did not fail is there after a power loss"
    METADATA_ONCE = "a committed metadata record never changes"
    METADATA_PREFIX = "a broker's metadata never goes back, and nothing is left out of it"
    CONTROLLER_PROMISED = "a voter promises a controller epoch once, and only higher ones after it"
    TOPIC_KEPT = "an acknowledged topic is there in the end"
    VOTERS_AGREE = (
        "voters hold what was committed: most of them all of it, each what its epoch knew"
    )
    SERVED_AGAIN = "everything is served again soon after the faults stop"
    OFFSETS_FORWARD = "a group's offset is what it committed last, or has tried to since"
    OFFSETS_OF_TOPIC = "offsets of a topic that was deleted are not those of one made in its place"
    ONE_GENERATION = "members of one generation are told of the same leader and protocol"
    ONE_OWNER = "a partition has one owner in a group, the one that was chosen"
    MEMBERS_FENCED = "a commit of a generation that is over is not taken"
    GROUPS_SETTLE = "members have all partitions between them soon after the faults stop"
    GONE_BY_RIGHT = "a record is gone only by its own age, or because it was deleted"
    DELETED_STAY_GONE = "what was deleted by request does not come back"
    AGED_GO = "records that are older than their topic keeps them go"
    NEWEST_KEPT = "the newest value of a key survives compaction"
    PRODUCERS_EXPIRE = "producers that write no more are forgotten, whatever the cleanup policy"
    COPIES_KEPT = "nobody removes records that an operator could still use"
    OLDER_REFUSED = "no broker serves by metadata that is older than what its directory has known"
    REFUSAL_TOLD = "a broker that does not serve says why, and what can be done"
    UNCLEAN_ELECTED = "where unclean election is allowed a live replica leads soon"
    GROWN = "a cluster of three brokers has three voters, and its internal topics their replicas"
    UNBROKEN = "no actor ends by a broken invariant"
    COMMITTED_VISIBLE = (
        "a transaction that is told to be committed is there, once, in every partition"
    )
    ABORTED_HIDDEN = (
        "no record of an aborted transaction is visible to readers of what is committed"
    )
    NOT_TORN = "of a transaction all records are visible, in all its partitions, or none"
    OFFSETS_WITH_OUTPUT = "a record is copied, and once, exactly if the group has passed it"
    OFFSETS_AS_LOGGED = "a group's offset is that of its last committed transaction"
    READS_DECIDED = "readers of what is committed get nothing at or above the last stable offset"
    READS_COMPLETE = "what readers of committed records saw is what is there, nothing left out"
    STABLE_AS_LOGGED = "the last stable offset follows from the log below the high watermark"
    MARKERS_FORWARD = "epochs of a producer's markers never go back"
    ABORTS_INDEXED = "every replica knows the aborted transactions that its log has"
    TRANSACTIONS_END = "transactions end soon after their timeout, and readers get to the end"
    HASTE_GOES_UNPUNISHED = "a producer that is alone is not fenced for going on at once"
    WRITTEN_ONCE = "a record given to an idempotent producer once is there once at most"
    WRITTEN_IN_ORDER = "what one producer writes to a partition is there in the order of its calls"
    PROCESSED_ALL = "where processing precedes the commit, every record is processed"
    PROCESSED_ONCE = "where the commit precedes processing, no record is processed twice"
    COMMITS_PROCESSED = "no commit passes a record that is not processed yet"
    COMMITS_IN_ORDER = "an older commit never overwrites a newer one"
    GROUPS_CATCH_UP = "groups get to the end of what they read soon after the faults stop"


OF_TRANSACTIONS = frozenset(
    {
        Property.COMMITTED_VISIBLE,
        Property.ABORTED_HIDDEN,
        Property.NOT_TORN,
        Property.OFFSETS_WITH_OUTPUT,
        Property.OFFSETS_AS_LOGGED,
        Property.READS_DECIDED,
        Property.READS_COMPLETE,
        Property.STABLE_AS_LOGGED,
        Property.MARKERS_FORWARD,
        Property.ABORTS_INDEXED,
        Property.TRANSACTIONS_END,
        Property.HASTE_GOES_UNPUNISHED,
    }
)
"""Looked at where clients are transactional."""
OF_GROUPS = frozenset(
    {
        Property.OFFSETS_FORWARD,
        Property.OFFSETS_OF_TOPIC,
        Property.ONE_GENERATION,
        Property.ONE_OWNER,
        Property.MEMBERS_FENCED,
        Property.GROUPS_SETTLE,
    }
)
"""Looked at where clients are members of groups."""
OF_CLIENTS = frozenset(
    {
        Property.WRITTEN_ONCE,
        Property.WRITTEN_IN_ORDER,
        Property.PROCESSED_ALL,
        Property.PROCESSED_ONCE,
        Property.COMMITS_PROCESSED,
        Property.COMMITS_IN_ORDER,
        Property.GROUPS_CATCH_UP,
    }
)
"""Looked at where clients are the real ones."""
OF_RETENTION = frozenset(
    {
        Property.GONE_BY_RIGHT,
        Property.DELETED_STAY_GONE,
        Property.AGED_GO,
        Property.NEWEST_KEPT,
        Property.PRODUCERS_EXPIRE,
    }
)
"""Looked at where records are deleted or compacted."""
OF_DISASTERS = frozenset(
    {
        Property.COPIES_KEPT,
        Property.OLDER_REFUSED,
        Property.REFUSAL_TOLD,
        Property.UNCLEAN_ELECTED,
        Property.GROWN,
    }
)
"""Looked at where more is lost than is guaranteed to survive."""


class PropertyViolated(Exception):
    """A property does not hold: the simulation has found a mistake."""


class Checks:
    """Counts what is checked; the first thing that does not hold ends the run."""

    def __init__(self) -> None:
        self.counts: Counter[Property] = Counter(dict.fromkeys(Property, 0))
        self.violations: list[str] = []

    def hold(self, one: Property, holds: bool, *details: object) -> None:
        """Count a check; `details` describe what was found instead."""
        self.counts[one] += 1
        if not holds:
            self.violations.append(f"{one.name}: {' '.join(map(str, details))}")

    def raise_violations(self) -> None:
        """Raise PropertyViolated if anything did not hold."""
        if self.violations:
            raise PropertyViolated("; ".join(self.violations[:3]))
