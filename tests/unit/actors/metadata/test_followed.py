"""The metadata that a broker has followed, and metadata that contradicts it."""

from collections.abc import Iterable

import pytest

from raylog.actors.common_messages import TopicId
from raylog.actors.metadata.followed import (
    DirectoryHistory,
    Followed,
    MetadataRefused,
    contradiction,
    require_agreement,
)
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import (
    ClusterNamed,
    LeaderChanged,
    Record,
    TopicCreated,
    decode_record,
    encode_record,
)
from raylog.actors.metadata.terms import TERMS_MAX, Term, Terms
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
    [(-1, None), (0, 1), (4, 1), (5, 4), (8, 4), (9, 7), (11, 7)],
)
def test_the_epoch_of_a_record_is_known(offset: int, epoch: int | None) -> None:
    term = image().terms.at(offset)
    assert (term and term.epoch) == epoch


def as_older_builds_write(records: Iterable[Record]) -> list[Record]:
    return [
        LeaderChanged(record.controller_epoch, record.controller)
        if isinstance(record, LeaderChanged)
        else record
        for record in records
    ]


def test_below_a_snapshot_of_an_older_build_terms_are_not_known() -> None:
    behind = MetadataImage()
    assert behind.terms.at(0) is None
    behind.apply_update(-1, 12, as_older_builds_write(image().snapshot()))
    behind.apply_all([LeaderChanged(8, "", 77), topic(9)])
    terms = [behind.terms.at(offset) for offset in (10, 11, 12, 13)]
    assert terms == [None, Term(7, 0, 11), Term(8, 77, 12), Term(8, 77, 12)]
    assert behind.followed == Followed("m", 8, 14, 77)
    nothing = MetadataImage()
    nothing.apply_update(-1, 0, [])
    assert (nothing.terms, nothing.followed) == (Terms(), Followed("", 0, 0))


def test_terms_are_kept_in_snapshots() -> None:
    one = image()
    one.apply_all([LeaderChanged(8, "", 77), topic(9)])
    other = MetadataImage()
    other.apply_update(-1, one.offset, map(decode_record, map(encode_record, one.snapshot())))
    assert (
        other.terms == one.terms == (Term(1, 0, 0), Term(4, 0, 5), Term(7, 0, 9), Term(8, 77, 12))
    )
    assert other.followed == one.followed


def test_the_oldest_terms_are_dropped() -> None:
    terms = Terms()
    for number in range(TERMS_MAX - 1):
        terms = terms.begun(number, number, 2 * number)
    assert not terms.is_cut
    assert terms.at(0) == Term(0, 0, 0)
    for number in range(TERMS_MAX - 1, TERMS_MAX + 5):
        terms = terms.begun(number, number, 2 * number)
    assert (len(terms), terms.is_cut) == (TERMS_MAX, True)
    assert (terms.at(9), terms.at(10), terms.at(11)) == (None, Term(5, 5, 10), Term(5, 5, 10))


def gone_on(nonce: int, *, snapshot: bool = False) -> MetadataImage:
    """Metadata of a copy that ended at offset 12, in the epoch after that."""
    found = image()
    found.apply_all([LeaderChanged(8, "", nonce), *map(topic, range(8, 99))])
    if not snapshot:
        return found
    whole = MetadataImage()
    whole.apply_update(-1, found.offset, found.snapshot())
    return whole


@pytest.mark.parametrize("snapshot", [False, True])
def test_an_older_copy_that_went_on_is_refused_though_its_epoch_is_the_same(snapshot: bool) -> None:
    lost = Followed("m", 8, 50, 5)
    found = gone_on(6, snapshot=snapshot)
    assert contradiction(lost, found) == (
        "its record at offset 49 is of another controller epoch 8 (nonce 6, not 5): it was made "
        "anew from an older copy"
    )
    assert contradiction(lost._replace(nonce=6), found) is None
    assert contradiction(Followed("m", 8, 50), found) is not None  # an older build's epoch 8


def test_a_controller_that_nothing_is_known_of_was_another_historys() -> None:
    upgraded = MetadataImage()
    upgraded.apply_update(-1, 500, as_older_builds_write(image().snapshot()))
    upgraded.apply_all([LeaderChanged(8, "", 6), topic(99)])
    noted = Followed("m", 5, 400)
    assert contradiction(noted, upgraded) is None  # an older build's: it knew no more
    why = contradiction(noted._replace(nonce=5), upgraded)
    assert why == f"the broker has followed {noted}, of which it has no controller"


def test_history_that_no_longer_covers_the_broker_is_refused_with_a_remedy() -> None:
    found = image()
    found.apply_all(LeaderChanged(8 + number, "", 1 + number) for number in range(TERMS_MAX + 1))
    assert contradiction(Followed("m", 9, 14, 2), found) is None
    why = contradiction(Followed("m", 8, 13, 1), found)
    assert why is not None
    assert "names the last 4096 controllers" in why
    assert "remove followed.json from its directory" in why


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
def test_contradictions_of_a_follow_note(noted: Followed, why: str | None) -> None:
    assert contradiction(noted, image()) == why


def test_snapshot_of_an_older_build_does_not_contradict_a_note() -> None:
    behind = MetadataImage()
    behind.apply_update(-1, 12, as_older_builds_write(image().snapshot()))
    assert contradiction(Followed("m", 1, 7), behind) is None


def test_refused_metadata_error_names_the_remedy_and_the_reason() -> None:
    require_agreement(3, Followed("m", 7, 12), image())
    with pytest.raises(MetadataRefused) as refused:
        require_agreement(3, Followed("other", 7, 12), image())
    assert str(refused.value) == (
        "broker 3 cannot follow the metadata that it is offered. "
        "Restore the directory that held the metadata, or run `raylog metadata rebuild` "
        "(docs/operations.md, Lost directories). Reason: it is metadata m, not other"
    )
    assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert not refused.value.code.retriable


@pytest.mark.parametrize(
    ("history", "blank", "text"),
    [
        (DirectoryHistory(3), True, "broker 3: new"),
        (DirectoryHistory(3, 0), False, "broker 3: broker epoch 0"),
        (DirectoryHistory(3, replicas=1), False, "broker 3: 1 partition"),
        (DirectoryHistory(3, 7, Followed("m", 1, 9)), False, "broker 3: metadata up to offset 9"),
        (
            DirectoryHistory(3, 7, replicas=2),
            False,
            "broker 3: 2 partitions, broker epoch 7",
        ),
    ],
)
def test_a_directory_is_blank_if_it_has_known_nothing(
    history: DirectoryHistory, blank: bool, text: str
) -> None:
    assert history.is_blank is blank
    assert text in str(history)
