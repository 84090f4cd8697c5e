"""Encoded ranges of finished offsets decode to the same ranges. Nothing else is accepted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.client.cluster import TopicPartition
from raylog.client.parallel.note import (
    NOTE_BYTES_MAX,
    NoteUnreadable,
    Range,
    decode_note,
    encode_note,
    note_bytes_at_most,
)

KEY = TopicPartition("events", 3)
offsets = st.integers(min_value=0, max_value=1 << 50)


@st.composite
def finished_ranges(draw: st.DrawFn) -> tuple[int, list[Range]]:
    committed = draw(offsets)
    lengths = draw(
        st.lists(
            st.tuples(st.integers(1, draw(st.sampled_from([2, 300, 1 << 20]))), st.integers(1, 40)),
            max_size=60,
        )
    )
    position, ranges = committed, []
    for gap, length in lengths:
        ranges.append((position + gap, position + gap + length))
        position += gap + length
    return committed, ranges


@given(finished_ranges())
def test_a_note_comes_back_as_it_was(case: tuple[int, list[Range]]) -> None:
    committed, ranges = case
    text = encode_note(KEY, committed, ranges)
    assert decode_note(KEY, committed, text) == ranges
    assert text.isascii()
    if ranges:
        gaps = sum(
            start - end
            for end, (start, _) in zip(
                [committed, *(end for _, end in ranges)], ranges, strict=False
            )
        )
        assert len(text) <= note_bytes_at_most(gaps, ranges[-1][1] - committed)


@given(finished_ranges(), st.integers(-3, 3), st.sampled_from(["events", "event"]))
def test_a_note_of_another_place_is_not_believed(
    case: tuple[int, list[Range]], moved: int, topic: str
) -> None:
    committed, ranges = case
    text = encode_note(KEY, committed, ranges)
    if not ranges or (moved == 0 and topic == KEY.topic):
        return
    with pytest.raises(NoteUnreadable):
        decode_note(TopicPartition(topic, KEY.partition), committed + moved, text)


@given(st.text(min_size=1) | st.text().map("raylog-note:1:r:".__add__))
def test_the_metadata_of_others_is_unreadable(text: str) -> None:
    with pytest.raises(NoteUnreadable):
        decode_note(KEY, 5, text)


@given(finished_ranges(), st.data())
def test_a_damaged_note_is_unreadable(case: tuple[int, list[Range]], data: st.DataObject) -> None:
    committed, ranges = case
    text = encode_note(KEY, committed, ranges)
    if not text:
        return
    position = data.draw(st.integers(0, len(text) - 1))
    cut = text[:position]
    if cut:
        with pytest.raises(NoteUnreadable):
            decode_note(KEY, committed, cut)
    changed = data.draw(st.characters(codec="ascii"))
    if changed != text[position]:
        with pytest.raises(NoteUnreadable):
            decode_note(KEY, committed, text[:position] + changed + text[position + 1 :])


def test_every_other_offset_of_24_000_fits() -> None:
    ranges = [(offset, offset + 1) for offset in range(1, 24_000, 2)]
    assert len(encode_note(KEY, 0, ranges)) <= note_bytes_at_most(12_000, 24_000) <= NOTE_BYTES_MAX
