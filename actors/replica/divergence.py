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
    end of the one before, and asks again: that may take several rounds (KIP-279). One whose last
    epoch is newer than the leader's own has it from a damaged file: back to where that began.
    """
    if end_offset < 0:
        entries = epochs.entries()
        began = entries[-1].start_offset if entries else high_watermark
        return Cut(min(began, high_watermark, log_end_offset))
    own_epoch, own_end = epochs.end_offset_for(epoch, log_end_offset)
    if own_end < 0:
        return Cut(min(end_offset, log_end_offset))
    if own_epoch != epoch:
        return Cut(min(own_end, log_end_offset))
    return Cut(min(own_end, end_offset, log_end_offset))


def unless_all_goes(cut: Cut, log_start_offset: int, leader_start_offset: int) -> Cut:
    """The cut; or, if it leaves nothing, one that begins anew where the leader's log does.

    A cut at the follower's own log start goes back no further, as in Apache Kafka. What was before
    it was committed, and is deleted here; the leader may not have deleted it yet. An in-sync
    follower that went back to the leader's log start would lack committed records for a while.
    """
    if cut.offset < log_start_offset:
        return Cut(leader_start_offset, anew=True)
    return cut


def cut_out_of_range(
    log_start_offset: int, log_end_offset: int, leader_start_offset: int, leader_end_offset: int
) -> Cut | None:
    """What to do when the leader has no record at the follower's log end; None: ask again.

    The leader ends before it after an unclean election; it begins behind it when it let go of
    records that the follower never had.
    """
    if leader_end_offset < log_end_offset:
        if leader_end_offset <= log_start_offset:
            return Cut(leader_start_offset, anew=True)
        return Cut(leader_end_offset)
    if leader_start_offset > log_end_offset:
        return Cut(leader_start_offset, anew=True)
    return None
