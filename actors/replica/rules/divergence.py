"""Finds where histories diverge, by leader epochs (KIP-101, KIP-279).

The high watermark decides only if the leader or the follower knows no epochs.
"""

from __future__ import annotations

from typing import NamedTuple

from raylog.storage.epochs import LeaderEpochs


class Truncation(NamedTuple):
    """How a follower truncates its log before it fetches again."""

    offset: int
    """New log end."""
    anew: bool = False
    """Whether the log also begins there, so that nothing of it is kept."""


def divergence(
    epochs: LeaderEpochs, log_end_offset: int, last_epoch: int, offset: int
) -> list[int] | None:
    """Return (epoch, exclusive end) where a fetcher's history diverges; None if it does not.

    The fetcher holds everything below `offset`; `last_epoch` is its last record's, -1 if unknown.
    """
    if last_epoch < 0:
        return None
    epoch, end = epochs.end_offset_for(last_epoch, log_end_offset)
    return [epoch, end] if epoch < last_epoch or end < offset else None


def truncation_at_divergence(
    epochs: LeaderEpochs, log_end_offset: int, high_watermark: int, epoch: int, end_offset: int
) -> Truncation:
    """Decide where to truncate when the leader's history differs from the follower's.

    `epoch` is the leader's largest epoch not above the follower's last, `end_offset` its exclusive
    end there; -1 if the leader has none. A follower without that epoch truncates to the end of the
    epoch before it and asks again, which may take several rounds (KIP-279). If the follower's last
    epoch is newer than the leader's own, it comes from a damaged file, and the follower truncates
    to that epoch's start, or to its high watermark if that is lower.
    """
    if end_offset < 0:
        entries = epochs.entries()
        began = entries[-1].start_offset if entries else high_watermark
        return Truncation(min(began, high_watermark, log_end_offset))
    own_epoch, own_end = epochs.end_offset_for(epoch, log_end_offset)
    if own_end < 0:
        return Truncation(min(end_offset, log_end_offset))
    if own_epoch != epoch:
        return Truncation(min(own_end, log_end_offset))
    return Truncation(min(own_end, end_offset, log_end_offset))


def unless_all_goes(
    truncation: Truncation, log_start_offset: int, leader_start_offset: int
) -> Truncation:
    """Return the truncation; if it leaves nothing, one that starts again at the leader's log start.

    A truncation exactly at the follower's own log start is not moved further back, as in Kafka.
    Records before it were committed and are deleted here, while the leader may not have deleted
    them yet. An in-sync follower that started again at the leader's log start would lack committed
    records for a while.
    """
    if truncation.offset < log_start_offset:
        return Truncation(leader_start_offset, anew=True)
    return truncation


def truncation_out_of_range(
    log_start_offset: int, log_end_offset: int, leader_start_offset: int, leader_end_offset: int
) -> Truncation | None:
    """Decide what to do if the leader has no record at the follower's log end; None: ask again.

    The leader ends before that offset after an unclean election. It begins after it if it deleted
    records that the follower never had.
    """
    if leader_end_offset < log_end_offset:
        if leader_end_offset <= log_start_offset:
            return Truncation(leader_start_offset, anew=True)
        return Truncation(leader_end_offset)
    if leader_start_offset > log_end_offset:
        return Truncation(leader_start_offset, anew=True)
    return None
