"""What `raylog consume` prints, and what its group commits."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from raylog.cli.consume import _format, _is_past, _run
from raylog.cli.failures import CommandFailed
from raylog.cli.formats import NotOfFormat, Readers
from raylog.client import ClientError, TopicPartition
from raylog.wire.record import Record

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


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


def test_records_before_an_unreadable_one_are_printed_and_committed_and_no_others(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    consumer = Consumer((T1, [1]), (T0, [4, 5, 6, 7]), (T2, [8]))
    with pytest.raises(CommandFailed, match="record 6"):
        run(consumer, None)
    sys.stdout.flush()
    assert capfdbinary.readouterr().out == b"1:1\n0:4\n0:5\n"
    assert consumer.positions == {T1: 2, T0: 6, T2: 8}


def test_nothing_of_a_poll_is_committed_if_the_output_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Closed(io.BytesIO):
        def flush(self) -> None:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=Closed()))
    consumer = Consumer((T0, [4, 5]))
    with pytest.raises(BrokenPipeError):
        run(consumer, None)
    assert consumer.positions == {T0: 4}


def test_a_partition_that_was_revoked_hides_no_failure() -> None:
    class Revoked(Consumer):
        def seek(self, key: TopicPartition, offset: int) -> None:
            if key == T0:
                raise ClientError("t-0 is not assigned to this consumer")
            super().seek(key, offset)

    consumer = Revoked((T0, [6]), (T1, [8]))
    with pytest.raises(CommandFailed, match="record 6"):
        run(consumer, None)
    assert consumer.positions[T1] == 8


@pytest.mark.parametrize(
    ("group", "hint"),
    [
        (None, "--partition 1 --from 8"),
        ("g", "raylog groups reset-offsets g --topic t:1 --to-offset 8 --execute"),
    ],
)
def test_an_unreadable_record_can_be_skipped(group: str | None, hint: str) -> None:
    def fail(topic: str, data: bytes, headers: object) -> object:
        raise NotOfFormat("it is no number")

    form = _format(None, Readers(value=fail), group, as_json=False)
    with pytest.raises(CommandFailed, match="t-1, offset 7: it is no number") as raised:
        form("t", 1, Record(7, 0, None, b"x", []))
    assert raised.value.failure.hint == f"Continue after it with: {hint}"


def test_a_partition_that_was_added_later_has_no_end_to_reach() -> None:
    consumer: Any = Consumer()
    consumer.positions = {T0: 4, T1: 0}
    assert _is_past(consumer, {T0: 4})
    assert not _is_past(consumer, {T0: 5})
