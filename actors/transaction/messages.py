"""Messages of a TransactionCoordinator over links.

| kind                 | from, to                                 | header                |
|----------------------|------------------------------------------|-----------------------|
| transaction          | gateway to its own broker's              | RequestHead; payload: |
|                      | TransactionCoordinator                   | request body          |
| add_partitions       | Replica, GroupCoordinator or gateway to  | list of AddPartitions |
|                      | the TransactionCoordinator of the id     |                       |
| write_markers        | TransactionCoordinator to the leading    | list of Marker        |
|                      | Replica                                  |                       |
| complete_transaction | TransactionCoordinator to the leading    | list of Marker        |
|                      | GroupCoordinator                         |                       |

The answer to `transaction` is the whole response frame, as payload. The other answers have a header
with a list of error codes for each item, in the order of its partitions.

Markers are answered once they are below the high watermark. Requests for what this broker does not
coordinate are answered NOT_COORDINATOR, as in Kafka, and do not fail the link request.

A partition's marker is settled by NONE, and by INVALID_PRODUCER_EPOCH, which says that the
partition knows a newer epoch of the producer. After TRANSACTION_COORDINATOR_FENCED it is sent again
under a higher coordinator epoch, after any other code unchanged. A marker must be accepted twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import NamedTuple, Protocol

from raylog.actors.common_messages import TopicId
from raylog.actors.message import message, taken
from raylog.wire.errors import KafkaError

ADD_PARTITIONS = "add_partitions"
WRITE_MARKERS = "write_markers"
COMPLETE_TRANSACTION = "complete_transaction"
ANY_LEADER_EPOCH = -1
OWN_EPOCHS_SINCE = 2
"""Transaction version in which every transaction has its own epoch (KIP-890)."""


@message
class TopicPartitions(NamedTuple):
    """Partitions of one topic."""

    topic: str
    partitions: list[int]


@message
class AddPartitions(NamedTuple):
    """Partitions to add to an open transaction, or to verify (KIP-890)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    """Only check that the partitions belong to the open transaction; add nothing."""
    topics: list[TopicPartitions]

    @classmethod
    def of(cls, plain: tuple[object, ...]) -> AddPartitions:
        """Decode the fields that came over a link."""
        asked = taken(cls, plain)
        return asked._replace(topics=[taken(TopicPartitions, topic) for topic in asked.topics])

    def size(self) -> int:
        """Return the number of partitions, and so of error codes in the response."""
        return sum(len(topic.partitions) for topic in self.topics)


class TransactionCoordinators(Protocol):
    """The transaction coordinators, wherever they are."""

    def add_partitions(
        self, request: AddPartitions, settled: Callable[[list[int] | KafkaError], None]
    ) -> None:
        """Let the coordinator add or verify partitions; `settled` is called once."""


@message
class MarkedPartition(NamedTuple):
    """A partition that gets a marker."""

    topic_id: TopicId
    partition: int
    leader_epoch: int
    """ANY_LEADER_EPOCH accepts any."""


@message
class Marker(NamedTuple):
    """The end of one transaction, for some of its partitions."""

    producer_id: int
    producer_epoch: int
    """The epoch in the control batches."""
    coordinator_epoch: int
    """If it is below an epoch seen for this producer, the answer is
    TRANSACTION_COORDINATOR_FENCED."""
    committed: bool
    transaction_version: int
    """From 2 on, each transaction has its own epoch (KIP-890); with 0 and 1 a producer may keep its
    epoch."""
    partitions: list[MarkedPartition]

    @property
    def has_own_epoch(self) -> bool:
        """Whether its epoch is above that of the transaction it ends."""
        return self.transaction_version >= OWN_EPOCHS_SINCE

    def ends(self, epoch: int) -> bool:
        """Whether this marker ends a transaction that its producer began with `epoch`."""
        return epoch < self.producer_epoch + (not self.has_own_epoch)

    @classmethod
    def of(cls, plain: tuple[object, ...]) -> Marker:
        """Decode the fields that came over a link."""
        marker = taken(cls, plain)
        return marker._replace(
            partitions=[taken(MarkedPartition, one) for one in marker.partitions]
        )


def by_marker(markers: Iterable[Marker], codes: Iterable[int]) -> list[list[int]]:
    """Split the error codes of all partitions into one list for each marker."""
    left = iter(codes)
    return [[int(code) for code in islice(left, len(one.partitions))] for one in markers]
