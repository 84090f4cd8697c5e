"""One event of a transaction shard: a step that can ask for markers too."""

from __future__ import annotations

from dataclasses import dataclass, field

from raylog.actors.coordination.step import Asked, Step
from raylog.actors.transaction.api import AddPartitions
from raylog.actors.transaction.state import Partitions


@dataclass(frozen=True, slots=True)
class SendMarkers:
    """Effect: write the end of a transaction to its partitions, once the step is durable.

    The shard is told by `markers_written` when all of them have it.
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
    parked: list[Asked[AddPartitions]] = field(default_factory=list)
    """What waits from now on: `waited_in_vain` is to be called a little later."""
    coordinator_epoch: int | None = None
    """The epoch of the markers from here on, once the step is durable; None: as before."""
