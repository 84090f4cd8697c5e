"""Metadata that a broker has followed, and what contradicts it."""

import pytest

from raylog.actors.metadata.followed import (
    DirectoryHistory,
    Followed,
    MetadataRefused,
    contradiction,
    require_agreement,
)
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import ClusterNamed, LeaderChanged, Record, TopicCreated
from raylog.actors.ports import TopicId
from raylog.wire.errors import ErrorCode


def topic(number: int) -> Record:
    return TopicCreated(TopicId(bytes([number]) * 16), f"t{number}")


def image() -> MetadataImage:
    """Epochs 1, 4 and 7 begin at offsets 0, 5 and 9; it ends at 12."""
    found = MetadataImage()
    found.apply_all([LeaderChanged(1), ClusterNamed("c", "m"), *map(topic, range(3))])
    found.apply_all([LeaderChanged(4), *map(topic, range(3, 6))])
    found.apply_all([LeaderChanged(7), *map(topic, range(6, 8))])
    assert found.offset == 12
    return found


@pytest.mark.parametrize(
    ("offset", "epoch"),
    [(-1, None), (0, 1), (4, 1), (5, 4), (8, 4), (9, 7), (11, 7), (12, None), (99, None)],
)
def test_the_epoch_of_a_record_is_known(offset: int, epoch: int | None) -> None:
    assert image().epoch_at(offset) == epoch


def test_below_a_snapshot_epochs_are_not_known() -> None:
    behind = MetadataImage()
    assert behind.epoch_at(0) is None
    behind.apply_update(-1, 12, image().snapshot())
    behind.apply_all([LeaderChanged(8), topic(9)])
    epochs = [behind.epoch_at(offset) for offset in (10, 11, 12, 13, 14)]
    assert epochs == [None, 7, 8, 8, None]
    assert behind.followed == Followed("m", 8, 14)
    nothing = MetadataImage()
    nothing.apply_update(-1, 0, [])
    assert (nothing.epochs, nothing.followed) == ([], Followed("", 0, 0))


@pytest.mark.parametrize(
    ("noted", "why"),
    [
        (Followed(), None),
        (Followed("m", 7, 12), None),
        (Followed("m", 1, 3), None),
        (Followed("m", 4, 9), None),
        (Followed("", 4, 9), None),
        (Followed("other", 1, 3), "it is metadata m, not other"),
        (
            Followed("m", 7, 13),
            "it is metadata m up to offset 12 in epoch 7; the broker has followed metadata m up to "
            "offset 13 in epoch 7",
        ),
        (
            Followed("m", 8, 10),
            "it is metadata m up to offset 12 in epoch 7; the broker has followed metadata m up to "
            "offset 10 in epoch 8",
        ),
        (
            Followed("m", 1, 7),
            "its record at offset 6 is of controller epoch 4, not 1: it was made anew from an "
            "older copy",
        ),
    ],
)
def test_what_contradicts_a_note(noted: Followed, why: str | None) -> None:
    assert contradiction(noted, image()) == why


def test_what_a_snapshot_does_not_tell_contradicts_nothing() -> None:
    behind = MetadataImage()
    behind.apply_update(-1, 12, image().snapshot())
    assert contradiction(Followed("m", 1, 7), behind) is None


def test_who_refuses_says_what_to_do() -> None:
    require_agreement(3, Followed("m", 7, 12), image())
    with pytest.raises(MetadataRefused) as refused:
        require_agreement(3, Followed("other", 7, 12), image())
    assert str(refused.value) == (
        "broker 3 cannot follow the metadata that it is offered: it is metadata m, not other. "
        "Nothing is changed. Restore the directory that held the metadata, or make metadata from "
        "what the brokers have with `raylog metadata rebuild` (docs/operations.md, Lost "
        "directories)"
    )
    assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert not refused.value.code.retriable


@pytest.mark.parametrize(
    ("history", "blank", "text"),
    [
        (DirectoryHistory(3), True, "broker 3 had broker epoch -1 and has 0 directories"),
        (DirectoryHistory(3, 0), False, "broker 3 had broker epoch 0"),
        (DirectoryHistory(3, replicas=1), False, "has 1 directories of partitions"),
        (
            DirectoryHistory(3, followed=Followed("m", 1, 9)),
            False,
            "broker 3 has followed metadata m up to offset 9 in epoch 1, had broker epoch -1",
        ),
    ],
)
def test_a_directory_is_blank_if_it_has_known_nothing(
    history: DirectoryHistory, blank: bool, text: str
) -> None:
    assert history.is_blank is blank
    assert text in str(history)
