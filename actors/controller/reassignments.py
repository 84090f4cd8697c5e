"""Reassignment: a partition's replicas move to other brokers (KIP-455).

A partition that moves has old and new replicas at once. It is done as soon as all that stay are in
sync (`changes`), and brokers remove what the metadata does not give them any more.
"""

from __future__ import annotations

from raylog.actors.controller.api import (
    AlterReassignments,
    ReassignOutcome,
    ReassignPartition,
)
from raylog.actors.controller.changes import Election, Replicas, Rules, without
from raylog.actors.controller.decision import Decision
from raylog.actors.controller.partitions import PartitionControl
from raylog.actors.controller.placement import check_assigned
from raylog.actors.metadata.image import MetadataImage, PartitionState
from raylog.actors.metadata.records import PartitionChanged
from raylog.actors.ports import PartitionKey
from raylog.wire.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    KafkaError,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)


class ReassignmentControl:
    """Decides about reassignments against the image."""

    def __init__(self, image: MetadataImage, partitions: PartitionControl) -> None:
        self._image = image
        self._partitions = partitions

    def alter(self, asked: AlterReassignments) -> Decision[list[ReassignOutcome]]:
        """Begin or end reassignments, each on its own."""
        rules = self._partitions.rules()
        records: list[PartitionChanged] = []
        outcomes = []
        seen: set[tuple[str, int]] = set()
        for one in asked.partitions:
            name_and_index = (one.name, one.partition)
            try:
                if name_and_index in seen:
                    raise InvalidRequest(f"{one.name}-{one.partition} is given twice.")
                seen.add(name_and_index)
                key, state = self._known(one)
                if one.replicas is None:
                    record = self._ended(one.name, key, state, rules.of(key[0]))
                else:
                    if not asked.allow_replication_factor_change:
                        _check_factor(state, one.replicas)
                    record = self._begun(key, state, one.replicas, rules.of(key[0]))
            except KafkaError as refused:
                outcomes.append(ReassignOutcome(*name_and_index, refused.code, refused.message))
                continue
            records.extend([] if record is None else [record])
            outcomes.append(ReassignOutcome(*name_and_index))
        return Decision([*records], outcomes)

    def _known(self, asked: ReassignPartition) -> tuple[PartitionKey, PartitionState]:
        topic = self._image.topic(asked.name)
        if topic is None:
            raise UnknownTopicOrPartition(f"Unable to find a topic named {asked.name}.")
        if not 0 <= asked.partition < len(topic.partitions):
            raise UnknownTopicOrPartition(
                f"Unable to find partition {asked.name}:{asked.partition}."
            )
        return (topic.topic_id, asked.partition), topic.partitions[asked.partition]

    def _begun(
        self, key: PartitionKey, state: PartitionState, target: Replicas, rules: Rules
    ) -> PartitionChanged | None:
        """The partition on its way from all the replicas that it has to the target.

        Those of a move under way stay among the added ones, even if they are to go again: without
        them the partition is what it was, however often its target has changed.
        """
        check_assigned(target, self._image.brokers)
        change = self._partitions.change(key, state, rules, election=Election.ONLINE)
        original = without(state.replicas, *state.adding_replicas)
        change.removing = tuple(sorted(set(state.replicas) - set(target)))
        change.adding = tuple(sorted({*state.adding_replicas, *target} - set(original)))
        change.replicas = (*target, *change.removing)
        return change.record()

    def _ended(
        self, name: str, key: PartitionKey, state: PartitionState, rules: Rules
    ) -> PartitionChanged | None:
        """The partition without the replicas that were being added."""
        if not state.is_reassigned:
            raise NoReassignmentInProgress("No partition reassignment is in progress.")
        kept = without(state.replicas, *state.adding_replicas)
        if not kept:
            raise InvalidReplicaAssignment(
                "Invalid replica assignment: addingReplicas contains all replicas."
            )
        isr = without(state.isr, *state.adding_replicas)
        lost = not without(state.isr or state.elr, *state.adding_replicas)
        if lost and not rules.unclean:
            raise InvalidReplicaAssignment(
                f"Unable to revert partition assignment for {name}:{key[1]} because it would "
                "require an unclean leader election."
            )
        change = self._partitions.change(key, state, rules, election=Election.ONLINE)
        change.isr = isr or (kept[:1] if lost else ())
        change.replicas, change.adding, change.removing = kept, (), ()
        return change.record()


def _check_factor(state: PartitionState, target: Replicas) -> None:
    factor = len(set(state.replicas) - set(state.removing_replicas))
    if len(target) != factor:
        raise InvalidReplicationFactor(
            f"The replication factor is changed from {factor} to {len(target)}"
        )
