"""What a TransactionCoordinator answers and asks over links.

| kind                 | who asks whom                            | header                |
|----------------------|------------------------------------------|-----------------------|
| transaction          | gateway, its own broker's                | RequestHead; payload: |
|                      | TransactionCoordinator                   | request body          |
| add_partitions       | Replica, GroupCoordinator or gateway,    | list of AddPartitions |
|                      | the TransactionCoordinator of the id     |                       |
| write_markers        | TransactionCoordinator, the Replica that | list of Marker        |
|                      | leads                                    |                       |
| complete_transaction | TransactionCoordinator, the              | list of Marker        |
|                      | GroupCoordinator that leads              |                       |

The answer to `transaction` is the whole response frame, as payload; to the others a header that
has a list of error codes for each item, in the order of its partitions.

Markers are answered once they are
below the high watermark. Requests for what this broker does not coordinate are answered
NOT_COORDINATOR, as Kafka does, never failed over the link.

A partition's marker is settled by NONE, and by INVALID_PRODUCER_EPOCH, which says that a newer
epoch of the producer is known there. TRANSACTION_COORDINATOR_FENCED has it sent again under a
higher coordinator epoch, any other code as it was. One that comes twice is to be taken twice.
"""

from __future__ import annotations

from typing import NamedTuple

from raylog.actors.plain import message, taken
from raylog.actors.ports import TopicId

TRANSACTION_REQUEST = "transaction"
ADD_PARTITIONS = "add_partitions"
WRITE_MARKERS = "write_markers"
COMPLETE_TRANSACTION = "complete_transaction"
ANY_LEADER_EPOCH = -1
OWN_EPOCHS_SINCE = 2
"""Transaction version in which every transaction has an epoch of its own (KIP-890)."""


@message
class TopicPartitions(NamedTuple):
    """Partitions of one topic."""

    topic: str
    partitions: list[int]


@message
class AddPartitions(NamedTuple):
    """Partitions that an open transaction is about to write, or shall hold already (KIP-890)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    """Add nothing: tell whether they belong to the open transaction."""
    topics: list[TopicPartitions]

    @classmethod
    def of(cls, plain: tuple[object, ...]) -> AddPartitions:
        """From what came over a link."""
        asked = taken(cls, plain)
        return asked._replace(topics=[taken(TopicPartitions, topic) for topic in asked.topics])

    def size(self) -> int:
        """Partitions asked for: so many error codes are the answer."""
        return sum(len(topic.partitions) for topic in self.topics)


@message
class MarkedPartition(NamedTuple):
    """Where a marker is to be written."""

    topic_id: TopicId
    partition: int
    leader_epoch: int
    """ANY_LEADER_EPOCH: whichever it leads in."""


@message
class Marker(NamedTuple):
    """The end of one transaction, for some of its partitions."""

    producer_id: int
    producer_epoch: int
    """The one that the control batches carry."""
    coordinator_epoch: int
    """Less than one seen for this producer is answered TRANSACTION_COORDINATOR_FENCED."""
    committed: bool
    transaction_version: int
    """2: each transaction has an epoch of its own (KIP-890); 0 and 1: it may keep its epoch."""
    partitions: list[MarkedPartition]

    @property
    def has_own_epoch(self) -> bool:
        """Whether its epoch is higher than that of the transaction it ends."""
        return self.transaction_version >= OWN_EPOCHS_SINCE

    def ends(self, epoch: int) -> bool:
        """Whether a transaction that its producer began in `epoch` is over with this marker."""
        return epoch < self.producer_epoch + (not self.has_own_epoch)

    @classmethod
    def of(cls, plain: tuple[object, ...]) -> Marker:
        """From what came over a link."""
        marker = taken(cls, plain)
        return marker._replace(
            partitions=[taken(MarkedPartition, one) for one in marker.partitions]
        )
