"""Cuts a segment short without touching its file, which readers may have mapped."""

from dataclasses import dataclass

from raylog.storage.disk import Disk, opened, remove, write_fully
from raylog.storage.files import SegmentFiles
from raylog.storage.layout import TEMPORARY_SUFFIX
from raylog.storage.scan import scan
from raylog.storage.segment import Segment

_CHUNK = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Shortened:
    """The first `size` bytes of `old`, durable under the temporary name of segment `name`."""

    files: SegmentFiles
    old: Segment
    size: int
    name: str

    def put_in_place(self) -> None:
        """Give the copy its name. Blocking; may raise OSError."""
        path = self.files.path(self.name)
        self.files.disk.rename(path + TEMPORARY_SUFFIX, path)
        self.files.disk.fsync_dir(path.rpartition("/")[0])

    def segment(self, interval_bytes: int) -> Segment:
        """The new segment, in its place, with its index in memory."""
        segment = Segment(self.name, self.old.created_ms)
        segment.file_size = self.size
        with self.files.reading(segment) as fd:
            for _, header, _ in scan(self.files.disk, fd, 0, self.size, check=False):
                segment.note(header, header.base_offset, interval_bytes)
        assert segment.size == self.size, f"{self.old.name} was cut within a batch: {self.size}"
        segment.aborted = [
            each for each in self.old.aborted or () if each.last_offset < segment.next_offset
        ] or None
        return segment


def shortened(files: SegmentFiles, old: Segment, size: int, name: str) -> Shortened:
    """Copy the first `size` bytes of `old`. Blocking; an OSError leaves nothing behind."""
    disk, temporary = files.disk, files.path(name) + TEMPORARY_SUFFIX
    with opened(disk, temporary, create=True) as target:
        try:
            disk.ftruncate(target, 0)
            with files.reading(old) as source:
                _copy(disk, source, target, size)
            disk.fdatasync(target)
        except OSError:
            remove(disk, temporary)
            raise
    return Shortened(files, old, size, name)


def _copy(disk: Disk, source: int, target: int, size: int) -> None:
    position = 0
    while position < size:
        chunk = disk.pread(source, min(_CHUNK, size - position), position)
        assert chunk, "the kept part ends before its size"
        write_fully(disk, target, chunk, position)
        position += len(chunk)
