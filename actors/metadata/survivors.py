"""Copies of the metadata that are left in brokers' directories, and whether they are enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from raylog.actors.metadata.followed import Followed, contradiction
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.plain import distinct


@distinct
class Copy(NamedTuple):
    """What one broker's directory has of the metadata."""

    broker_id: int
    directory_id: str
    followed: Followed
    """As far as it has noted."""
    image: MetadataImage | None
    """Of its own copy; None if it has none that can be read."""


def best_copy(copies: Sequence[Copy]) -> MetadataImage | None:
    """The latest copy, of those that no directory contradicts if there are any."""
    images = [one.image for one in copies if one.image is not None]
    sound = [image for image in images if not is_stale(image, copies)]
    return max(
        sound or images, key=lambda image: (image.controller_epoch, image.offset), default=None
    )


def is_stale(image: MetadataImage, copies: Sequence[Copy]) -> bool:
    """Whether some directory has followed what is not in it."""
    return any(contradiction(one.followed, image) is not None for one in copies)


def enough(copies: Sequence[Copy]) -> list[int]:
    """The voters that are left, if a cluster that starts on them has all that was followed.

    Whoever wins an election takes the latest log of some majority. So a majority must be left, and
    not one of stale copies alone. No voters where that is not so.
    """
    best = best_copy(copies)
    if best is None or is_stale(best, copies):
        return []
    left = {
        one.broker_id: one.image
        for one in copies
        if one.image is not None and (one.broker_id, one.directory_id) in best.voters
    }
    stale = sum(is_stale(image, copies) for image in left.values())
    majority = len(best.voters) // 2 + 1
    return sorted(left) if len(left) >= majority > stale else []
