"""Reassignment: moves a partition's replicas to other brokers (KIP-455).

A partition that moves has its old and its new replicas at the same time. The move ends as soon as
all replicas that stay are in sync (`changes`). Brokers then delete the replicas that the metadata
no longer assigns to them.
"""

from __future__ import annotations

from raylog.actors.common_messages import PartitionKey
from raylog.actors.controller.messages import (
    AlterReassignments,
    ReassignOutcome,
    ReassignPartition,
)
from raylog.actors.controller.rules.changes import Election, ElectionSettings, Replicas, without
from raylog.actors.controller.rules.decision import Decision
from raylog.actors.controller.rules.partitions import PartitionControl
from raylog.actors.controller.rules.placement import check_assigned
from raylog.actors.metadata.image import MetadataImage, PartitionState
from raylog.actors.metadata.records import PartitionChanged
from raylog.wire.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    KafkaError,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)


class ReassignmentControl:
    """Decides about reassignments from the image."""

    def __init__(self, image: MetadataImage, partitions: PartitionControl) -> None:
        self._image = image
        self._partitions = partitions

    def alter(self, request: AlterReassignments) -> Decision[list[ReassignOutcome]]:
        """Start or cancel reassignments; each succeeds or fails independently."""
        rules = self._partitions.rules()
        records: list[PartitionChanged] = []
        outcomes = []
        seen: set[tuple[str, int]] = set()
        for one in request.partitions:
            name_and_index = (one.name, one.partition)
            try:
                if name_and_index in seen:
                    raise InvalidRequest(f"{one.name}-{one.partition} is given twice.")
                seen.add(name_and_index)
                key, state = self._known(one)
                if one.replicas is None:
                    record = self._ended(one.name, key, state, rules.of(key[0]))
                else:
                    if not request.allow_replication_factor_change:
                        _check_factor(state, one.replicas)
                    record = self._begun(key, state, one.replicas, rules.of(key[0]))
            except KafkaError as refused:
                outcomes.append(ReassignOutcome(*name_and_index, refused.code, refused.message))
                continue
            records.extend([] if record is None else [record])
            outcomes.append(ReassignOutcome(*name_and_index))
        return Decision([*records], outcomes)

    def _known(self, move: ReassignPartition) -> tuple[PartitionKey, PartitionState]:
        topic = self._image.topic(move.name)
        if topic is None:
            raise UnknownTopicOrPartition(f"Unable to find a topic named {move.name}.")
        if not 0 <= move.partition < len(topic.partitions):
            raise UnknownTopicOrPartition(f"Unable to find partition {move.name}:{move.partition}.")
        return (topic.topic_id, move.partition), topic.partitions[move.partition]

    def _begun(
        self, key: PartitionKey, state: PartitionState, target: Replicas, settings: ElectionSettings
    ) -> PartitionChanged | None:
        """Move a partition from all its current replicas to the target.

        Replicas that are being added by a move in progress still count as added, even if they are
        to be removed again. So a cancellation restores the original replicas, however often the
        target has changed.
        """
        check_assigned(target, self._image.brokers)
        change = self._partitions.change(key, state, settings, election=Election.ONLINE)
        original = without(state.replicas, *state.adding_replicas)
        change.removing = tuple(sorted(set(state.replicas) - set(target)))
        change.adding = tuple(sorted({*state.adding_replicas, *target} - set(original)))
        change.replicas = (*target, *change.removing)
        return change.record()

    def _ended(
        self, name: str, key: PartitionKey, state: PartitionState, settings: ElectionSettings
    ) -> PartitionChanged | None:
        """Cancel a move: remove the replicas that were being added."""
        if not state.is_reassigned:
            raise NoReassignmentInProgress("No partition reassignment is in progress.")
        kept = without(state.replicas, *state.adding_replicas)
        if not kept:
            raise InvalidReplicaAssignment(
                "Invalid replica assignment: addingReplicas contains all replicas."
            )
        isr = without(state.isr, *state.adding_replicas)
        lost = not without(state.isr or state.elr, *state.adding_replicas)
        if lost and not settings.unclean:
            raise InvalidReplicaAssignment(
                f"Unable to revert partition assignment for {name}:{key[1]} because it would "
                "require an unclean leader election."
            )
        change = self._partitions.change(key, state, settings, election=Election.ONLINE)
        change.isr = isr or (kept[:1] if lost else ())
        change.replicas, change.adding, change.removing = kept, (), ()
        return change.record()


def _check_factor(state: PartitionState, target: Replicas) -> None:
    factor = len(set(state.replicas) - set(state.removing_replicas))
    if len(target) != factor:
        raise InvalidReplicationFactor(
            f"The replication factor is changed from {factor} to {len(target)}"
        )
