"""Rebuilds metadata from the brokers' data directories after the metadata log is lost.

`plan_rebuild` decides from what was found in the directories (`found.py`) and from a copy of the
metadata, if one is left. It reads nothing itself.

| what | after the rebuild |
|---|---|
| brokers | those whose directories were found, fenced, with the broker epoch that each recorded |
| voters | the first three of them; if there are fewer than three, only the first |
| topics | those with at least one directory, with all partitions that they had |
| leader of a partition | the highest last epoch, then the longest log; among equals one that is |
|  | whole, in turn |
| in-sync replicas | only the leader: the others truncate by its epochs, then catch up |
| logs that were open | every copy: a broker that returns without one lacks records |
| leader epochs, broker epochs, metadata offsets, producer ids | continue above the highest found |
| where brokers should run | what the newest copy of that in a directory says |
| settings | the last effective ones; where these are unknown nothing is ever removed or compacted |
|  | (`rebuilt_settings.py`) |
| features | the highest levels of this build, as in a new cluster |

Topics without any directory are lost. Without a copy of the metadata the settings of the cluster,
of brokers and of groups are lost, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from raylog.actors.broker.rules.directories import directory_name
from raylog.actors.common_messages import TopicId
from raylog.actors.config import BrokerSettings, ResourceType
from raylog.actors.controller.rules.topics import check_name
from raylog.actors.coordinator_kinds import KIND_OF_TOPIC
from raylog.actors.metadata.features import SUPPORTED
from raylog.actors.metadata.found import PRODUCER_ID_MAX
from raylog.actors.metadata.found import FoundBroker as FoundBroker
from raylog.actors.metadata.found import FoundReplica as FoundReplica
from raylog.actors.metadata.image import MetadataImage, PartitionState
from raylog.actors.metadata.rebuilt_settings import (
    COMPACTED_AT_ONCE,
    KEEP_CLUSTER_WIDE,
    is_newest,
    other_settings,
    topic_settings,
)
from raylog.actors.metadata.records import (
    NO_LEADER,
    BrokerRegistered,
    BrokerWanted,
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
from raylog.wire.errors import InvalidTopicException
from raylog.wire.uuids import to_base64

VOTERS_MAX = 3
EPOCHS_SKIPPED = 1_000
"""Leaders may have started epochs that no log shows, and clients ignore metadata with an older
epoch than one they have seen."""
PRODUCER_IDS_SKIPPED = 1_000_000
"""Producers may hold ids with which they have not written yet."""
OFFSETS_SKIPPED = 1_000_000
"""Brokers record how far they have followed the metadata only from time to time."""
EPOCH_MAX = 2**30
"""Limit for the epochs of leaders and controllers. They have 31 bits, and no cluster has held this
many elections."""
OFFSET_MAX = 2**62
"""Limit for offsets of the metadata."""
PARTITION_MAX = 1_000_000
"""No topic has a partition with a higher number."""
NAMED_MAX = 20
"""Maximum number of partitions or topics named in a message."""
WAS_OPEN = "before-rebuild"
"""An incarnation of a log before any real one: a broker that has no log now has lost one."""


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """A partition after the rebuild."""

    partition: int
    leader: int
    """NO_LEADER for one that starts empty."""
    replicas: tuple[int, ...]
    """Brokers with a copy first."""
    leader_epoch: int
    ends: Mapping[int, tuple[int, int]]
    """Broker id to (last epoch, log end) of its copy."""
    is_whole: bool = True
    """Whether the leader's log is whole. If not, it leads only after an unclean election."""
    offsets: int = 0
    """Records from the leader's log start to its end, if nothing was compacted."""


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """A topic after the rebuild."""

    topic_id: TopicId
    name: str
    settings: Mapping[str, str]
    settings_known: bool
    partitions: tuple[PlannedPartition, ...]


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    """The new metadata. It must not be written while there are `problems`."""

    cluster_id: str
    metadata_id: str
    """A new id, so that brokers refuse what is left of the old metadata."""
    offset: int
    """Offset of the snapshot: above all broker epochs and everything that brokers have followed."""
    epoch: int
    """The controller epoch of the snapshot."""
    voters: Voters
    brokers: tuple[FoundBroker, ...]
    topics: tuple[PlannedTopic, ...]
    next_producer_id: int
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Warnings for the operator before the metadata is written."""
    other_settings: tuple[ConfigChanged, ...] = ()
    """Settings of the cluster, of brokers and of groups."""
    wanted: tuple[BrokerWanted, ...] = ()
    """Where brokers should run, on a Ray cluster of several machines."""


@dataclass(frozen=True, slots=True)
class Choices:
    """The operator's decisions about what the directories leave open."""

    names: Mapping[TopicId, str] = field(default_factory=dict)
    excluded: frozenset[TopicId] = frozenset()
    """Topics to leave out; their directories become strays."""
    accept_missing: bool = False
    """Whether partitions without a copy start empty."""
    partitions: Mapping[str, int] = field(default_factory=dict)
    """Minimum number of partitions of topics."""
    without: frozenset[int] = frozenset()
    """Brokers that are lost, together with everything that only they had."""


def plan_rebuild(
    found: Sequence[FoundBroker],
    choices: Choices,
    metadata_id: str,
    image: MetadataImage | None = None,
) -> RebuildPlan:
    """Plan the new metadata.

    `found` has one or more brokers of the cluster, each once. `image` is a remaining copy of the
    metadata, which may be outdated.
    """
    brokers = sorted(found, key=lambda one: one.broker_id)
    newest = is_newest(image, brokers)
    planning = _Planning(brokers, choices, image, keeps=not newest)
    topics = planning.topics()
    planning.check_numbers()
    planning.check_brokers()
    voters = brokers[: VOTERS_MAX if len(brokers) >= VOTERS_MAX else 1]
    noted = max(max(one.broker_epoch, one.metadata_offset) for one in brokers)
    if not newest:
        planning.notes.append(_kept_cluster_wide(image))
    return RebuildPlan(
        cluster_id=brokers[0].cluster_id,
        metadata_id=metadata_id,
        offset=max(noted, 0) + OFFSETS_SKIPPED,
        epoch=max(0, *(one.metadata_epoch for one in brokers)) + EPOCHS_SKIPPED,
        voters=tuple((one.broker_id, one.directory_id) for one in voters),
        brokers=tuple(brokers),
        topics=tuple(topics),
        next_producer_id=planning.highest_producer_id() + PRODUCER_IDS_SKIPPED,
        problems=tuple(planning.problems),
        notes=tuple(planning.notes),
        other_settings=tuple(other_settings(image, newest=newest)),
    )


def _kept_cluster_wide(image: MetadataImage | None) -> str:
    why = (
        "settings of the cluster, of brokers and of groups are not known"
        if image is None
        else "settings of the cluster, of brokers and of groups come from a copy of the metadata "
        "that is older than what brokers have followed"
    )
    unset = " ".join(f"--unset {key}" for key in KEEP_CLUSTER_WIDE)
    return (
        f"{why}. So retention and compaction are off cluster-wide, for every topic that has no "
        "such setting of its own, and logs grow until you say otherwise. Give each of these "
        "settings its value (raylog configs alter broker --set KEY=VALUE), or take them back: "
        "raylog configs "
        f"alter broker {unset}"
    )


def records_of(plan: RebuildPlan) -> list[Record]:
    """Return the records of the snapshot."""
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
    records += plan.other_settings
    records += [
        FeatureChanged(name, feature.high, level)
        for level, (name, feature) in enumerate(SUPPORTED.items())
    ]
    records.append(ProducerIdsAllocated(-1, -1, plan.next_producer_id))
    records += plan.wanted
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
            incarnations=dict.fromkeys(one.replicas if one.ends else (), WAS_OPEN),
        )
    for key, value in sorted(topic.settings.items()):
        yield ConfigChanged(ResourceType.TOPIC, topic.name, key, value)


# ---- topics --------------------------------------------------------------------------------------

Copies = dict[int, list[tuple[FoundBroker, FoundReplica]]]
"""Partition to its copies."""


class _Planning:
    """Plans topics, and collects problems."""

    def __init__(
        self,
        brokers: Sequence[FoundBroker],
        choices: Choices,
        image: MetadataImage | None,
        *,
        keeps: bool,
    ) -> None:
        self._brokers = brokers
        self._broker_ids = [broker.broker_id for broker in brokers]
        self._choices = choices
        self._image = image
        self._keeps = keeps
        """Whether the cluster-wide settings keep everything: the effective ones are unknown."""
        self.problems: list[str] = []
        self.notes: list[str] = []
        self._uncounted: list[str] = []

    def topics(self) -> list[PlannedTopic]:
        """Plan all topics that have a directory."""
        topics = []
        found = self._found()
        for topic_id, copies in found.items():
            name = self._name(topic_id, copies)
            if name is not None:
                self._check_directories(topic_id, name, copies)
                topics.append(self._topic(topic_id, name, copies))
        topics.sort(key=lambda one: (one.name, one.topic_id))
        for one, other in pairwise(topics):
            if one.name == other.name:
                self.problems.append(
                    f"topic {one.name} was found with the ids {to_base64(one.topic_id)} and "
                    f"{to_base64(other.topic_id)}: it was deleted and made again. Leave the older "
                    "one out with --exclude ID"
                )
        if self._uncounted:
            self.notes.append(
                "how many partitions these topics had is not known, they will have as many as the "
                "highest found tells (--partitions TOPIC=NUMBER says otherwise): "
                + _named(sorted(self._uncounted))
            )
        self._note_lost(found)
        return topics

    def _found(self) -> dict[TopicId, Copies]:
        found: dict[TopicId, Copies] = defaultdict(lambda: defaultdict(list))
        for broker in self._brokers:
            for replica in broker.replicas:
                if replica.topic_id in self._choices.excluded:
                    continue
                if replica.partition > PARTITION_MAX:
                    self.problems.append(
                        f"broker {broker.broker_id} has {replica.directory}: no topic has a "
                        f"partition {replica.partition}. " + _leave_out(broker, replica)
                    )
                    continue
                found[replica.topic_id][replica.partition].append((broker, replica))
        return found

    def _note_lost(self, found: Mapping[TopicId, Copies]) -> None:
        if self._image is None:
            return
        gone = self._image.topics.keys() - found.keys() - self._choices.excluded
        if gone:
            self.notes.append(
                "a copy of the metadata has topics none of whose partitions has a directory. They "
                f"are left out: {_named(sorted(self._image.topics[one].name for one in gone))}"
            )

    def _name(self, topic_id: TopicId, copies: Copies) -> str | None:
        shown = to_base64(topic_id)
        names = {replica.topic for _, replica in _all(copies) if replica.topic is not None}
        if not names and self._image is not None and topic_id in self._image.topics:
            names = {self._image.topics[topic_id].name}
        if topic_id in self._choices.names:
            names = {self._choices.names[topic_id]}
        if len(names) > 1:
            self.problems.append(f"topic id {shown} has several names: {', '.join(sorted(names))}")
        if not names:
            directory = next(_all(copies))[1].directory
            self.problems.append(
                f"the name of the topic with id {shown} is known in part only "
                f"({directory}): give it with --name {shown}=NAME"
            )
            return None
        name = min(names)
        try:
            check_name(name)
        except InvalidTopicException as wrong:
            self.problems.append(
                f"the topic with id {shown} cannot be called {name!r}. {wrong}. Give its name with "
                f"--name {shown}=NAME, or leave it out with --exclude {shown}"
            )
        return name

    def _check_directories(self, topic_id: TopicId, name: str, copies: Copies) -> None:
        """Report directories in which no broker would look for the partition."""
        for partition, of_partition in copies.items():
            expected = directory_name(name, (topic_id, partition))
            self.problems += [
                f"broker {broker.broker_id} has {one.directory} with the log of {name}-{partition}"
                f", which belongs into {expected}: directories were mixed up, or the name is wrong"
                for broker, one in of_partition
                if one.directory != expected
            ]

    def _topic(self, topic_id: TopicId, name: str, copies: Copies) -> PlannedTopic:
        count = self._count(topic_id, name, copies)
        missing = [one for one in range(count) if one not in copies]
        if missing and not self._choices.accept_missing:
            self.problems.append(
                f"topic {name} has {count} partitions, and there is no copy of {_named(missing)}: "
                "find the directories, or let these partitions begin empty with --accept-missing"
            )
        factor = max(len(of_partition) for of_partition in copies.values())
        epoch = max(replica.last_epoch for _, replica in _all(copies)) + EPOCHS_SKIPPED
        partitions = tuple(
            self._partition(topic_id, one, copies[one], epoch)
            if one in copies
            else self._empty(one, factor, epoch)
            for one in range(count)
        )
        settings = topic_settings(topic_id, name, _all(copies), self._image)
        own = settings.settings
        if self._keeps and name in KIND_OF_TOPIC:
            own = {**COMPACTED_AT_ONCE, **own}
        if settings.differ:
            self.notes.append(
                f"what was found of topic {name}'s settings differs, and which are the latest is "
                "not known: it keeps everything"
            )
        return PlannedTopic(topic_id, name, own, settings.known, partitions)

    def _count(self, topic_id: TopicId, name: str, copies: Copies) -> int:
        """Return the number of partitions of the topic: the highest number that any source has."""
        count = max(replica.partitions for _, replica in _all(copies))
        if self._image is not None and topic_id in self._image.topics:
            count = max(count, len(self._image.topics[topic_id].partitions))
        count = max(count, self._choices.partitions.get(name, 0))
        if not count and name in KIND_OF_TOPIC:
            key = f"{KIND_OF_TOPIC[name].settings}.num.partitions"
            count = BrokerSettings().number(key)
            self.notes.append(
                f"how many partitions {name} had is not known: {key} is {count} where it was not "
                f"set. Another number is given with --partitions {name}=NUMBER"
            )
        if not count:
            self._uncounted.append(name)
        return max(count, max(copies) + 1)

    def _partition(
        self,
        topic_id: TopicId,
        partition: int,
        copies: Sequence[tuple[FoundBroker, FoundReplica]],
        epoch: int,
    ) -> PlannedPartition:
        def rank(one: tuple[FoundBroker, FoundReplica]) -> tuple[int, int, bool, int]:
            broker, replica = one
            turn = (self._broker_ids.index(broker.broker_id) - partition) % len(self._broker_ids)
            return -replica.last_epoch, -replica.log_end_offset, not replica.is_whole, turn

        ordered = sorted(copies, key=rank)
        leader, replica = ordered[0]
        ends = {broker.broker_id: (one.last_epoch, one.log_end_offset) for broker, one in ordered}
        state = None if self._image is None else self._image.partition(topic_id, partition)
        return PlannedPartition(
            partition,
            leader.broker_id,
            (*ends, *self._without_copy(state, ends)),
            epoch,
            ends,
            replica.is_whole,
            replica.log_end_offset - replica.log_start_offset,
        )

    def _without_copy(
        self, state: PartitionState | None, ends: Mapping[int, object]
    ) -> Iterator[int]:
        """Yield brokers that should have a copy but do not; they get it from the leader."""
        if state is not None:
            yield from [
                one for one in state.replicas if one in self._broker_ids and one not in ends
            ]

    def _empty(self, partition: int, factor: int, epoch: int) -> PlannedPartition:
        brokers = self._broker_ids
        replicas = tuple(
            brokers[(partition + at) % len(brokers)] for at in range(min(factor, len(brokers)))
        )
        return PlannedPartition(partition, NO_LEADER, replicas, epoch, {})

    # ---- numbers -------------------------------------------------------------------------

    def check_brokers(self) -> None:
        """Report brokers of the cluster whose directories were not given."""
        known = {one for broker in self._brokers for one in broker.voters}
        if self._image is not None:
            known |= self._image.brokers.keys()
        missing = known - {*self._broker_ids} - self._choices.without
        self.problems += [
            f"broker {one} was in the cluster, and its directory was not given: this plan cannot "
            "know of topics, partitions and records that only it has, and leaves them out. Give "
            f"the directory too; if it is lost for good, --without {one}"
            for one in sorted(missing)
        ]

    def check_numbers(self) -> None:
        """Report epochs and offsets so high that there is no room above them.

        No cluster has reached them, so they can only come from a damaged file.
        """
        for broker in self._brokers:
            if (
                broker.metadata_epoch > EPOCH_MAX
                or max(broker.metadata_offset, broker.broker_epoch) > OFFSET_MAX
            ):
                self.problems.append(
                    f"broker {broker.broker_id} has noted controller epoch {broker.metadata_epoch}"
                    f", metadata offset {broker.metadata_offset} and broker epoch "
                    f"{broker.broker_epoch}, which no cluster reaches: its followed.json or "
                    "state.json is damaged. Leave the directory out"
                )
            self.problems += [
                f"broker {broker.broker_id} has {one.directory} with leader epoch {one.last_epoch}"
                ", which no leader reaches: the log is damaged. " + _leave_out(broker, one)
                for one in broker.replicas
                if one.last_epoch > EPOCH_MAX and one.topic_id not in self._choices.excluded
            ]

    def highest_producer_id(self) -> int:
        """Return the highest producer id found, except ids that no cluster has allocated."""
        replicas = [one for broker in self._brokers for one in broker.replicas]
        found = [
            number
            for one in replicas
            for number in (one.highest_producer_id, one.strange_producer_id)
        ]
        if self._image is not None:
            found.append(self._image.next_producer_id - 1)
        absurd = [one for one in found if one > PRODUCER_ID_MAX]
        if absurd:
            self.notes.append(
                f"producer id {max(absurd)} was found, which no cluster has given out: a client "
                "made it up. New ids go on above the others"
            )
        return max((one for one in found if one <= PRODUCER_ID_MAX), default=-1)


def _all(copies: Copies) -> Iterator[tuple[FoundBroker, FoundReplica]]:
    for of_partition in copies.values():
        yield from of_partition


def _named(them: Sequence[object]) -> str:
    """Name some of the items, and say how many more there are."""
    shown = ", ".join(map(str, them[:NAMED_MAX]))
    return shown if len(them) <= NAMED_MAX else f"{shown} and {len(them) - NAMED_MAX} more"


def _leave_out(broker: FoundBroker, replica: FoundReplica) -> str:
    """Say how to rebuild without a directory that cannot be used."""
    return (
        f"Leave its topic out with --exclude {to_base64(replica.topic_id)}, or the broker: name "
        f"the other brokers' directories, and --without {broker.broker_id}"
    )
