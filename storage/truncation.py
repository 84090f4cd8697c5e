"""Cuts a segment short without touching its file, which readers may have mapped."""

from raylog.storage.disk import Disk, opened, remove, write_fully
from raylog.storage.files import SegmentFiles
from raylog.storage.layout import TEMPORARY_SUFFIX
from raylog.storage.scan import scan
from raylog.storage.segment import Segment
from raylog.wire.errors import CorruptMessage

_CHUNK = 4 * 1024 * 1024


def shortened(
    files: SegmentFiles, old: Segment, size: int, name: str, interval_bytes: int
) -> Segment:
    """Copy the first `size` bytes of `old`; the copy gets its `name` from `put_in_place`.

    Its data is durable and its index is in memory. Blocking. An OSError leaves nothing behind.
    Raises CORRUPT_MESSAGE if these bytes are not whole batches.
    """
    disk, temporary = files.disk, files.path(name) + TEMPORARY_SUFFIX
    segment = Segment(name, old.created_ms)
    segment.file_size = size
    with files.reading(old) as source:
        for _, header, _ in scan(disk, source, 0, size, check=False):
            segment.note(header, header.base_offset, interval_bytes)
        if segment.size != size:
            raise CorruptMessage(
                f"{old.name} has no whole batch at byte {segment.size}, expected some up to {size}"
            )
        with opened(disk, temporary, create=True) as target:
            try:
                disk.ftruncate(target, 0)
                _copy(disk, source, target, size)
                disk.fdatasync(target)
            except OSError:
                remove(disk, temporary)
                raise
    segment.aborted = [
        each for each in old.aborted or () if each.last_offset < segment.next_offset
    ] or None
    return segment


def put_in_place(files: SegmentFiles, segment: Segment) -> None:
    """Give a shortened segment its name. Blocking; may raise OSError."""
    path = files.path(segment.name)
    files.disk.rename(path + TEMPORARY_SUFFIX, path)
    files.disk.fsync_dir(files.directory)


def _copy(disk: Disk, source: int, target: int, size: int) -> None:
    position = 0
    while position < size:
        chunk = disk.pread(source, min(_CHUNK, size - position), position)
        assert chunk, "the kept part ends before its size"
        write_fully(disk, target, chunk, position)
        position += len(chunk)
