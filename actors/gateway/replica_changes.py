"""Moves leadership and replicas through the Controller, and waits until this gateway sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.actors.controller.messages import (
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
from raylog.actors.remote import Controller

if TYPE_CHECKING:
    from raylog.actors.gateway.actor import GatewayActor


async def elect_leaders(gateway: GatewayActor, request: ElectLeaders) -> list[ElectOutcome]:
    """Elect leaders; return when this gateway sees the changes, or after a timeout."""
    image = gateway.cluster.image

    async def ask(some: list[tuple[str, int]] | None) -> list[ElectOutcome]:
        part = request._replace(partitions=some)
        return await gateway.controller.ask(
            Controller.elect_leaders, part, timeout_ms=request.timeout_ms
        )

    if request.partitions is None:
        outcomes = await ask(None)
    else:
        outcomes = await in_parts(request.partitions, ask)
    elected = [(one.name, one.partition) for one in outcomes if not one.error]

    def leads(state: PartitionState) -> bool:
        if request.unclean:
            return state.leader != NO_LEADER
        return state.leader == state.replicas[0]

    def all_lead() -> bool:
        states = [_state(image, *one) for one in elected]
        return all(state is None or leads(state) for state in states)

    await seen(gateway, all_lead, request.timeout_ms)
    return outcomes


async def alter_reassignments(
    gateway: GatewayActor, request: AlterReassignments, timeout_ms: int
) -> list[ReassignOutcome]:
    """Start or cancel moves; return when this gateway sees them, or after a timeout."""
    image = gateway.cluster.image

    async def ask(some: list[ReassignPartition]) -> list[ReassignOutcome]:
        part = request._replace(partitions=some)
        return await gateway.controller.ask(
            Controller.alter_reassignments, part, timeout_ms=timeout_ms
        )

    outcomes = await in_parts(request.partitions, ask)
    failed = {(one.name, one.partition) for one in outcomes if one.error}
    altered = [one for one in request.partitions if (one.name, one.partition) not in failed]

    def all_altered() -> bool:
        states = [(one, _state(image, one.name, one.partition)) for one in altered]
        return all(state is None or _is_altered(one, state) for one, state in states)

    await seen(gateway, all_altered, timeout_ms)
    return outcomes


def _is_altered(move: ReassignPartition, state: PartitionState) -> bool:
    """Whether a partition is moving as requested, has moved, or no longer moves."""
    if move.replicas is None:
        return not state.is_reassigned
    staying = tuple(one for one in state.replicas if one not in state.removing_replicas)
    return sorted(staying) == sorted(move.replicas)


def _state(image: MetadataImage, name: str, index: int) -> PartitionState | None:
    topic_id = image.topic_ids.get(name)
    return None if topic_id is None else image.partition(topic_id, index)
