"""Where followers cut their logs: KIP-101 and KIP-279 as tables."""

from __future__ import annotations

import pytest

from raylog.actors.replica.divergence import Cut, cut_at_divergence, cut_out_of_range
from raylog.storage.epochs import LeaderEpochs

END, HIGH_WATERMARK = 30, 12


@pytest.mark.parametrize(
    ("epoch", "end_offset", "cut"),
    [
        (5, 25, 25),  # the leader's epoch 5 ended earlier
        (5, 40, END),  # ... or later: nothing goes but what contradicts it at the end
        (3, 20, 20),  # both have epoch 3, the leader less of it
        (3, 24, 22),  # ... or more: the follower's own end of it counts
        (4, 22, 22),  # the follower has no epoch 4: back to the end of 3, then ask again
        (1, 8, 8),  # older than all that the follower knows
        (-1, 7, 7),  # the leader knows no epoch, but an end
        (-1, -1, HIGH_WATERMARK),  # ... nor that: what is committed stays
        (9, 28, 28),  # newer than all that the follower knows
    ],
)
def test_a_follower_cuts_where_the_histories_part(epoch: int, end_offset: int, cut: int) -> None:
    epochs = LeaderEpochs([(3, 10), (5, 22)])
    assert cut_at_divergence(epochs, END, HIGH_WATERMARK, epoch, end_offset) == Cut(cut)


def test_a_follower_without_epochs_cuts_where_the_leader_says() -> None:
    assert cut_at_divergence(LeaderEpochs(), 10, 0, 3, 7) == Cut(7)
    assert cut_at_divergence(LeaderEpochs(), 10, 0, 3, 17) == Cut(10)


@pytest.mark.parametrize(
    ("leader_start", "leader_end", "cut"),
    [
        (0, 20, Cut(20)),  # an unclean election
        (40, 50, Cut(40, anew=True)),  # the leader let go of what was never copied
        (10, 30, None),  # it fits by now
        (40, 20, Cut(20)),
    ],
)
def test_an_offset_out_of_range(leader_start: int, leader_end: int, cut: Cut | None) -> None:
    assert cut_out_of_range(5, END, leader_start, leader_end) == cut


def test_nothing_is_kept_of_a_log_that_begins_behind_the_leaders_end() -> None:
    assert cut_out_of_range(100, 100, 3, 90) == Cut(3, anew=True)
    assert cut_out_of_range(90, 100, 3, 90) == Cut(3, anew=True)
    assert cut_out_of_range(89, 100, 3, 90) == Cut(90)


def test_an_epoch_that_is_newer_than_the_leaders_goes() -> None:
    epochs = LeaderEpochs([(3, 10), (99, 22)])
    assert cut_at_divergence(epochs, 30, 30, -1, -1) == Cut(22)
