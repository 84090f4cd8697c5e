"""The properties that must hold in every simulation, with counts of their checks."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum


class Property(StrEnum):
    """A property. The value is its description."""

    ACKNOWLEDGED_KEPT = "a record acknowledged with acks=all is there at the end, at its offset"
    ONE_VALUE_AN_OFFSET = "an offset has one value for all readers at all times"
    SEQUENCE_WHOLE = "an idempotent producer's records are there once each, in order, without gaps"
    SEQUENCE_ACCEPTED = "an idempotent producer never gets OUT_OF_ORDER_SEQUENCE_NUMBER"
    REFUSED_ABSENT = "a record refused before the append is not there"
    READS_COMMITTED = "readers get nothing at or above the high watermark"
    READS_CONTIGUOUS = "readers skip no record and get none twice"
    READS_SOUND = "readers get batches with correct checksums"
    HIGH_WATERMARK_FORWARD = "a replica's high watermark never moves back within an incarnation"
    HIGH_WATERMARK_HELD = "a replica's high watermark is not above its log end"
    EPOCHS_FORWARD = "a replica's leader epoch never moves back within an incarnation"
    ONE_LEADER_AN_EPOCH = "a leader epoch has one leader"
    LOG_START_FORWARD = "a replica's log start never moves back within an incarnation"
    ISR_HOLDS_COMMITTED = "every in-sync replica holds all below the leader's high watermark"
    ISR_SETTLES = "in-sync replicas change at most a few times per second"
    LAGGARDS_STAY_OUT = "a replica that left the ISR for lagging rejoins only after it has appended"
    REPLICAS_READABLE = "a log can be read up to the high watermark"
    REPLICAS_EQUAL = "in-sync replicas are byte-equal below the high watermark"
    FLUSHED_KEPT = "data flushed to a disk that did not fail survives a power loss"
    METADATA_ONCE = "a committed metadata record never changes"
    METADATA_PREFIX = "a broker's metadata never goes back and has no gaps"
    CONTROLLER_PROMISED = "a voter promises a controller epoch once, and then only higher ones"
    TOPIC_KEPT = "an acknowledged topic is there at the end"
    VOTERS_AGREE = (
        "a majority of voters holds all committed records, each voter what its epoch knew"
    )
    SERVED_AGAIN = "everything is served again soon after the faults stop"
    OFFSETS_FORWARD = "a group's offset is its last acknowledged one, or a later attempt"
    OFFSETS_OF_TOPIC = "offsets of a deleted topic do not count for its successor"
    ONE_GENERATION = "members of one generation get the same leader and protocol"
    ONE_OWNER = "a partition has one owner in a group, the assigned one"
    MEMBERS_FENCED = "a commit of an earlier generation is refused"
    GROUPS_SETTLE = "members own every partition once soon after the faults stop"
    GONE_BY_RIGHT = "a record is removed only because of its own age, or by a deletion"
    DELETED_STAY_GONE = "records deleted by request do not come back"
    AGED_GO = "records older than retention.ms are deleted"
    NEWEST_KEPT = "the newest value of a key survives compaction"
    PRODUCERS_EXPIRE = "idle producers expire with any cleanup policy"
    COPIES_KEPT = "no broker removes records that an operator could still use"
    OLDER_REFUSED = "no broker serves with metadata older than its directory has known"
    REFUSAL_TOLD = "a broker that does not serve says why, and what can be done"
    UNCLEAN_ELECTED = "if unclean election is allowed, a live replica leads soon"
    GROWN = "a cluster of three brokers has three voters, and its internal topics their replicas"
    UNBROKEN = "no actor ends because of a broken invariant"
    COMMITTED_VISIBLE = (
        "an acknowledged commit is visible once in every partition of the transaction"
    )
    ABORTED_HIDDEN = "no record of an aborted transaction is visible to read_committed"
    NOT_TORN = "all records of a transaction are visible, in all its partitions, or none"
    OFFSETS_WITH_OUTPUT = "a record is copied once if the group has passed it, else not at all"
    OFFSETS_AS_LOGGED = "a group's offset is that of its last committed transaction"
    READS_DECIDED = "read_committed gets nothing at or above the last stable offset"
    READS_COMPLETE = "read_committed gets everything that is committed"
    STABLE_AS_LOGGED = "the last stable offset follows from the log below the high watermark"
    MARKERS_FORWARD = "epochs of a producer's markers never go back"
    ABORTS_INDEXED = "every replica knows the aborted transactions in its log"
    TRANSACTIONS_END = "transactions end soon after their timeout, and readers get to the end"
    HASTE_GOES_UNPUNISHED = "a lone producer is not fenced for going on at once"
    WRITTEN_ONCE = "a record sent once by an idempotent producer is there at most once"
    WRITTEN_IN_ORDER = "records of one producer in a partition are in the order of its calls"
    PROCESSED_ALL = "if processing precedes the commit, every record is processed"
    PROCESSED_ONCE = "if the commit precedes processing, no record is processed twice"
    COMMITS_PROCESSED = "no commit covers a record that is not processed yet"
    COMMITS_IN_ORDER = "an older commit never overwrites a newer one"
    GROUPS_CATCH_UP = "groups get to the end of what they read soon after the faults stop"


class PropertyViolated(Exception):
    """A property does not hold: the simulation has found a bug."""


class Checks:
    """Counts checks. The first violation ends the run."""

    def __init__(self) -> None:
        self.counts: Counter[Property] = Counter(dict.fromkeys(Property, 0))
        self.violations: list[str] = []

    def hold(self, one: Property, holds: bool, *details: object) -> None:
        """Count a check; `details` describe what was found."""
        self.counts[one] += 1
        if not holds:
            self.violations.append(f"{one.name}: {' '.join(map(str, details))}")

    def raise_violations(self) -> None:
        """Raise PropertyViolated if any property did not hold."""
        if self.violations:
            raise PropertyViolated("; ".join(self.violations[:3]))
