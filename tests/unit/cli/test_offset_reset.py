"""Resetting a group's offsets: what is asked for, and the result."""

from pathlib import Path

import pytest

from raylog.cli.failures import CommandFailed
from raylog.cli.offset_reset import (
    FromFile,
    LogRange,
    Move,
    Place,
    ShiftBy,
    Target,
    ToOffset,
    ToTime,
    offsets_text,
    parse_duration_ms,
    parse_instant,
    parse_partitions,
    plan_moves,
    read_offsets,
)
from raylog.client import FoundOffset, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LOGS = {T1: LogRange(10, 100), T0: LogRange(0, 0)}
COMMITTED = {T1: 50}
FOUND = {T0: FoundOffset(-1, -1), T1: FoundOffset(70, 1_000)}


@pytest.mark.parametrize(
    ("target", "offsets"),
    [
        (Place.EARLIEST, [0, 10]),
        (Place.LATEST, [0, 100]),
        (Place.CURRENT, [0, 50]),
        (ToOffset(30), [0, 30]),
        (ToOffset(5), [0, 10]),
        (ToOffset(101), [0, 100]),
        (ToTime(1_000), [0, 70]),
        (FromFile({T0: 3, T1: 99}), [0, 99]),
    ],
)
def test_each_partition_moves_within_its_log(target: Target, offsets: list[int]) -> None:
    moves = plan_moves(target, LOGS, COMMITTED, FOUND)
    assert [(move.key, move.offset) for move in moves] == list(zip([T0, T1], offsets, strict=True))
    assert [move.current for move in moves] == [None, 50]


@pytest.mark.parametrize(("count", "offset"), [(5, 55), (-5, 45), (-45, 10), (60, 100)])
def test_a_shift_starts_from_the_committed_offset(count: int, offset: int) -> None:
    (move,) = plan_moves(ShiftBy(count), {T1: LOGS[T1]}, COMMITTED, {})
    assert (move.asked, move.offset) == (50 + count, offset)


def test_a_shift_needs_a_committed_offset() -> None:
    with pytest.raises(CommandFailed, match="t-0 has no committed offset to shift"):
        plan_moves(ShiftBy(1), LOGS, COMMITTED, {})


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("PT30M", 1_800_000),
        ("P1DT12H", 129_600_000),
        ("p1w", 604_800_000),
        ("PT0.5S", 500),
        ("PT1H1M1S", 3_661_000),
        ("P", None),
        ("PT", None),
        ("P1DT", None),
        ("1h", None),
        ("P1H", None),
        ("P-1D", None),
        ("", None),
    ],
)
def test_durations(text: str, duration_ms: int | None) -> None:
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize(
    ("text", "timestamp_ms"),
    [
        ("1500", 1_500),
        ("@1500", 1_500),
        ("1970-01-01T00:00:02Z", 2_000),
        ("1970-01-01T01:00:00.250+01:00", 250),
        ("soon", None),
        ("@soon", None),
        (f"@{2**63 - 1}", 2**63 - 1),
        (f"@{2**63}", None),
        ("9" * 5_000, None),
        ("\u00b2", None),
        ("0001-01-01T00:00+01:00", None),
        ("9999-12-31T23:59-01:00", None),
    ],
)
def test_instants(text: str, timestamp_ms: int | None) -> None:
    assert parse_instant(text) == timestamp_ms


def test_partitions_of_a_topic() -> None:
    assert parse_partitions("t") == ("t", None)
    assert parse_partitions("t:0,12") == ("t", [0, 12])
    for text in ("t:", ":1", "t:a", "t:1,", "t:-1", ""):
        with pytest.raises(CommandFailed, match="expected TOPIC or TOPIC:0,1,2"):
            parse_partitions(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("o.csv", "t,0,5\n\n t, 1, 6\n"),
        ("o.csv", "g,t,0,5\nother,t,0,9\ng,t,1,6"),
        ("o.json", '[{"topic": "t", "partition": 0, "offset": 5}, '
         '{"group": "g", "topic": "t", "partition": 1, "offset": "6"}, '
         '{"group": "other", "topic": "t", "partition": 1, "offset": 7}]'),
        ("o.json", '{"group": "g", "offsets": [{"topic": "t", "partition": 0, "offset": 5}, '
         '{"topic": "t", "partition": 1, "offset": 6, "asked": 9}]}'),
    ],
)  # fmt: skip
def test_offsets_come_from_a_file(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert read_offsets(path, "g") == {T0: 5, T1: 6}


def test_a_file_of_offsets_must_be_text(tmp_path: Path) -> None:
    path = tmp_path / "o.csv"
    path.write_bytes(b"t,0,5\n\xff")
    with pytest.raises(CommandFailed, match="CSV or JSON in UTF-8, found byte 0xff at 6"):
        read_offsets(path, "g")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("o.csv", "t,0", "line 1: expected topic, partition and offset, found 't,0'"),
        ("o.csv", "t,0,1\nt,x,1", "line 2: .* found 't,x,1'"),
        ("o.csv", "t,0,-1", "found 't,0,-1'"),
        ("o.csv", "other,t,0,1", "has no offsets for group 'g'"),
        ("o.csv", "", "has no offsets for group 'g'"),
        ("o.json", "{", "o.json: "),
        ("o.json", "{}", "expected topic, partition and offset"),
        ("o.json", '[{"topic": "t"}]', "item 1: "),
        ("o.json", "[3]", "item 1: "),
    ],
)
def test_a_file_that_makes_no_sense_is_reported(
    tmp_path: Path, name: str, text: str, expected: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(CommandFailed, match=expected):
        read_offsets(path, "g")


@pytest.mark.parametrize("name", ["o.csv", "o.json"])
def test_exported_offsets_can_be_read_back(tmp_path: Path, name: str) -> None:
    moves = [Move(T0, None, 7, LogRange(0, 5)), Move(T1, 1, 2, LogRange(0, 5))]
    path = tmp_path / name
    path.write_text(offsets_text(moves, as_json=name.endswith("json")))
    assert read_offsets(path, "g") == {T0: 5, T1: 2}
