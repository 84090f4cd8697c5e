"""Where followers truncate their logs: KIP-101 and KIP-279 as tables."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from raylog.actors.replica.rules.divergence import (
    Truncation,
    truncation_at_divergence,
    truncation_out_of_range,
    unless_all_goes,
)
from raylog.storage.epochs import LeaderEpochs

END, HIGH_WATERMARK = 30, 12


@pytest.mark.parametrize(
    ("epoch", "end_offset", "truncation"),
    [
        (5, 25, 25),  # the leader's epoch 5 ended earlier
        (5, 40, END),  # ... or later: nothing goes but what contradicts it at the end
        (3, 20, 20),  # both have epoch 3, the leader less of it
        (3, 24, 22),  # ... or more: the follower's own end of it counts
        (4, 22, 22),  # the follower has no epoch 4: back to the end of 3, then ask again
        (4, 26, 22),  # ... wherever the leader's ended: what the follower has there is of epoch 5
        (1, 8, 8),  # older than all that the follower knows
        (-1, 7, 7),  # the leader knows no epoch, but an end
        (-1, -1, HIGH_WATERMARK),  # ... nor that: what is committed stays
        (9, 28, 28),  # newer than all that the follower knows
    ],
)
def test_a_follower_cuts_where_the_histories_part(
    epoch: int, end_offset: int, truncation: int
) -> None:
    epochs = LeaderEpochs([(3, 10), (5, 22)])
    assert truncation_at_divergence(epochs, END, HIGH_WATERMARK, epoch, end_offset) == Truncation(
        truncation
    )


def test_a_follower_without_epochs_cuts_where_the_leader_says() -> None:
    assert truncation_at_divergence(LeaderEpochs(), 10, 0, 3, 7) == Truncation(7)
    assert truncation_at_divergence(LeaderEpochs(), 10, 0, 3, 17) == Truncation(10)


@pytest.mark.parametrize(
    ("leader_start", "leader_end", "truncation"),
    [
        (0, 20, Truncation(20)),  # an unclean election
        (40, 50, Truncation(40, anew=True)),  # the leader let go of what was never copied
        (10, 30, None),  # it fits by now
        (40, 20, Truncation(20)),
    ],
)
def test_an_offset_out_of_range(
    leader_start: int, leader_end: int, truncation: Truncation | None
) -> None:
    assert truncation_out_of_range(5, END, leader_start, leader_end) == truncation


def test_nothing_is_kept_of_a_log_that_begins_behind_the_leaders_end() -> None:
    assert truncation_out_of_range(100, 100, 3, 90) == Truncation(3, anew=True)
    assert truncation_out_of_range(90, 100, 3, 90) == Truncation(3, anew=True)
    assert truncation_out_of_range(89, 100, 3, 90) == Truncation(90)


def test_an_epoch_that_is_newer_than_the_leaders_goes() -> None:
    epochs = LeaderEpochs([(3, 10), (99, 22)])
    assert truncation_at_divergence(epochs, 30, 30, -1, -1) == Truncation(22)


@pytest.mark.parametrize(
    ("at", "leader_start", "truncation"),
    [
        (14, 7, Truncation(14)),
        (13, 7, Truncation(13)),  # what was before the log start was committed, and is deleted here
        (13, 13, Truncation(13)),
        (13, 15, Truncation(13)),  # asked again, the leader says that it begins later
        (12, 7, Truncation(7, anew=True)),  # after an unclean election: all goes, and comes anew
    ],
)
def test_a_cut_at_the_log_start_goes_back_no_further(
    at: int, leader_start: int, truncation: Truncation
) -> None:
    assert (
        unless_all_goes(Truncation(at), log_start_offset=13, leader_start_offset=leader_start)
        == truncation
    )


entries = st.lists(st.integers(1, 4), min_size=1, max_size=5)


@given(st.data())
def test_committed_records_are_never_truncated(data: st.DataObject) -> None:
    """Replicas with the same committed records, each with its own end and log start.

    The follower's log ends beyond `committed` with epochs that the leader may not have, and begins
    anywhere before it. A truncation leaves the end at or above it, and ends the
    divergence at some time.
    """
    lengths = data.draw(entries, "records of epochs 0, 1 and so on")
    starts = [sum(lengths[:epoch]) for epoch in range(len(lengths))]
    committed = sum(lengths)
    newer = len(lengths)
    tail = st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=4)
    logs = []
    for parity in (0, 1):  # each epoch has one leader: who does not have it from there, lacks it
        epochs = LeaderEpochs(enumerate(starts))
        end = committed
        for number, (count, noted) in enumerate(data.draw(tail, "uncommitted")):
            if count or noted:
                epochs.assign(newer + 2 * number + parity, end)
            end += count
        start = data.draw(st.integers(0, committed), "log start")
        epochs.truncate_from_start(start)
        logs.append((epochs, start, end))
    (leader, leader_start, leader_end), (follower, start, end) = logs
    for _ in range(20):
        last = follower.latest
        epoch, epoch_end = leader.end_offset_for(last, leader_end)
        if last < 0 or last == leader.latest or (epoch >= last and epoch_end >= end):
            break
        truncation = unless_all_goes(
            truncation_at_divergence(follower, end, committed, epoch, epoch_end),
            start,
            leader_start,
        )
        end = truncation.offset
        follower.truncate_from_end(0 if truncation.anew else end)
        start = end if truncation.anew else start
        assert end >= committed
    else:
        pytest.fail("the follower cuts for ever")
