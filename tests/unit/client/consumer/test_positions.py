"""Validation of positions with a new leader (KIP-320), while other things happen."""

from __future__ import annotations

from collections.abc import Callable

from raylog.client.cluster import TopicPartition
from raylog.client.consumer.positions import Positions
from raylog.client.consumer.progress import Progress
from raylog.client.consumer.settings import ConsumerSettings
from raylog.client.io import run_blocking
from raylog.wire.api import ApiKey
from raylog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tests.worlds.client.cluster import FakeCluster, core_of

KEY = TopicPartition("t", 0)
END = 10


class Checked:
    """One partition, read up to an offset of epoch 4, and a leader that validates the position."""

    def __init__(self, offset: int, meanwhile: Callable[[Checked], None]) -> None:
        self.progress = Progress(KEY)
        self.progress.go_to(offset, 4)
        self.assigned = {KEY: self.progress}
        self._meanwhile = meanwhile
        cluster = FakeCluster(1, {"t": {0: 1}}, {ApiKey.OFFSET_FOR_LEADER_EPOCH: self._answer})
        cluster.epochs["t"] = 5
        self.positions = Positions(core_of(cluster), ConsumerSettings())

    def _answer(self, _: int, request: object) -> OffsetForLeaderEpochResponse:
        """The epoch that is asked for ends at END, the one behind it later."""
        assert isinstance(request, OffsetForLeaderEpochRequest)
        epoch = request.topics[0].partitions[0].leader_epoch
        self._meanwhile(self)
        found = EpochEndOffset(
            partition=0, leader_epoch=epoch, end_offset=END if epoch == 4 else 99
        )
        return OffsetForLeaderEpochResponse(
            topics=[OffsetForLeaderTopicResult(topic="t", partitions=[found])]
        )

    def look_up(self) -> None:
        self.positions.want(self.progress)
        run_blocking(self.positions.look_up(self.assigned))


def test_a_partition_may_be_revoked_while_its_epochs_are_asked_for() -> None:
    def revoked(checked: Checked) -> None:
        checked.assigned.clear()
        checked.positions.forget(KEY)

    checked = Checked(END, revoked)
    checked.look_up()
    assert not checked.positions.is_wanted
    assert not checked.positions.found()


def test_a_partition_that_came_back_meanwhile_is_not_taken_for_checked() -> None:
    def returned(checked: Checked) -> None:
        checked.assigned[KEY] = Progress(KEY, generation=7)
        checked.assigned[KEY].go_to(3, 4)

    checked = Checked(END, returned)
    checked.look_up()
    assert checked.assigned[KEY].checked_epoch == -1


def test_records_of_a_newer_epoch_that_came_meanwhile_are_no_truncation() -> None:
    def fetched(checked: Checked) -> None:
        checked.progress.fetch_offset = checked.progress.position = END + 5
        checked.progress.fetch_epoch = checked.progress.epoch = 5

    checked = Checked(END, fetched)
    checked.look_up()
    assert checked.progress.position == END + 5
    assert checked.progress.checked_epoch == -1
    checked.look_up()
    assert checked.progress.position == END + 5
    assert checked.progress.checked_epoch == 5


def test_position_is_reset_to_the_end_of_the_new_leader() -> None:
    checked = Checked(END + 2, lambda _: None)
    checked.look_up()
    assert checked.progress.position == END
    assert not checked.positions.is_wanted
