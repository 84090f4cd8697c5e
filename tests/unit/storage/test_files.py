"""Names, index files and checkpoint files: what is written can be read, damage is detected."""

import struct
from dataclasses import replace

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from raylog.storage import checkpoint, layout
from raylog.storage.checkpoint import CleanEnd, LogState, StateFile, WrittenPoint
from raylog.storage.epochs import EpochStart
from raylog.storage.index import (
    AbortedTransaction,
    SegmentSummary,
    SparseIndex,
    body_bytes,
    decode_body,
    decode_head,
    encode_index,
)
from tests.worlds.storage.disk import FaultyDisk

SUMMARY = SegmentSummary(100, 5_000, 160, 1, 9, 140)
ABORTED = [AbortedTransaction(7, 100, 120, 121), AbortedTransaction(8, 90, 130, 131)]


def index() -> SparseIndex:
    entries = SparseIndex()
    for number in range(1, 6):
        entries.add(10 * number, 1_000 * number, 5 * number)
    return entries


@pytest.mark.parametrize(
    ("base_offset", "generation", "name"),
    [(0, 0, "00000000000000000000.log"), (42, 3, "00000000000000000042-3.log")],
)
def test_names_of_segments(base_offset: int, generation: int, name: str) -> None:
    assert layout.segment_name(base_offset, generation) == name
    assert layout.parse_segment_name(name) == (base_offset, generation)


@pytest.mark.parametrize(
    "name", ["1.log", "00000000000000000000.index", "state", "00000000000000000000-.log", "x.log"]
)
def test_names_of_others(name: str) -> None:
    assert layout.parse_segment_name(name) is None


def test_names_that_go_with_a_segment() -> None:
    assert layout.index_name("00000000000000000042-3.log") == "00000000000000000042-3.index"
    assert layout.parse_producers_name(layout.producers_name(42)) == 42
    assert layout.parse_producers_name("42.producers") is None
    assert [layout.is_log_file(name) for name in ("state", "partition.json", "a.tmp", "lock")] == [
        True,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("offset", "floor"), [(0, (0, 0)), (9, (0, 0)), (10, (1_000, 10)), (999, (5_000, 50))]
)
def test_index_by_offset(offset: int, floor: tuple[int, int]) -> None:
    assert index().floor_offset(offset) == floor


@pytest.mark.parametrize(
    ("position", "floor"), [(999, (0, 0)), (1_000, (1_000, 10)), (4_999, (4_000, 40))]
)
def test_index_by_position(position: int, floor: tuple[int, int]) -> None:
    assert index().floor_position(position) == floor


@pytest.mark.parametrize(("timestamp", "floor"), [(0, 0), (5, 0), (6, 1_000), (26, 5_000)])
def test_index_by_timestamp(timestamp: int, floor: int) -> None:
    """All batches before the position are older than the timestamp."""
    assert index().floor_timestamp(timestamp) == floor


def test_an_index_file_is_read_as_it_was_written() -> None:
    data = encode_index(SUMMARY, index(), ABORTED)
    head = decode_head(data)
    assert head is not None
    assert (head.summary, head.aborted, head.entries) == (SUMMARY, ABORTED, 5)
    body = decode_body(head, data[head.body_position :])
    assert body is not None
    assert body.offsets == index().offsets
    assert body.positions == index().positions
    assert body.timestamps == index().timestamps
    assert head.body_position + body_bytes(head) == len(data)


@given(st.data())
def test_damaged_index_file_is_ignored(data: st.DataObject) -> None:
    whole = encode_index(SUMMARY, index(), ABORTED)
    damaged = bytearray(whole)
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged[at] ^= data.draw(st.integers(1, 255))
    if data.draw(st.booleans()):
        damaged = bytearray(whole[:at])
    head = decode_head(bytes(damaged))
    assert head is None or decode_body(head, bytes(damaged[head.body_position :])) is None


@given(st.binary(max_size=200))
def test_other_bytes_are_no_index_and_no_checkpoint(data: bytes) -> None:
    assert decode_head(data) is None
    assert checkpoint.decode(checkpoint.STATE_KIND, 1, data, "p") is None


@pytest.mark.parametrize(
    "state",
    [
        LogState(),
        LogState(
            log_start_offset=3,
            recovery_point=9,
            generation=2,
            epochs=[EpochStart(1, 3), EpochStart(4, 8)],
            clean_end=CleanEnd("00000000000000000000.log", 77, 9),
            written=WrittenPoint(8, "boot"),
        ),
    ],
)
def test_the_state_file_is_read_as_it_was_written(state: LogState) -> None:
    disk = FaultyDisk()
    file = StateFile(disk, "/d")
    assert file.read() is None
    file.write(state, 2)
    file.write(LogState(log_start_offset=1), 1)  # older: it comes late
    assert StateFile(disk, "/d").read() == state
    assert disk.listdir("/d") == ["state"]


KINDS = (
    checkpoint.STATE_KIND,
    checkpoint.PRODUCERS_KIND,
    checkpoint.HIGH_WATERMARK_KIND,
    checkpoint.CLEANER_KIND,
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_is_of_a_version_up_to_the_latest(kind: int) -> None:
    for version in range(1, 6):
        data = checkpoint.encode(kind, version, {"a": 1})
        for latest in range(version, 7):
            assert checkpoint.decode(kind, latest, data, "p") == (version, {"a": 1})
        assert checkpoint.decode(kind % 4 + 1, 6, data, "p") is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_of_a_later_version_is_refused_by_name(kind: int) -> None:
    data = checkpoint.encode(kind, 9, {"a": 1})
    with pytest.raises(checkpoint.NewerVersion, match=r"/d/name has version 9, .* 1 to 8"):
        checkpoint.decode(kind, 8, data, "/d/name")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", [1, 2, 3, 4])
@pytest.mark.parametrize("bit", range(16))
def test_a_flipped_bit_makes_no_version(kind: int, version: int, bit: int) -> None:
    data = bytearray(checkpoint.encode(kind, version, {"a": 1}))
    data[6 + bit // 8] ^= 1 << bit % 8
    found = checkpoint.decode(kind, 2, bytes(data), "p")
    # Of the versions whose checksum covers the contents only one may become another.
    assert found is None or found.version == version ^ 1 << (bit + 8) % 16
    assert found is None or max(version, found.version) <= 2


@pytest.mark.parametrize(("count", "is_right"), [(0, False), (1, False), (2, True), (3, False)])
def test_the_head_of_an_index_file_has_room_for_as_many_transactions_as_it_says(
    count: int, is_right: bool
) -> None:
    data = bytearray(encode_index(SUMMARY, SparseIndex(), ABORTED))
    struct.pack_into("=I", data, 68, count)
    struct.pack_into("=I", data, 12, crc32c(data[16:]))
    assert (decode_head(bytes(data)) is not None) == is_right


@pytest.mark.parametrize("contents", [b"", b"\xc1", b"\x01\x02", b"\xa3ab"])
def test_a_checkpoint_whose_contents_are_no_value_is_damaged(contents: bytes) -> None:
    whole = checkpoint.encode_parts(checkpoint.STATE_KIND, 1, [b"\x07"])
    assert checkpoint.decode(checkpoint.STATE_KIND, 1, whole, "p") == (1, 7)
    data = checkpoint.encode_parts(checkpoint.STATE_KIND, 1, [contents])
    assert checkpoint.decode(checkpoint.STATE_KIND, 1, data, "p") is None


@pytest.mark.parametrize(
    "lie",
    [7, None, "ab", [1], [1, 2], ["a", []], [-1, []], [3, [["a"]]], [3, [["a", -1]]], [3, [1]]],
)
def test_a_cleaners_state_of_another_shape_counts_as_lost(lie: object) -> None:
    disk = FaultyDisk()
    data = checkpoint.encode(checkpoint.CLEANER_KIND, 1, lie)
    checkpoint.write_file(disk, "/d/cleaner", data, durable=True)
    assert checkpoint.CleanerFile(disk, "/d").read() == checkpoint.CleanerState()


def test_a_cleaners_state_is_read_as_it_was_written() -> None:
    file = checkpoint.CleanerFile(FaultyDisk(), "/d")
    assert file.read() == checkpoint.CleanerState()
    state = checkpoint.CleanerState(7, (checkpoint.Swap("a", 3), checkpoint.Swap("b", 7)))
    file.write(state)
    assert file.read() == state


class ShrinkingDisk(FaultyDisk):
    """A disk whose files are shorter than it says."""

    def size(self, fd: int) -> int:
        return super().size(fd) + 10


def test_a_file_that_is_cut_while_it_is_read_is_what_is_left() -> None:
    disk = ShrinkingDisk()
    checkpoint.write_file(disk, "/d/state", b"abc", durable=True)
    assert checkpoint.read_file(disk, "/d/state") == b"abc"
    assert checkpoint.read_file(disk, "/d/other") is None
    assert disk.open_descriptors == 0


def test_leftover_temporary_file_is_overwritten() -> None:
    disk = FaultyDisk()
    fd = disk.open("/d/state.tmp", create=True)
    disk.pwritev(fd, (b"longer than that",), 0)
    disk.close(fd)
    checkpoint.write_file(disk, "/d/state", b"abc", durable=False)
    assert disk.contents("/d/state") == b"abc"
    assert disk.listdir("/d") == ["state"]


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_is_durable_before_its_name_and_its_name_after(durable: bool) -> None:
    disk = FaultyDisk()
    checkpoint.write_file(disk, "/d/state", b"abc", durable=durable)
    found = [call for call in disk.calls if call in {"fdatasync", "rename", "fsync_dir"}]
    assert found == (["fdatasync", "rename", "fsync_dir"] if durable else ["rename"])
    assert disk.open_descriptors == 0


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 30, (10, 20)),
        (10, 20, (10, 20)),
        (11, 19, (11, 19)),
        (0, 10, None),
        (20, 30, None),
        (0, 11, (10, 11)),
        (19, 30, (19, 20)),
    ],
)
def test_claims_within_a_log(start: int, end: int, expected: tuple[int, int] | None) -> None:
    assert checkpoint.Claims(10, 20).within(start, end) == expected


@pytest.mark.parametrize("missing", ["held", "clean_end", "written"])
def test_a_state_of_before_a_field_was_known_has_none(missing: str) -> None:
    disk = FaultyDisk()
    whole = LogState(
        clean_end=CleanEnd("a", 1, 2), written=WrittenPoint(3, "b"), held=4, recovery_point=5
    )
    StateFile(disk, "/d").write(whole, 1)
    known = checkpoint.decode(checkpoint.STATE_KIND, 2, disk.contents("/d/state"), "p")
    assert known is not None
    del known.value[missing]
    data = checkpoint.encode(checkpoint.STATE_KIND, 2, known.value)
    checkpoint.write_file(disk, "/d/state", data, durable=True)
    none = getattr(LogState(), missing)
    assert StateFile(disk, "/d").read() == replace(whole, **{missing: none})
