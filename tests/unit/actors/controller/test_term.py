"""One epoch of a controller: who learns when of its commits, and of its end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raylog.actors.common_messages import TopicId
from raylog.actors.controller import term as terms
from raylog.actors.controller.term import Term
from raylog.actors.metadata.records import (
    ConfigChanged,
    PartitionCreated,
    Record,
    TopicCreated,
)
from raylog.wire.errors import NotController
from tests.worlds.controller.machine import Controlled
from tests.worlds.decorators import in_loop
from tests.worlds.runtime import settle

T = TopicId(b"t" * 16)
PARTITION = PartitionCreated(T, 0, (0,), (0,), 0)
SETTING = ConfigChanged(2, "t", "retention.ms", "1")


def term(*recent: Record, committed: int = 0, before: int = 0) -> Term:
    """Of a controller whose metadata ends with these records; `before` them are some others."""
    unused: Any = None
    made = Term(Controlled(0).machine, unused, unused, committed=committed)
    made.machine.image.offset = before + len(recent)
    made.keep(recent)
    return made


@in_loop
async def test_until_committed_returns_once_the_offset_is_committed() -> None:
    one = term(committed=2)
    waiting = {
        offset: asyncio.ensure_future(one.until_committed(offset)) for offset in (5, 3, 4, 2)
    }
    await settle()
    assert [offset for offset, answer in waiting.items() if answer.done()] == [2]
    one.wrote(4)
    await settle()
    assert sorted(offset for offset, answer in waiting.items() if answer.done()) == [2, 3, 4]
    one.wrote(5)
    await waiting[5]


@in_loop
async def test_the_end_of_a_term_is_reported_to_all_who_wait_though_one_has_left() -> None:
    one = term()
    left, stays = (asyncio.ensure_future(one.until_committed(1)) for _ in range(2))
    news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    one.followers[news] = None
    await settle()
    left.cancel()
    await settle()
    one.end("over")
    with pytest.raises(NotController, match="over"):
        await stays
    assert news.done()
    assert one.more.is_set(), "who writes has to notice, too"


@pytest.mark.parametrize(("kept", "left"), [(5, 5), (6, 6), (7, 3)])
def test_the_last_records_are_kept(monkeypatch: pytest.MonkeyPatch, kept: int, left: int) -> None:
    monkeypatch.setattr(terms, "RECENT_RECORDS_MAX", 3)
    records = [TopicCreated(T, str(number)) for number in range(kept)]
    one = term(*records)
    assert one.recent == records[-left:]
    assert one.first_recent == kept - left


@pytest.mark.parametrize("before", [0, 10])
@pytest.mark.parametrize(
    ("begin", "committed", "end"),
    [
        (0, 7, 4),  # the topic's partitions and settings stay with it
        (0, 3, 3),  # what is not committed is not told
        (0, 1, 1),
        (4, 7, 7),
        (5, 7, 7),
        (7, 7, 7),
    ],
)
def test_a_new_topic_is_reported_at_once_with_its_partitions_and_settings(
    monkeypatch: pytest.MonkeyPatch, begin: int, committed: int, end: int, before: int
) -> None:
    monkeypatch.setattr(terms, "FOLLOW_RECORDS_MAX", 2)
    made = TopicCreated(T, "t")
    records: list[Record] = [made, PARTITION, PARTITION, SETTING, made, made, SETTING]
    one = term(*records, committed=before + committed, before=before)
    assert one.records_for_one_response(before + begin) == (before + end, records[begin:end])


def test_a_broker_is_level_when_it_has_all_that_counts() -> None:
    one = term(committed=5)
    assert one.seen_of(1) == (-1, -1, -1)
    one.saw(1, 5, 100)
    assert one.seen_of(1) == (5, 100, 100)
    one.committed = 6
    one.saw(1, 5, 200)
    assert one.seen_of(1) == (5, 200, 100)
