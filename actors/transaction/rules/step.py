"""The step of a transaction shard, which can also request markers."""

from __future__ import annotations

from dataclasses import dataclass, field

from raylog.actors.coordination.rules.step import ClientCall, Step
from raylog.actors.transaction.messages import AddPartitions
from raylog.actors.transaction.rules.state import Partitions


@dataclass(frozen=True, slots=True)
class SendMarkers:
    """Effect: write markers to a transaction's partitions, once the step is durable.

    `markers_written` is called when all partitions have their markers.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    transaction_version: int
    partitions: Partitions


@dataclass(slots=True)
class TransactionStep(Step):
    """Carried out in this order: records as one batch, answers, markers."""

    markers: list[SendMarkers] = field(default_factory=list)
    parked: list[ClientCall[AddPartitions]] = field(default_factory=list)
    """Requests that start to wait; `expire_wait` must be called for each after a short time."""
    coordinator_epoch: int | None = None
    """The epoch of markers from now on, valid once the step is durable; None if unchanged."""
