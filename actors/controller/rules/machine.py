"""All decisions of the controller: what each request changes, and its response.

Handlers return records and a response, and change no metadata; only `replay` does. So a controller
that has loaded the log has the same state as the one that wrote it. Each concern has its own class
over the same image, and this class combines them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from raylog.actors.config import BrokerSettings
from raylog.actors.controller.messages import (
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
from raylog.actors.controller.rules.brokers import BrokerControl
from raylog.actors.controller.rules.configs import ConfigControl
from raylog.actors.controller.rules.decision import Decision
from raylog.actors.controller.rules.features import FeatureControl
from raylog.actors.controller.rules.index import PartitionIndex
from raylog.actors.controller.rules.internal_topics import InternalTopicControl
from raylog.actors.controller.rules.leaders import LeaderControl
from raylog.actors.controller.rules.partitions import PartitionControl
from raylog.actors.controller.rules.reassignments import ReassignmentControl
from raylog.actors.controller.rules.topics import TopicControl
from raylog.actors.controller.rules.voters import VoterControl
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
from raylog.wire.uuids import Chance, random_uuid, to_base64

PRODUCER_ID_BLOCK = 1_000


class ControllerMachine:
    """The cluster's metadata, and the decisions about it."""

    def __init__(self, cluster_id: str, settings: BrokerSettings, rng: Chance) -> None:
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
        """Apply records to the state, when loading or just appended."""
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
        """Return the first records of this controller's epoch, and of a new cluster.

        For `silent_ms` no controller has heard from any broker. Metadata written by a build that
        assigned no metadata id gets one.
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
        """Yield the elections with which this controller starts, in steps that must be replayed."""
        for records, _ in self.partitions.took_over():
            yield records

    def partitions_opened(self, request: PartitionsOpened) -> Decision[None]:
        """Handle logs that a broker has opened."""
        self.brokers.current(request.broker_id, request.broker_epoch)
        return Decision(list(self.partitions.opened(request.broker_id, request.opened)), None)

    def replicas_lost(self, request: ReplicasLost) -> Decision[None]:
        """Handle the end of a broker's Replica process."""
        self.brokers.current(request.broker_id, request.broker_epoch)
        return Decision(list(self.partitions.replicas_gone(request.broker_id, request.lost)), None)

    def alter_partitions(self, request: AlterPartitions) -> Decision[list[IsrOutcome]]:
        """Change in-sync replicas at the request of leaders."""
        self.brokers.current(request.broker_id, request.broker_epoch)
        return self.partitions.alter(request)

    def alter_configs(self, request: AlterConfigs) -> Decision[list[ConfigOutcome]]:
        """Change settings, and the partitions that depend on them."""
        decision = self.configs.alter(request)
        follows = list(self.partitions.settings_changed(decision.records))
        return Decision([*decision.records, *follows], decision.response)

    def alter_reassignments(self, request: AlterReassignments) -> Decision[list[ReassignOutcome]]:
        """Start or cancel reassignments at the request of an operator."""
        decision = self.reassignments.alter(request)
        outcomes = zip(request.partitions, decision.response, strict=True)
        begun = [one for one, outcome in outcomes if outcome.error == ErrorCode.NONE]
        kept = self.alter_configs(
            self.internal_topics.disable_growth_of_shrunk_topics(AlterReassignments(begun))
        )
        return Decision([*decision.records, *kept.records], decision.response)

    def grow_internal_topics(self, now_ms: int, settled: Collection[int]) -> list[Record]:
        """Add replicas that the cluster now has room for to internal topics, step by step."""
        if not self.internal_topics.may_grow(settled):
            return []
        records = self.internal_topics.grow(now_ms, settled)
        min_isr = None if records else self.internal_topics.min_isr()
        if min_isr is not None:
            records = self.alter_configs(min_isr).records
        if not records:
            self.internal_topics.mark_checked(settled)
        return records

    def update_features(self, request: UpdateFeatures) -> Decision[list[FeatureOutcome]]:
        """Change feature levels, and the partitions that depend on them."""
        decision = self.features.update(request)
        ends = any(
            isinstance(record, FeatureChanged)
            and (record.name, record.level) == (ELIGIBLE_LEADERS, 0)
            for record in decision.records
        )
        follows = list(self.partitions.elr_ends()) if ends else []
        return Decision([*decision.records, *follows], decision.response)

    def allocate_producer_ids(self, request: AllocateProducerIds) -> Decision[ProducerIdBlock]:
        """Allocate the next block of producer ids to a broker."""
        self.brokers.current(request.broker_id, request.broker_epoch)
        first = self.image.next_producer_id
        record = ProducerIdsAllocated(
            request.broker_id, request.broker_epoch, first + PRODUCER_ID_BLOCK
        )
        return Decision([record], ProducerIdBlock(first, PRODUCER_ID_BLOCK))
