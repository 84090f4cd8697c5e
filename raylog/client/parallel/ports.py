"""What a parallel consumer needs of the world: a group's consumer, a producer, workers."""

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
"""Takes a cell's id and how its run ended; called in the event loop, never by `run` itself."""


Began = Callable[[int], None]
"""Takes the id of a cell whose run begins only now, because its worker had to start first."""


class NotDelivered(ClientError):
    """Records were not acknowledged, or their transaction was aborted."""

    def __init__(self, message: str, refused: Mapping[int, Exception] | None = None) -> None:
        """`refused`: the records that no repeat would deliver, by position, and why."""
        super().__init__(message)
        self.refused = refused or {}


class WorkersExhausted(ClientError):
    """Too many calls of the function never returned: no worker is left to be given up."""


class Listener(Protocol):
    """Hears of rebalances, within `poll`."""

    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """These are ours now, too."""

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """These go to others when this returns; offsets may still be committed."""

    async def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """These were given to others already."""


class Source(Protocol):
    """A consumer in a group, for one task; `commit` comes from another one."""

    async def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        """Join the group."""

    async def poll(self, timeout_ms: float, max_records: int) -> Sequence[ConsumedRecords]:
        """Records that are here, or come within a time; joins and rebalances go on in it."""

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out no more of these."""

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand them out again."""

    async def commit(self, offsets: Offsets) -> None:
        """Commit; raises KafkaError, ClientError."""

    async def committed(self, partitions: Sequence[TopicPartition]) -> Offsets:
        """What the group committed last; partitions without it are left out."""

    def group_metadata(self) -> GroupMetadata:
        """For whom a producer commits offsets in a transaction."""

    async def close(self) -> None:
        """Leave the group."""


class Sink(Protocol):
    """A producer of results and letters."""

    async def start(self) -> None:
        """Before all else; a transactional producer fences others of its id."""

    async def send(self, records: Sequence[ProducerRecord]) -> None:
        """Produce, and wait for all acknowledgements; raises NotDelivered. May run concurrently."""

    async def transact(
        self, records: Sequence[ProducerRecord], offsets: Offsets, group: GroupMetadata
    ) -> None:
        """Produce and commit offsets in one transaction; NotDelivered: it was aborted.

        Raises ProducerUnusable if another producer has the transactional id.
        """

    async def close(self) -> None:
        """End the connections."""


class Workers(Protocol):
    """Run the function. All calls come from the event loop."""

    can_end: bool
    """Whether `give_up` stops the function."""

    async def start(self, ran: Ran, fatal: Callable[[Exception], None], began: Began) -> None:
        """`ran` takes the answers, one to each `run`; `fatal` what no cell is to blame for."""

    def run(self, cell_id: int, key: TopicPartition, records: Sequence[Record]) -> bool:
        """Have a worker run the function; returns at once.

        False: its worker has to start first, and `began` is called when it has.
        """

    def give_up(self, cell_id: int) -> None:
        """End this run as stalled: the answer comes when it is over, as far as that is known."""

    async def close(self) -> None:
        """End all workers."""
