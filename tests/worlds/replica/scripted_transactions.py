"""A transaction coordinator scripted by a test, and its markers."""

from __future__ import annotations

from dataclasses import dataclass, field

from raylog.actors.runtime.base import LinkRequest, PeerLost
from raylog.actors.transaction.messages import (
    ADD_PARTITIONS,
    ANY_LEADER_EPOCH,
    AddPartitions,
    MarkedPartition,
    Marker,
)
from raylog.wire.errors import ErrorCode
from tests.worlds.replica.fake_host import TOPIC_ID


@dataclass
class ScriptedTransactions:
    """Answers every partition with `code`; holds requests while `holding`."""

    address: str = "transactions"
    asked: list[AddPartitions] = field(default_factory=list)
    code: ErrorCode = ErrorCode.NONE
    codes: dict[int, ErrorCode] = field(default_factory=dict)
    """Codes for single partitions, instead of `code`."""
    holding: bool = False
    gone: bool = False
    _held: list[LinkRequest] = field(default_factory=list)

    def find(self) -> tuple[int, str]:
        """Return the coordinator's broker and address."""
        if self.gone:
            raise PeerLost("nobody knows")
        return 1, self.address

    def link_received(self, request: LinkRequest) -> None:
        """Receive a leader's request."""
        assert request.kind == ADD_PARTITIONS
        self.asked += [AddPartitions.of(plain) for plain in request.header]
        self._held.append(request)
        if not self.holding:
            self.answer()

    def answer(self) -> None:
        """Answer the held requests."""
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
        """Drop the requests of a leader that is gone."""
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
    """Return the marker that ends a transaction in partition 0, or others, of the test's topic."""
    where = [MarkedPartition(TOPIC_ID, index, leader_epoch) for index in partitions or (0,)]
    return Marker(producer_id, epoch, coordinator_epoch, committed, version, where)
