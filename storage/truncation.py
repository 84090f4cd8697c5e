"""Cutting a segment short without touching its file, which readers may have mapped."""

from raylog.storage.disk import Disk
from raylog.storage.files import SegmentFiles
from raylog.storage.layout import TEMPORARY_SUFFIX
from raylog.storage.segment import Segment

_CHUNK = 4 * 1024 * 1024


def shortened(
    disk: Disk, files: SegmentFiles, old: Segment, size: int, name: str, interval_bytes: int
) -> Segment:
    """A new segment `name` with the first `size` bytes of `old`; durable. Blocking; OSError."""
    path = files.path(name)
    temporary = path + TEMPORARY_SUFFIX
    target = disk.open(temporary, create=True)
    try:
        disk.ftruncate(target, 0)
        with files.reading(old) as source:
            _copy(disk, source, target, size)
        disk.fdatasync(target)
    finally:
        disk.close(target)
    disk.rename(temporary, path)
    disk.fsync_dir(path.rpartition("/")[0])
    segment = Segment(name, old.created_ms)
    segment.file_size = size
    for _, header, _ in files.batches(old, 0, check=False):
        if segment.size >= size:
            break
        segment.note(header, header.base_offset, interval_bytes)
    assert segment.size == size, f"{old.name} is cut within a batch: {size}"
    segment.aborted = [
        each for each in old.aborted or () if each.last_offset < segment.next_offset
    ] or None
    return segment


def _copy(disk: Disk, source: int, target: int, size: int) -> None:
    position = 0
    while position < size:
        chunk = disk.pread(source, min(_CHUNK, size - position), position)
        written = 0
        while written < len(chunk):
            written += disk.pwritev(target, (memoryview(chunk)[written:],), position + written)
        position += len(chunk)
        assert chunk, "the kept part ends before its size"
