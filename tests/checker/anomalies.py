"""The results of a check."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from tests.checker.operations import Partition


class Kind(StrEnum):
    """The names of anomalies. The package's docstring explains them."""

    LOST_WRITE = "lost-write"
    DUPLICATE = "duplicate"
    INCONSISTENT_OFFSET = "inconsistent-offset"
    NONMONOTONIC_POLL = "nonmonotonic-poll"
    INTERNAL_NONMONOTONIC_POLL = "internal-nonmonotonic-poll"
    SKIPPED_POLL = "skipped-poll"
    INTERNAL_SKIPPED_POLL = "internal-skipped-poll"
    NONMONOTONIC_SEND = "nonmonotonic-send"
    APPEND_AGAINST_TIME = "append-against-time"
    ABORTED_READ = "aborted-read"
    PRECOMMITTED_READ = "precommitted-read"
    PHANTOM = "phantom"
    G0 = "G0"
    G1C = "G1c"
    G1C_WITH_WRITES = "G1c-ww"
    UNSEEN = "unseen"


@dataclass(frozen=True, slots=True)
class Options:
    """The guarantees of the checked system, and what the history can show."""

    write_isolation: bool = False
    """Whether transactions' writes must not interleave. Kafka allows that (G0, G1c-ww)."""
    process_order: bool = True
    """Whether the order of a process's transactions counts in the graph of cycles."""
    one_clock: bool = True
    """Whether times of different processes are comparable: all ran on one machine."""
    all_sends_recorded: bool = True
    """Whether a value without a send in the history is an anomaly (phantom)."""

    @property
    def tolerated(self) -> frozenset[Kind]:
        """The kinds that are reported and are not anomalies."""
        interleaving = frozenset({Kind.G0, Kind.G1C_WITH_WRITES})
        return frozenset({Kind.UNSEEN}) | (frozenset() if self.write_isolation else interleaving)


@dataclass(slots=True)
class Anomaly:
    """A finding with a minimal proof."""

    kind: Kind
    message: str
    partition: Partition | None = None
    values: tuple[str, ...] = ()
    offsets: tuple[int, ...] = ()
    processes: tuple[str, ...] = ()
    transactions: tuple[str, ...] = ()
    operations: list[str] = field(default_factory=list)
    """Lines of the history, with polls cut to what matters; only for the first of a kind."""


@dataclass(slots=True)
class Counts:
    """The size of what was checked."""

    operations: int = 0
    sends: int = 0
    acknowledged: int = 0
    failed: int = 0
    unknown: int = 0
    polls: int = 0
    records_polled: int = 0
    transactions: int = 0
    processes: int = 0
    partitions: int = 0
    partitions_read_to_the_end: int = 0
    unseen: int = 0
    """Acknowledged and never polled, in partitions that were not read to the end."""


@dataclass(slots=True)
class Verdict:
    """The result of a check."""

    anomalies: list[Anomaly]
    """What must not happen."""
    tolerated: list[Anomaly]
    """What is allowed but worth reporting."""
    counts: Counts

    @property
    def valid(self) -> bool:
        """Whether there is no anomaly."""
        return not self.anomalies

    def of(self, kind: Kind) -> list[Anomaly]:
        """The findings of a kind, tolerated or not."""
        return [one for one in (*self.anomalies, *self.tolerated) if one.kind is kind]
