"""Copies of the metadata that are left in brokers' directories, and whether they suffice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from raylog.actors.message import distinct
from raylog.actors.metadata.followed import Followed, contradiction
from raylog.actors.metadata.image import MetadataImage


@distinct
class Copy(NamedTuple):
    """The metadata found in one broker's directory."""

    broker_id: int
    directory_id: str
    followed: Followed
    """How far it has followed the metadata, as recorded."""
    image: MetadataImage | None
    """The image from its own copy; None if it has no readable copy."""


def best_copy(copies: Sequence[Copy]) -> MetadataImage | None:
    """Return the latest copy, preferably one that no directory contradicts."""
    images = [one.image for one in copies if one.image is not None]
    sound = [image for image in images if not is_stale(image, copies)]
    return max(
        sound or images, key=lambda image: (image.controller_epoch, image.offset), default=None
    )


def is_stale(image: MetadataImage, copies: Sequence[Copy]) -> bool:
    """Whether some directory has followed metadata that is not in this image."""
    return any(contradiction(one.followed, image) is not None for one in copies)


def enough(copies: Sequence[Copy]) -> list[int]:
    """Return the remaining voters if they have everything that was followed, otherwise none.

    The winner of an election adopts the latest log of any majority. So a majority of the voters
    must remain, and stale copies must not form a majority.
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
