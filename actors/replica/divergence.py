"""Where a follower cuts its log: by leader epochs, never by a high watermark (KIP-101, KIP-279)."""

from __future__ import annotations

from typing import NamedTuple

from raylog.storage.epochs import LeaderEpochs


class Cut(NamedTuple):
    """What a follower does to its log before it fetches again."""

    offset: int
    """Where the log ends then."""
    anew: bool = False
    """Whether it begins there too: nothing of it is kept."""


def cut_at_divergence(
    epochs: LeaderEpochs, log_end_offset: int, high_watermark: int, epoch: int, end_offset: int
) -> Cut:
    """Where to cut when the leader's history is another than the follower's.

    `epoch` is the leader's largest one not above the follower's last, `end_offset` its exclusive
    end there; -1 where the leader knows of none. A follower without that epoch goes back to the
    end of the one before, and asks again: that may take several rounds (KIP-279).
    """
    if end_offset < 0:
        return Cut(min(high_watermark, log_end_offset))
    own_epoch, own_end = epochs.end_offset_for(epoch, log_end_offset)
    if own_end < 0:
        return Cut(min(end_offset, log_end_offset))
    if own_epoch != epoch:
        return Cut(min(own_end, log_end_offset))
    return Cut(min(own_end, end_offset, log_end_offset))


def cut_out_of_range(
    log_end_offset: int, leader_start_offset: int, leader_end_offset: int
) -> Cut | None:
    """What to do when the leader has no record at the follower's log end; None: ask again.

    The leader ends before it after an unclean election; it begins behind it when it let go of
    records that the follower never had.
    """
    if leader_end_offset < log_end_offset:
        return Cut(leader_end_offset)
    if leader_start_offset > log_end_offset:
        return Cut(leader_start_offset, anew=True)
    return None
