"""Metadata made from the brokers' data directories, for when the metadata log itself is lost.

`plan_rebuild` decides, from what was found in the directories (`FoundBroker`); it reads nothing.

| what | becomes |
|---|---|
| brokers | those whose directories were found, fenced, with the broker epoch that each has noted |
| voters | the first three of them; of fewer than three the first alone |
| leader of a partition | the highest last epoch, then the longest log; among equals by turns |
| in-sync replicas | the leader alone: the others catch up with it, cut to its epochs first |
| leader epochs, broker epochs, metadata offsets, producer ids | go on above the highest found |
| settings | of the newest `partition.json`; unknown: nothing is ever removed or compacted |
| features | the highest levels of this build, as in a new cluster |

Cluster-wide and broker settings are in no directory and are lost, and so are topics none of whose
partitions has a directory.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from raylog.actors.config import ResourceType
from raylog.actors.metadata.features import SUPPORTED
from raylog.actors.metadata.records import (
    NO_LEADER,
    BrokerRegistered,
    ClusterNamed,
    ConfigChanged,
    FeatureChanged,
    LeaderChanged,
    PartitionCreated,
    ProducerIdsAllocated,
    Record,
    TopicCreated,
    Voters,
    VotersChanged,
)
from raylog.actors.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from raylog.actors.ports import TopicId
from raylog.wire.uuids import to_base64

VOTERS_MAX = 3
EPOCHS_SKIPPED = 1_000
"""Leaders may have begun epochs that no log shows. Clients ignore metadata with an older epoch than
one that they have seen."""
PRODUCER_IDS_SKIPPED = 1_000_000
"""Producers may hold ids under which nothing was written yet."""
OFFSETS_SKIPPED = 1_000_000
"""Brokers note now and then how far they have followed the metadata, not at every record."""
KEEP_EVERYTHING = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Settings of a topic whose own are not known."""


@dataclass(frozen=True, slots=True)
class FoundReplica:
    """One partition's directory."""

    topic_id: TopicId
    partition: int
    topic: str | None
    """None where only the beginning of the name is known."""
    settings: Mapping[str, str] | None
    """The topic's own; None if they are not known."""
    log_start_offset: int
    log_end_offset: int
    last_epoch: int
    """The last leader epoch that its log knows; -1 for none."""
    highest_producer_id: int
    """Of those that wrote to it, or that it says of; -1 for none."""
    is_whole: bool
    """Whether it ends no earlier than it once did."""
    directory: str
    """Its name under `topics/`."""


@dataclass(frozen=True, slots=True)
class FoundBroker:
    """One broker's data directory."""

    broker_id: int
    cluster_id: str
    directory_id: str
    broker_epoch: int
    metadata_offset: int
    """How far it has followed the metadata, as far as it has noted; 0 if it has not."""
    metadata_epoch: int
    """The highest controller epoch that it has noted."""
    replicas: tuple[FoundReplica, ...]


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """A partition as it will be."""

    partition: int
    leader: int
    """NO_LEADER for one that begins empty."""
    replicas: tuple[int, ...]
    leader_epoch: int
    ends: Mapping[int, tuple[int, int]]
    """Broker id to (last epoch, log end) of its copy."""
    is_whole: bool = True
    """Whether the leader's log is; one that is not leads only after an unclean election."""


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """A topic as it will be."""

    topic_id: TopicId
    name: str
    settings: Mapping[str, str]
    settings_known: bool
    partitions: tuple[PlannedPartition, ...]


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    """What the new metadata says; nothing may be carried out while there are `problems`."""

    cluster_id: str
    metadata_id: str
    """A new one: brokers refuse what is left of the metadata before."""
    offset: int
    """Of the snapshot: above all broker epochs and all that brokers have followed."""
    epoch: int
    """The controller epoch that the snapshot stands for."""
    voters: Voters
    brokers: tuple[FoundBroker, ...]
    topics: tuple[PlannedTopic, ...]
    next_producer_id: int
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Choices:
    """What the operator said about what the directories leave open."""

    names: Mapping[TopicId, str] = field(default_factory=dict)
    excluded: frozenset[TopicId] = frozenset()
    """Topics to leave out; their directories become strays."""
    accept_missing: bool = False
    """Whether partitions of which there is no copy begin empty."""


def plan_rebuild(found: Sequence[FoundBroker], choices: Choices, metadata_id: str) -> RebuildPlan:
    """What the metadata will be. `found` are brokers of one cluster, each once, at least one."""
    brokers = sorted(found, key=lambda one: one.broker_id)
    problems: list[str] = []
    topics = _topics(brokers, choices, problems)
    replicas = [one for broker in brokers for one in broker.replicas]
    voters = brokers[: VOTERS_MAX if len(brokers) >= VOTERS_MAX else 1]
    noted = max(max(one.broker_epoch, one.metadata_offset) for one in brokers)
    return RebuildPlan(
        cluster_id=brokers[0].cluster_id,
        metadata_id=metadata_id,
        offset=max(noted, 0) + OFFSETS_SKIPPED,
        epoch=max(0, *(one.metadata_epoch for one in brokers)) + EPOCHS_SKIPPED,
        voters=tuple((one.broker_id, one.directory_id) for one in voters),
        brokers=tuple(brokers),
        topics=tuple(topics),
        next_producer_id=max((one.highest_producer_id for one in replicas), default=-1)
        + PRODUCER_IDS_SKIPPED,
        problems=tuple(problems),
    )


def records_of(plan: RebuildPlan) -> list[Record]:
    """The snapshot's records."""
    records: list[Record] = [
        LeaderChanged(plan.epoch),
        ClusterNamed(plan.cluster_id, plan.metadata_id),
        VotersChanged(plan.voters),
    ]
    records += [
        BrokerRegistered(
            broker_id=one.broker_id,
            broker_epoch=one.broker_epoch,
            host="",
            port=0,
            rack=None,
            directory_id=one.directory_id,
            incarnation="",
            fenced=True,
        )
        for one in plan.brokers
        if one.broker_epoch >= 0
    ]
    for topic in plan.topics:
        records.extend(_topic_records(topic))
    records += [
        FeatureChanged(name, feature.high, level)
        for level, (name, feature) in enumerate(SUPPORTED.items())
    ]
    records.append(ProducerIdsAllocated(-1, -1, plan.next_producer_id))
    return records


def _topic_records(topic: PlannedTopic) -> Iterable[Record]:
    yield TopicCreated(topic.topic_id, topic.name)
    for one in topic.partitions:
        yield PartitionCreated(
            topic_id=topic.topic_id,
            partition=one.partition,
            replicas=one.replicas,
            isr=one.replicas if one.leader == NO_LEADER else (one.leader,),
            leader=NO_LEADER,
            leader_epoch=one.leader_epoch,
            partition_epoch=one.leader_epoch,
        )
    for key, value in sorted(topic.settings.items()):
        yield ConfigChanged(ResourceType.TOPIC, topic.name, key, value)


# ---- topics --------------------------------------------------------------------------------------

Copies = dict[int, list[tuple[int, FoundReplica]]]
"""Partition to (broker id, replica) of its copies."""


def _topics(
    brokers: Sequence[FoundBroker], choices: Choices, problems: list[str]
) -> list[PlannedTopic]:
    found: dict[TopicId, Copies] = defaultdict(lambda: defaultdict(list))
    for broker in brokers:
        for replica in broker.replicas:
            if replica.topic_id not in choices.excluded:
                found[replica.topic_id][replica.partition].append((broker.broker_id, replica))
    topics = []
    for topic_id, copies in found.items():
        name = _name(topic_id, copies, choices, problems)
        if name is not None:
            topics.append(_topic(topic_id, name, copies, brokers, choices, problems))
    topics.sort(key=lambda one: (one.name, one.topic_id))
    for one, other in pairwise(topics):
        if one.name == other.name:
            problems.append(
                f"topic {one.name} was found with the ids {to_base64(one.topic_id)} and "
                f"{to_base64(other.topic_id)}: it was deleted and made again. Leave the older one "
                "out with --exclude ID"
            )
    return topics


def _name(topic_id: TopicId, copies: Copies, choices: Choices, problems: list[str]) -> str | None:
    if topic_id in choices.names:
        return choices.names[topic_id]
    replicas = [replica for of_partition in copies.values() for _, replica in of_partition]
    names = {replica.topic for replica in replicas if replica.topic is not None}
    shown = to_base64(topic_id)
    if len(names) > 1:
        problems.append(f"topic id {shown} has several names: {', '.join(sorted(names))}")
    if not names:
        problems.append(
            f"the name of the topic with id {shown} is known in part only "
            f"({replicas[0].directory}): give it with --name {shown}=NAME"
        )
        return None
    return min(names)


def _topic(
    topic_id: TopicId,
    name: str,
    copies: Copies,
    brokers: Sequence[FoundBroker],
    choices: Choices,
    problems: list[str],
) -> PlannedTopic:
    count = max(copies) + 1
    missing = [one for one in range(count) if one not in copies]
    if missing and not choices.accept_missing:
        problems.append(
            f"topic {name} has {count} partitions or more, and there is no copy of "
            f"{', '.join(map(str, missing))}: find the directories, or let these partitions begin "
            "empty with --accept-missing"
        )
    broker_ids = [broker.broker_id for broker in brokers]
    factor = max(len(of_partition) for of_partition in copies.values())
    epoch = _first_epoch(copies)
    partitions = tuple(
        _partition(one, copies[one], broker_ids, epoch)
        if one in copies
        else _empty(one, broker_ids, factor, epoch)
        for one in range(count)
    )
    settings = _settings(copies)
    if settings is not None:
        return PlannedTopic(topic_id, name, settings, True, partitions)
    kept = (
        {"cleanup.policy": "compact"}
        if name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
        else KEEP_EVERYTHING
    )
    return PlannedTopic(topic_id, name, kept, False, partitions)


def _first_epoch(copies: Copies) -> int:
    """One that no leader of the topic can have had."""
    replicas = [replica for of_partition in copies.values() for _, replica in of_partition]
    return max(replica.last_epoch for replica in replicas) + EPOCHS_SKIPPED


def _settings(copies: Copies) -> Mapping[str, str] | None:
    """The topic's own settings where all copies that know them agree, or most of them do."""
    told: Counter[frozenset[tuple[str, str]]] = Counter()
    for of_partition in copies.values():
        for _, replica in of_partition:
            if replica.settings is not None:
                told[frozenset(replica.settings.items())] += 1
    if not told:
        return None
    most = max(told.values())
    return dict(min((one for one in told if told[one] == most), key=sorted))


def _partition(
    partition: int,
    copies: Sequence[tuple[int, FoundReplica]],
    broker_ids: Sequence[int],
    epoch: int,
) -> PlannedPartition:
    def rank(one: tuple[int, FoundReplica]) -> tuple[int, int, int]:
        broker_id, replica = one
        turn = (broker_ids.index(broker_id) - partition) % len(broker_ids)
        return -replica.last_epoch, -replica.log_end_offset, turn

    ordered = sorted(copies, key=rank)
    leader, replica = ordered[0]
    return PlannedPartition(
        partition,
        leader,
        tuple(broker_id for broker_id, _ in ordered),
        epoch,
        {broker_id: (one.last_epoch, one.log_end_offset) for broker_id, one in ordered},
        replica.is_whole,
    )


def _empty(partition: int, broker_ids: Sequence[int], factor: int, epoch: int) -> PlannedPartition:
    replicas = tuple(
        broker_ids[(partition + at) % len(broker_ids)] for at in range(min(factor, len(broker_ids)))
    )
    return PlannedPartition(partition, NO_LEADER, replicas, epoch, {})
