"""Maps of segment files: growing files, data not in memory, and which maps are kept."""

from __future__ import annotations

import gc
import mmap
import os
from pathlib import Path

import pytest

from raylog.actors.gateway.maps import SegmentMap, SegmentMaps, read_cold

PAGE = mmap.PAGESIZE


def read(maps: SegmentMaps, path: Path, position: int, length: int) -> bytes | None:
    found = maps.slice(str(path.parent), path.name, position, length)
    return None if found is None else bytes(found)


def test_a_segment_that_has_grown_is_mapped_anew_and_old_slices_stay(tmp_path: Path) -> None:
    maps, path = SegmentMaps(), tmp_path / "0.log"
    path.write_bytes(b"0123456")
    held = maps.slice(str(tmp_path), path.name, 4, 3)
    with path.open("ab") as file:
        file.write(b"789")
    assert read(maps, path, 7, 3) == b"789"
    assert read(maps, path, 5, 4) == b"5678", "across the end that the first map had"
    assert held is not None
    assert bytes(held) == b"456"


def test_one_map_serves_all_slices_up_to_its_end(tmp_path: Path) -> None:
    maps, path = SegmentMaps(), tmp_path / "0.log"
    path.write_bytes(b"0123456")
    assert read(maps, path, 0, 2) == b"01"
    path.unlink()
    assert read(maps, path, 3, 4) == b"3456", "to the last byte without looking for the file"


def test_a_slice_that_the_file_does_not_have_is_of_a_segment_that_is_gone(tmp_path: Path) -> None:
    maps, path = SegmentMaps(), tmp_path / "0.log"
    path.write_bytes(b"0123456")
    with pytest.raises(FileNotFoundError, match="has 7 bytes, 8 were announced"):
        read(maps, path, 4, 4)
    assert read(maps, path, 4, 3) == b"456"


def test_a_slice_of_which_a_page_is_not_in_memory_is_not_touched(tmp_path: Path) -> None:
    maps, path = SegmentMaps(), tmp_path / "0.log"
    with path.open("wb") as file:
        file.truncate(4 * PAGE)  # a hole: no page of it is in memory
        file.seek(PAGE)
        file.write(b"x" * 2 * PAGE)
    assert read(maps, path, PAGE, 2 * PAGE) == b"x" * 2 * PAGE
    assert read(maps, path, PAGE + 7, 2 * PAGE - 7) == b"x" * (2 * PAGE - 7)
    for position, length in [(0, 9), (PAGE - 1, 2), (3 * PAGE - 1, 2), (4 * PAGE - 3, 3)]:
        assert read(maps, path, position, length) is None


def test_the_least_recently_used_map_is_dropped(tmp_path: Path) -> None:
    maps = SegmentMaps(maps_max=2)
    paths = [tmp_path / f"{name}.log" for name in "abc"]
    for path in paths:
        path.write_bytes(b"0123456")
    for index in (0, 1, 0, 2):
        assert read(maps, paths[index], 2, 3) == b"234"
    for path in paths:
        path.unlink()
    with pytest.raises(FileNotFoundError):
        read(maps, paths[1], 2, 3)
    assert read(maps, paths[0], 2, 3) == b"234"
    assert read(maps, paths[2], 2, 3) == b"234"


def test_cold_range_is_read_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(b"0123456")
    assert read_cold(str(tmp_path), "0.log", 2, 3) == b"234"
    with pytest.raises(FileNotFoundError):
        read_cold(str(tmp_path), "1.log", 2, 3)


def test_residency_check_beyond_the_mapping_fails(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"0123456")
    with pytest.raises(OSError, match="mincore"):
        SegmentMap(str(path), 7).is_resident(0, 1 << 34)


def test_no_descriptor_stays_open_longer_than_its_map(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.log" for number in range(20)]
    for path in paths:
        path.write_bytes(b"0123456")
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    maps = SegmentMaps()
    for path in paths:
        assert read(maps, path, 2, 3) == b"234"
        assert read_cold(str(tmp_path), path.name, 2, 3) == b"234"
        with pytest.raises(FileNotFoundError):
            read(maps, path, 2, 30)
    assert len(os.listdir("/proc/self/fd")) <= before + len(paths), "one for each map"
    maps.forget([str(tmp_path)])
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before
