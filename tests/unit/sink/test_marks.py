"""Marks in the metadata of committed offsets, in both versions."""

import json

import pytest

from raylog.client.admin.groups import CommittedOffset
from raylog.client.cluster import TopicPartition
from raylog.sink.marks import (
    METADATA_BYTES_MAX,
    GroupMarks,
    Job,
    Mark,
    group_marks,
)

FIRST = '{"query": "q", "batch": 4}'
"""As builds without a state topic wrote it."""


KEY = TopicPartition("a", 0)


def test_a_mark_as_metadata() -> None:
    mark = {"query": "abfrage-ü", "batch": 12, "state": 2}
    assert json.loads(Mark("abfrage-ü", 12).encode()) == mark
    assert json.loads(Job("daily").encode()) == {"query": "daily", "batch": 0, "state": 2}


@pytest.mark.parametrize("text", ["", "x", "{}", '{"query": 1, "batch": 2}', "[1]"])
def test_metadata_of_others_is_no_mark(text: str) -> None:
    assert group_marks({KEY: CommittedOffset(4, -1, text)}) == GroupMarks({}, has_state=False)


def test_a_mark_that_is_too_long_for_a_broker_is_left_out() -> None:
    """Kafka refuses more than 4,096 bytes with OFFSET_METADATA_TOO_LARGE."""
    overhead = len(Mark("", 1).encode())
    longest = Mark("ü" * ((METADATA_BYTES_MAX - overhead) // 2), 1)
    assert METADATA_BYTES_MAX - 1 <= len(longest.encode().encode()) <= METADATA_BYTES_MAX
    assert Mark(longest.query_id + "ü", 1).encode() == '{"state": 2}'


def test_marks_of_version_1_are_distinguished_from_those_beside_a_state() -> None:
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
