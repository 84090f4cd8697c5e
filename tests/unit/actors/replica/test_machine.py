"""The partition replica's decisions: leadership by epoch, the high watermark, who is refused."""

from __future__ import annotations

import pytest

from raylog.actors.replica.machine import (
    Appended,
    LeadershipChanged,
    PartitionMachine,
    ReleaseUpTo,
    StartLeading,
    StopLeading,
)
from raylog.wire.errors import FencedLeaderEpoch, NotLeaderOrFollower, UnknownLeaderEpoch

ME, OTHER = 1, 2


def leading(epoch: int = 3, log_end_offset: int = 0) -> PartitionMachine:
    machine = PartitionMachine(ME, log_end_offset)
    machine.handle(LeadershipChanged(ME, epoch, log_end_offset))
    return machine


def test_a_new_leader_starts_its_epoch_at_its_log_end() -> None:
    machine = PartitionMachine(ME, 10)
    assert machine.handle(LeadershipChanged(ME, 0, 10)) == [StartLeading(0, 10), ReleaseUpTo(10)]
    assert machine.is_leader


def test_the_leader_of_an_empty_log_has_nothing_to_release() -> None:
    assert PartitionMachine(ME, 0).handle(LeadershipChanged(ME, 0, 0)) == [StartLeading(0, 0)]


def test_an_append_moves_the_high_watermark_of_a_sole_replica() -> None:
    machine = leading()
    assert machine.handle(Appended(5)) == [ReleaseUpTo(5)]
    assert (machine.log_end_offset, machine.high_watermark) == (5, 5)


def test_a_lower_or_equal_epoch_changes_nothing() -> None:
    machine = leading(epoch=3)
    assert machine.handle(LeadershipChanged(OTHER, 3, 0)) == []
    assert machine.handle(LeadershipChanged(OTHER, 2, 0)) == []
    assert machine.is_leader


def test_losing_leadership_fails_the_waiting() -> None:
    machine = leading(epoch=3)
    assert machine.handle(LeadershipChanged(OTHER, 4, 0)) == [StopLeading()]
    with pytest.raises(NotLeaderOrFollower, match="2 does"):
        machine.require_leader()


def test_leading_again_in_a_higher_epoch_fails_the_waiting_and_starts_the_epoch() -> None:
    machine = leading(epoch=3)
    machine.handle(Appended(7))
    assert machine.handle(LeadershipChanged(ME, 4, 7)) == [StopLeading(), StartLeading(4, 7)]


@pytest.mark.parametrize(("asked", "refusal"), [(2, FencedLeaderEpoch), (4, UnknownLeaderEpoch)])
def test_a_client_with_another_epoch_is_told_so(asked: int, refusal: type[Exception]) -> None:
    with pytest.raises(refusal, match="it is 3 here"):
        leading(epoch=3).require_leader(asked)


@pytest.mark.parametrize("asked", [-1, 3])
def test_a_client_with_the_same_or_no_epoch_is_served(asked: int) -> None:
    leading(epoch=3).require_leader(asked)


def test_a_log_that_shrinks_is_our_bug() -> None:
    machine = leading(log_end_offset=5)
    with pytest.raises(AssertionError):
        machine.handle(Appended(4))
