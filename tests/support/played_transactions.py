"""A coordinator of transactions that a test plays, and markers in its name."""

from __future__ import annotations

from dataclasses import dataclass, field

from raylog.actors.runtime.base import LinkRequest, PeerLost
from raylog.actors.transaction.api import (
    ADD_PARTITIONS,
    ANY_LEADER_EPOCH,
    AddPartitions,
    MarkedPartition,
    Marker,
)
from raylog.wire.errors import ErrorCode
from tests.support.replicas import TOPIC_ID


@dataclass
class PlayedTransactions:
    """Says `code` of every partition; keeps requests while `holding`."""

    address: str = "transactions"
    asked: list[AddPartitions] = field(default_factory=list)
    code: ErrorCode = ErrorCode.NONE
    codes: dict[int, ErrorCode] = field(default_factory=dict)
    """Of single partitions."""
    holding: bool = False
    gone: bool = False
    _held: list[LinkRequest] = field(default_factory=list)

    def find(self) -> tuple[int, str]:
        """Where the coordinator is."""
        if self.gone:
            raise PeerLost("nobody knows")
        return 1, self.address

    def link_received(self, request: LinkRequest) -> None:
        """What leaders ask."""
        assert request.kind == ADD_PARTITIONS
        self.asked += [AddPartitions.of(plain) for plain in request.header]
        self._held.append(request)
        if not self.holding:
            self.answer()

    def answer(self) -> None:
        """Answer what is kept."""
        held, self._held = self._held, []
        for request in held:
            request.reply(
                [
                    [
                        int(self.codes.get(index, self.code))
                        for topic in AddPartitions.of(plain).topics
                        for index in topic.partitions
                    ]
                    for plain in request.header
                ]
            )

    def link_lost(self, peer: int) -> None:
        """The leader is gone: nobody waits for the answers any more."""
        self._held = [one for one in self._held if one.peer != peer]


def ended(
    producer_id: int = 7,
    epoch: int = 0,
    *partitions: int,
    committed: bool = True,
    version: int = 2,
    coordinator_epoch: int = 0,
    leader_epoch: int = ANY_LEADER_EPOCH,
) -> Marker:
    """The end of a transaction in partition 0, or others, of the test's topic."""
    where = [MarkedPartition(TOPIC_ID, index, leader_epoch) for index in partitions or (0,)]
    return Marker(producer_id, epoch, coordinator_epoch, committed, version, where)
