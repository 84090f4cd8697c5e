"""Moving leadership and replicas through the Controller, and waiting until it is seen here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.actors.controller.api import (
    AlterReassignments,
    ElectLeaders,
    ElectOutcome,
    ReassignOutcome,
    ReassignPartition,
)
from raylog.actors.gateway.parts import in_parts
from raylog.actors.gateway.topic_changes import seen
from raylog.actors.metadata.image import MetadataImage, PartitionState
from raylog.actors.metadata.records import NO_LEADER

if TYPE_CHECKING:
    from raylog.actors.gateway.actor import GatewayActor


async def elect_leaders(gateway: GatewayActor, asked: ElectLeaders) -> list[ElectOutcome]:
    """Elect leaders; this gateway knows those that were elected when this returns, if in time."""
    image = gateway.cluster.image

    async def ask(some: list[tuple[str, int]] | None) -> list[ElectOutcome]:
        outcomes: list[ElectOutcome] = await gateway.controller.ask(
            "elect_leaders", asked._replace(partitions=some), asked.timeout_ms
        )
        return outcomes

    if asked.partitions is None:
        outcomes = await ask(None)
    else:
        outcomes = await in_parts(asked.partitions, ask)
    elected = [(one.name, one.partition) for one in outcomes if not one.error]

    def leads(state: PartitionState) -> bool:
        if asked.unclean:
            return state.leader != NO_LEADER
        return state.leader == state.replicas[0]

    def all_lead() -> bool:
        states = [_state(image, *one) for one in elected]
        return all(state is None or leads(state) for state in states)

    await seen(gateway, all_lead, asked.timeout_ms)
    return outcomes


async def alter_reassignments(
    gateway: GatewayActor, asked: AlterReassignments, timeout_ms: int
) -> list[ReassignOutcome]:
    """Begin or call off moves; this gateway knows of them when this returns, if in time."""
    image = gateway.cluster.image

    async def ask(some: list[ReassignPartition]) -> list[ReassignOutcome]:
        outcomes: list[ReassignOutcome] = await gateway.controller.ask(
            "alter_reassignments", asked._replace(partitions=some), timeout_ms
        )
        return outcomes

    outcomes = await in_parts(asked.partitions, ask)
    failed = {(one.name, one.partition) for one in outcomes if one.error}
    altered = [one for one in asked.partitions if (one.name, one.partition) not in failed]

    def all_altered() -> bool:
        states = [(one, _state(image, one.name, one.partition)) for one in altered]
        return all(state is None or _is_altered(one, state) for one, state in states)

    await seen(gateway, all_altered, timeout_ms)
    return outcomes


def _is_altered(asked: ReassignPartition, state: PartitionState) -> bool:
    """Whether a partition moves as asked, or has moved, or moves no more."""
    if asked.replicas is None:
        return not state.is_reassigned
    staying = tuple(one for one in state.replicas if one not in state.removing_replicas)
    return sorted(staying) == sorted(asked.replicas)


def _state(image: MetadataImage, name: str, index: int) -> PartitionState | None:
    topic_id = image.topic_ids.get(name)
    return None if topic_id is None else image.partition(topic_id, index)
