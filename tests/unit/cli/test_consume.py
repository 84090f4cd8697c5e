"""What `raylog consume` prints, and what its group commits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raylog.cli.consume import _is_past, _run
from raylog.cli.failures import CommandFailed
from raylog.client import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Consumer:
    """Returns polled records once; `positions` are those that a group would commit."""

    def __init__(self, *groups: tuple[TopicPartition, list[int]]) -> None:
        self.groups = [
            SimpleNamespace(
                topic=key.topic,
                partition=key.partition,
                records=[SimpleNamespace(offset=offset) for offset in offsets],
            )
            for key, offsets in groups
        ]
        self.positions: dict[TopicPartition, int] = {}

    def poll(self, timeout_ms: float, max_records: int) -> list[Any]:
        found, self.groups = self.groups, []
        for group in found:
            key = TopicPartition(group.topic, group.partition)
            self.positions[key] = group.records[-1].offset + 1
        return found

    def seek(self, key: TopicPartition, offset: int) -> None:
        self.positions[key] = offset

    def assignment(self) -> set[TopicPartition]:
        return {*self.positions}

    def position(self, key: TopicPartition) -> int:
        return self.positions[key]


def formatted(topic: str, partition: int, record: Any) -> bytes:
    if record.offset == 6:
        raise CommandFailed("record 6 cannot be read")
    return b"%d:%d\n" % (partition, record.offset)


def run(consumer: Any, count: int | None, ends: dict[TopicPartition, int] | None = None) -> None:
    _run(consumer, formatted, ends, count, None)


def test_a_group_commits_as_many_records_as_are_printed(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    consumer = Consumer((T0, [3, 4]), (T1, [5, 7, 8]))
    run(consumer, 3)
    assert capfdbinary.readouterr().out == b"0:3\n0:4\n1:5\n"
    assert consumer.positions == {T0: 5, T1: 7}


def test_records_before_an_unreadable_one_are_printed_and_none_of_the_others_is_committed(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    consumer = Consumer((T0, [5, 6, 7]), (T1, [1]))
    with pytest.raises(CommandFailed, match="record 6"):
        run(consumer, None)
    assert capfdbinary.readouterr().out == b"0:5\n"
    assert consumer.positions == {T0: 5, T1: 1}


def test_a_partition_that_was_added_later_has_no_end_to_reach() -> None:
    consumer: Any = Consumer()
    consumer.positions = {T0: 4, T1: 0}
    assert _is_past(consumer, {T0: 4})
    assert not _is_past(consumer, {T0: 5})
