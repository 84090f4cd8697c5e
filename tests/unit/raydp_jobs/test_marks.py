"""Marks in the metadata of committed offsets, of both versions."""

import pytest

from raylog.client.admin.groups import CommittedOffset
from raylog.client.cluster import TopicPartition
from raylog.raydp_jobs.marks import (
    METADATA_BYTES_MAX,
    GroupMarks,
    Job,
    Mark,
    group_marks,
    read_mark,
)

FIRST = '{"query": "q", "batch": 4}'
"""As builds without a state topic wrote it."""


def test_a_mark_survives_the_trip() -> None:
    assert read_mark(Mark("abfrage-ü", 12).encode()) == Mark("abfrage-ü", 12)
    assert read_mark(Job("daily").encode()) == Mark("daily", 0)
    assert read_mark(FIRST) == Mark("q", 4)


@pytest.mark.parametrize("text", [None, "", "x", "{}", '{"query": 1, "batch": 2}', "[1]"])
def test_metadata_of_others_is_no_mark(text: str | None) -> None:
    assert read_mark(text) is None


def test_a_mark_that_is_too_long_for_a_broker_is_left_out() -> None:
    """Kafka refuses more than 4,096 bytes with OFFSET_METADATA_TOO_LARGE."""
    overhead = len(Mark("", 1).encode())
    longest = Mark("ü" * ((METADATA_BYTES_MAX - overhead) // 2), 1)
    assert METADATA_BYTES_MAX - 1 <= len(longest.encode().encode()) <= METADATA_BYTES_MAX
    assert Mark(longest.query_id + "ü", 1).encode() == '{"state": 2}'


def test_marks_of_version_1_are_told_from_those_beside_a_state() -> None:
    a, b, c = (TopicPartition(topic, 0) for topic in "abc")
    found = group_marks(
        {
            a: CommittedOffset(4, -1, FIRST),
            b: CommittedOffset(30, -1, FIRST),
            c: CommittedOffset(7, -1, "by hand"),
        }
    )
    assert found == GroupMarks({Mark("q", 4): {a: 4, b: 30}}, has_state=False)
    assert found.batches() == {"q": 4}
    later = group_marks({a: CommittedOffset(5, -1, Mark("q", 5).encode())})
    assert later == GroupMarks({}, has_state=True)
