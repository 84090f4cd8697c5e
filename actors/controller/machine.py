"""All decisions of the controller: what each request changes, and its answer.

Handlers return records and an answer and change nothing of the metadata; only `replay` does. So a
controller that loads the log and one that wrote it hold the same state. Each concern has a class
of its own over the same image; this one puts them together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from random import Random  # noqa: TID251 - the type; chance is handed in

from raylog.actors.config import BrokerSettings
from raylog.actors.controller.api import (
    AllocateProducerIds,
    AlterConfigs,
    AlterPartitions,
    AlterReassignments,
    ConfigOutcome,
    FeatureOutcome,
    IsrOutcome,
    PartitionsOpened,
    ProducerIdBlock,
    ReassignOutcome,
    ReplicasLost,
    UpdateFeatures,
)
from raylog.actors.controller.brokers import BrokerControl
from raylog.actors.controller.configs import ConfigControl
from raylog.actors.controller.decision import Decision
from raylog.actors.controller.features import FeatureControl
from raylog.actors.controller.index import PartitionIndex
from raylog.actors.controller.internal_topics import InternalTopicControl
from raylog.actors.controller.leaders import LeaderControl
from raylog.actors.controller.partitions import PartitionControl
from raylog.actors.controller.reassignments import ReassignmentControl
from raylog.actors.controller.topics import TopicControl
from raylog.actors.controller.voters import VoterControl
from raylog.actors.metadata.features import ELIGIBLE_LEADERS
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import (
    ClusterNamed,
    FeatureChanged,
    LeaderChanged,
    ProducerIdsAllocated,
    Record,
    VotersChanged,
)
from raylog.actors.metadata.terms import NONCE_END
from raylog.wire.errors import ErrorCode
from raylog.wire.uuids import random_uuid, to_base64

PRODUCER_ID_BLOCK = 1_000


class ControllerMachine:
    """The cluster's metadata, and who may change it how."""

    def __init__(self, cluster_id: str, settings: BrokerSettings, rng: Random) -> None:
        self._cluster_id = cluster_id
        self._rng = rng
        self.image = MetadataImage()
        self.index = PartitionIndex(self.image)
        self.partitions = PartitionControl(self.image, self.index, settings)
        self.brokers = BrokerControl(self.image, settings, self.partitions)
        self.leaders = LeaderControl(self.image, self.index, settings, self.partitions)
        self.reassignments = ReassignmentControl(self.image, self.partitions)
        self.topics = TopicControl(self.image, self.index, settings, rng)
        self.configs = ConfigControl(self.image, settings)
        self.features = FeatureControl(self.image)
        self.voters = VoterControl(self.image)
        self.internal_topics = InternalTopicControl(self.image, settings, self.reassignments)

    def replay(self, records: Iterable[Record]) -> None:
        """Take records into the state: of the log when loading, or just appended."""
        for record in records:
            self.index.apply(record)

    def took_over(
        self,
        controller_epoch: int,
        voters: tuple[tuple[int, str], ...],
        now_ms: int,
        controller: str = "",
        silent_ms: int = 0,
    ) -> list[Record]:
        """The first records of this controller's epoch; on a new cluster, its beginning.

        No broker has been heard by any controller for `silent_ms`. Metadata of a build that gave it
        no id is given one.
        """
        self.brokers.took_over(now_ms, silent_ms)
        nonce = self._rng.randrange(1, NONCE_END)
        records: list[Record] = [LeaderChanged(controller_epoch, controller, nonce)]
        if not self.image.metadata_id:
            metadata_id = to_base64(random_uuid(self._rng))
            records.append(ClusterNamed(self._cluster_id, metadata_id))
        if not self.image.cluster_id:
            records.append(VotersChanged(voters))
            records.extend(self.features.bootstrap())
        return records

    def settle(self) -> Iterator[list[Record]]:
        """What else this controller begins with: elections, step by step, each to be replayed."""
        for records, _ in self.partitions.took_over():
            yield records

    def partitions_opened(self, asked: PartitionsOpened) -> Decision[None]:
        """Logs were opened on a broker."""
        self.brokers.current(asked.broker_id, asked.broker_epoch)
        return Decision(list(self.partitions.opened(asked.broker_id, asked.opened)), None)

    def replicas_lost(self, asked: ReplicasLost) -> Decision[None]:
        """A Replica process of a broker ended."""
        self.brokers.current(asked.broker_id, asked.broker_epoch)
        return Decision(list(self.partitions.replicas_gone(asked.broker_id, asked.lost)), None)

    def alter_partitions(self, asked: AlterPartitions) -> Decision[list[IsrOutcome]]:
        """Leaders change their in-sync replicas."""
        self.brokers.current(asked.broker_id, asked.broker_epoch)
        return self.partitions.alter(asked)

    def alter_configs(self, asked: AlterConfigs) -> Decision[list[ConfigOutcome]]:
        """Change settings, and what follows from them."""
        decision = self.configs.alter(asked)
        follows = list(self.partitions.settings_changed(decision.records))
        return Decision([*decision.records, *follows], decision.response)

    def alter_reassignments(self, asked: AlterReassignments) -> Decision[list[ReassignOutcome]]:
        """Begin or end reassignments that somebody asks for."""
        decision = self.reassignments.alter(asked)
        outcomes = zip(asked.partitions, decision.response, strict=True)
        begun = [one for one, outcome in outcomes if outcome.error == ErrorCode.NONE]
        kept = self.alter_configs(self.internal_topics.fewer(AlterReassignments(begun)))
        return Decision([*decision.records, *kept.records], decision.response)

    def grow_internal_topics(self, now_ms: int, settled: Collection[int]) -> list[Record]:
        """Give internal topics what a cluster that has grown can give them; one step at a time."""
        if not self.internal_topics.may_grow(settled):
            return []
        records = self.internal_topics.grow(now_ms, settled)
        min_isr = None if records else self.internal_topics.min_isr()
        if min_isr is not None:
            records = self.alter_configs(min_isr).records
        if not records:
            self.internal_topics.rest(settled)
        return records

    def update_features(self, asked: UpdateFeatures) -> Decision[list[FeatureOutcome]]:
        """Change feature levels, and what follows from them."""
        decision = self.features.update(asked)
        ends = any(
            isinstance(record, FeatureChanged)
            and (record.name, record.level) == (ELIGIBLE_LEADERS, 0)
            for record in decision.records
        )
        follows = list(self.partitions.elr_ends()) if ends else []
        return Decision([*decision.records, *follows], decision.response)

    def allocate_producer_ids(self, asked: AllocateProducerIds) -> Decision[ProducerIdBlock]:
        """Give a broker the next block of producer ids."""
        self.brokers.current(asked.broker_id, asked.broker_epoch)
        first = self.image.next_producer_id
        record = ProducerIdsAllocated(
            asked.broker_id, asked.broker_epoch, first + PRODUCER_ID_BLOCK
        )
        return Decision([record], ProducerIdBlock(first, PRODUCER_ID_BLOCK))
