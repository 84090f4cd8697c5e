"""After a failed flush: what lies above the recovery point is written anew before it is believed.

A kernel that cannot write a page to the disk says so once, to whoever syncs the file, and counts
the page as clean from then on. The page can be read until memory runs short, and later syncs
succeed without writing it. So a log whose flush failed gets a note (the file `unflushed`), and
whoever opens it next:

1. writes everything from the recovery point on again, in place, as it can be read, and syncs it
   and the names of the files: from then on what is read is what the disk has;
2. saves a state by which recovery scans all of that, and misses what could not be read any more;
3. removes the note.

A crash in between leaves the note, and all of it is done again. The note itself is not synced: a
power loss takes it only together with the pages that it warns of.

It is the same with names: a state file whose directory could not be synced is read, as the newest
one, by whoever opens the log next, and a power loss may bring back the one before. So any failure
to make something of a log durable leaves the note.
"""

from contextlib import suppress

from raylog.storage.disk import Disk, sync_names_anew
from raylog.storage.files import SegmentFiles
from raylog.storage.layout import UNFLUSHED_FILE, parse_segment_name
from raylog.storage.scan import scan

_CHUNK = 1024 * 1024


def note_failed_flush(disk: Disk, directory: str) -> None:
    """Leave the note. OSError."""
    disk.close(disk.open(f"{directory}/{UNFLUSHED_FILE}", create=True))


def note_if_possible(disk: Disk, directory: str) -> None:
    """Leave the note, unless the disk takes no file: the process that met the failure knows."""
    with suppress(OSError):
        note_failed_flush(disk, directory)


def write_anew(disk: Disk, directory: str, files: SegmentFiles, recovery_point: int) -> None:
    """Write all segments anew from the recovery point on, and make them durable. Blocking; OSError.

    Bytes that are durable already are left alone: a power loss may tear what is being written.
    """
    names = disk.listdir(directory)
    segments = sorted((parsed, name) for name in names if (parsed := parse_segment_name(name)))
    bases = [parsed.base_offset for parsed, _ in segments]
    for (base_offset, _), name in segments:
        following = min((base for base in bases if base > base_offset), default=None)
        if following is None or following > recovery_point:
            fd = disk.open(files.path(name))
            try:
                _write_anew(disk, fd, base_offset, recovery_point)
            finally:
                disk.close(fd)
    sync_names_anew(disk, directory)
    sync_names_anew(disk, directory.rpartition("/")[0])


def _write_anew(disk: Disk, fd: int, base_offset: int, recovery_point: int) -> None:
    size = disk.size(fd)
    position = 0
    if base_offset < recovery_point:
        for start, header, _ in scan(disk, fd, 0, size, check=False):
            if header.next_offset > recovery_point:
                break
            position = start + header.size
    end = _data_end(disk, fd, position, size)
    disk.ftruncate(fd, size)  # the length is in doubt, too
    while position < end:
        chunk = memoryview(disk.pread(fd, min(_CHUNK, end - position), position))
        assert chunk, "nobody cuts a segment that is being opened"
        while chunk:
            written = disk.pwritev(fd, (chunk,), position)
            position += written
            chunk = chunk[written:]
    disk.fdatasync(fd)


def _data_end(disk: Disk, fd: int, start: int, size: int) -> int:
    """Where only zeros follow: a hole, which is to stay one."""
    while size > start:
        position = max(start, size - _CHUNK)
        data = disk.pread(fd, size - position, position).rstrip(b"\0")
        if data:
            return position + len(data)
        size = position
    return start
