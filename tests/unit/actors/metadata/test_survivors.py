"""Whether the remaining copies of the metadata suffice to start a cluster."""

from __future__ import annotations

import pytest

from raylog.actors.metadata.followed import Followed
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import ClusterNamed, LeaderChanged, VotersChanged
from raylog.actors.metadata.survivors import Copy, best_copy, enough

BLANK = Followed()


def image(
    offset: int, epoch: int = 3, voters: int = 3, metadata_id: str = "m", directory: str = "d"
) -> MetadataImage:
    made = MetadataImage()
    voting = VotersChanged(tuple((one, f"{directory}{one}") for one in range(voters)))
    made.apply_update(-1, offset, [LeaderChanged(epoch), ClusterNamed("c", metadata_id), voting])
    return made


def copy(broker_id: int, followed: int | Followed, of: MetadataImage | None = None) -> Copy:
    noted = Followed("m", 3, followed) if isinstance(followed, int) else followed
    return Copy(broker_id, f"d{broker_id}", noted, of)


@pytest.mark.parametrize(
    ("copies", "left"),
    [
        ([], []),
        ([copy(0, 90), copy(1, 90)], []),
        ([copy(0, 90, image(90, voters=1))], [0]),
        ([copy(0, 90, image(90)), copy(1, 90, image(90)), copy(2, 90)], [0, 1]),
        ([copy(0, 90, image(90)), copy(1, 90), copy(2, 90)], []),
        # a voter may lag behind: the other one holds all that was committed
        ([copy(0, 90, image(90)), copy(1, 90, image(40)), copy(2, 90)], [0, 1]),
        # an older copy, by its own directory's note and by another's
        ([copy(0, 90, image(40, voters=1))], []),
        ([copy(0, 40, image(40, voters=1)), copy(1, 90)], []),
        ([copy(0, BLANK, image(40, voters=1)), copy(1, 90)], []),
        # two older copies of three might win
        ([copy(0, 90, image(90)), copy(1, 90, image(40)), copy(2, 90, image(40))], []),
        # a copy from before a rebuild, and another directory than the voter's
        ([copy(0, 90, image(90, epoch=9, voters=1, metadata_id="older"))], []),
        ([copy(0, 90, image(90, voters=1, directory="e"))], []),
    ],
)
def test_a_majority_is_left_if_it_has_all_that_was_followed(
    copies: list[Copy], left: list[int]
) -> None:
    assert enough(copies) == left
    assert enough(copies[::-1]) == left


def test_the_best_copy_is_the_latest_that_nobody_contradicts() -> None:
    sound, older, other = image(90), image(40), image(500, epoch=9, metadata_id="other")
    copies = [copy(0, 90, sound), copy(1, BLANK, older), copy(2, BLANK, other)]
    assert best_copy(copies) is sound
    assert best_copy(copies[1:]) is other
    assert best_copy([copy(0, 90), copy(1, BLANK, older)]) is older
    assert best_copy([copy(0, 90)]) is None
