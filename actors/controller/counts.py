"""Counts a controller's decisions, and samples the state of the cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from raylog.actors.decisions import UNCLEAN, Decided
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import NO_LEADER, BrokerFenced, PartitionChanged, Record
from raylog.actors.metrics.counts import Histogram
from raylog.actors.metrics.families import controller as families
from raylog.actors.metrics.samples import Samples

if TYPE_CHECKING:
    from raylog.actors.controller.term import Term
    from raylog.actors.runtime.base import Runtime

TURN = 2_000
"""Partitions sampled in one turn of the event loop."""


class ControllerCounts:
    """Counts of one controller process, across its epochs."""

    __slots__ = (
        "appends",
        "elections",
        "fencings",
        "records",
        "unclean_at_ms",
        "unclean_elections",
    )

    def __init__(self) -> None:
        self.elections = 0
        self.unclean_elections = 0
        self.unclean_at_ms = 0
        """Time of the last unclean election, in ms since the Unix epoch; 0 if there was none."""
        self.fencings = 0
        self.records = 0
        self.appends = Histogram(families.APPEND_SECONDS)

    def decided(
        self,
        image: MetadataImage,
        records: Sequence[Record],
        decisions: Iterable[Decided],
        now_ms: int,
    ) -> None:
        """Count records that are about to be applied to the image."""
        self.records += len(records)
        unclean = sum(one.kind == UNCLEAN for one in decisions)
        self.unclean_elections += unclean
        if unclean:
            self.unclean_at_ms = now_ms
        for record in records:
            if isinstance(record, PartitionChanged):
                state = image.partition(record.topic_id, record.partition)
                before = NO_LEADER if state is None else state.leader
                self.elections += record.leader not in (None, NO_LEADER, before)
            elif isinstance(record, BrokerFenced):
                self.fencings += 1

    def sample(self, samples: Samples) -> None:
        """Sample all counts."""
        samples.add(families.ELECTIONS, self.elections)
        samples.add(families.UNCLEAN_ELECTIONS, self.unclean_elections)
        samples.add(families.UNCLEAN_AT, self.unclean_at_ms / 1000)
        samples.add(families.FENCINGS, self.fencings)
        samples.add(families.RECORDS, self.records)
        samples.histogram(families.APPENDS, self.appends)


async def sample_term(runtime: Runtime, term: Term, lease_age_ms: float, samples: Samples) -> None:
    """Sample the state of the cluster from the metadata of a controller that serves."""
    image = term.machine.image
    brokers = Counter(
        "fenced" if one.fenced else "shutting down" if one.shutting_down else "active"
        for one in image.brokers.values()
    )
    for state in ("active", "fenced", "shutting down"):
        samples.add(families.BROKERS, brokers[state], state)
    for family, figure in (
        (families.EPOCH, term.quorum.epoch),
        (families.LEASE_AGE, max(lease_age_ms, 0.0) / 1000),
        (families.TOPICS, len(image.topics)),
        (families.LOG_END, image.offset),
        (families.UNCOMMITTED, image.offset - term.committed),
        (families.SINCE_SNAPSHOT, term.bytes_since_snapshot),
    ):
        samples.add(family, figure)
    for broker_id, _, end, _, _ in term.quorum.progress():
        if end >= 0:
            samples.add(families.VOTER_LAG, max(image.offset - end, 0), str(broker_id))
    await _sample_partitions(runtime, image, samples)


async def _sample_partitions(runtime: Runtime, image: MetadataImage, samples: Samples) -> None:
    count = offline = out_of_sync = reassigning = displaced = 0
    for topic in list(image.topics.values()):
        for state in topic.partitions:
            count += 1
            offline += state.leader == NO_LEADER
            out_of_sync += len(state.isr) < len(state.replicas)
            reassigning += bool(state.adding_replicas or state.removing_replicas)
            displaced += state.leader not in (NO_LEADER, state.replicas[0])
            if count % TURN == 0:
                await runtime.sleep(0)
    for family, figure in (
        (families.CLUSTER_PARTITIONS, count),
        (families.OFFLINE, offline),
        (families.OUT_OF_SYNC, out_of_sync),
        (families.REASSIGNING, reassigning),
        (families.DISPLACED, displaced),
    ):
        samples.add(family, figure)
