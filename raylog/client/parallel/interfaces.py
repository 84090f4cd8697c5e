"""The interfaces that a parallel consumer needs: a group's consumer, a producer, workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from raylog.client.admin.groups import CommittedOffset
from raylog.client.cluster import TopicPartition
from raylog.client.consumer.fetched import ConsumedRecords
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.errors import ClientError
from raylog.client.interceptors import ProducerRecord
from raylog.client.parallel.effects import Outcome
from raylog.wire.record import Record

Offsets = Mapping[TopicPartition, CommittedOffset]
Ran = Callable[[int, Outcome], None]
"""Takes a cell's id and its run's outcome. Called in the event loop, never from within `run`."""


Began = Callable[[int], None]
"""Takes the id of a cell whose run begins only now, because its worker had to start first."""


class NotDelivered(ClientError):
    """Records were not acknowledged, or their transaction was aborted."""

    def __init__(self, message: str, refused: Mapping[int, Exception] | None = None) -> None:
        """`refused`: errors, by position, of the records for which a retry is useless."""
        super().__init__(message)
        self.refused = refused or {}


class WorkersExhausted(ClientError):
    """Too many calls of the function never returned: the limit of lost workers is reached."""


class Listener(Protocol):
    """Called on rebalances, within `poll`."""

    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Start on partitions that are newly assigned."""

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Release partitions; offsets may be committed until this returns."""

    async def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Drop partitions that others already own."""


class Source(Protocol):
    """A consumer in a group, used by one task; another task calls `commit`."""

    async def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        """Join the group."""

    async def poll(self, timeout_ms: float, max_records: int) -> Sequence[ConsumedRecords]:
        """Return records available within the timeout; joins and rebalances happen here."""

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop returning records of these partitions."""

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of these partitions again."""

    async def commit(self, offsets: Offsets) -> None:
        """Commit offsets; raise KafkaError or ClientError."""

    async def committed(self, partitions: Sequence[TopicPartition]) -> Offsets:
        """Return the group's committed offsets; partitions without one are left out."""

    def group_metadata(self) -> GroupMetadata:
        """Return the member that a producer commits offsets for in a transaction."""

    async def close(self) -> None:
        """Leave the group."""


class Sink(Protocol):
    """A producer of results and letters."""

    async def start(self) -> None:
        """Start, before any other call; a transactional producer fences others with its id."""

    async def send(self, records: Sequence[ProducerRecord]) -> None:
        """Produce and wait for all acknowledgements; raise NotDelivered. May run concurrently."""

    async def transact(
        self, records: Sequence[ProducerRecord], offsets: Offsets, group: GroupMetadata
    ) -> None:
        """Produce and commit offsets in one transaction; raise NotDelivered if it was aborted.

        Raises ProducerUnusable if another producer has taken over the transactional id.
        """

    async def close(self) -> None:
        """Close the connections."""


class Workers(Protocol):
    """Runs the function. All calls come from the event loop."""

    can_end: bool
    """Whether `give_up` stops the function."""

    async def start(self, ran: Ran, fatal: Callable[[Exception], None], began: Began) -> None:
        """Start. `ran` gets one answer for each `run`; `fatal` gets errors that no cell caused."""

    def run(self, cell_id: int, key: TopicPartition, records: Sequence[Record]) -> bool:
        """Have a worker run the function; return at once.

        Returns False if the worker has to start first; `began` is called when it has.
        """

    def give_up(self, cell_id: int) -> None:
        """Abandon a run as stalled; the answer comes when it has ended, as far as that is known."""

    async def close(self) -> None:
        """End all workers."""
