"""After a failed flush: rewrites everything above the recovery point before it is trusted.

A kernel that cannot write a page to the disk reports that once, to the next process that syncs the
file, and treats the page as clean from then on. The page can be read until memory runs short, and
later syncs succeed without writing it. So a log whose flush failed gets a note (the file
`unflushed`), and whoever opens it next:

1. rewrites everything from the recovery point on in place, as far as it can be read, and syncs it
   and the names of the files: from then on, what is read is what the disk has;
2. saves a state that makes recovery scan all of that and detect what could no longer be read;
3. removes the note.

After a crash in between, the note is still there and everything is repeated. The note itself is not
synced: a power loss can take it only together with the pages that it warns of.

The same is true of names: a state file whose directory could not be synced is read as the newest
one by whoever opens the log next, while a power loss may bring back the previous one. So any
failure to make part of a log durable leaves the note.
"""

from contextlib import suppress

from raylog.storage.disk import Disk, opened, sync_names_anew, write_fully
from raylog.storage.files import SegmentFiles
from raylog.storage.layout import UNFLUSHED_FILE, parse_segment_name
from raylog.storage.scan import scan

_CHUNK = 1024 * 1024


def note_failed_flush(disk: Disk, directory: str) -> None:
    """Leave the note. May raise OSError."""
    disk.close(disk.open(f"{directory}/{UNFLUSHED_FILE}", create=True))


def note_if_possible(disk: Disk, directory: str) -> None:
    """Try to leave the note; this process remembers the failure in any case."""
    with suppress(OSError):
        note_failed_flush(disk, directory)


def write_anew(files: SegmentFiles, recovery_point: int) -> None:
    """Rewrite all segments from the recovery point on and sync them. Blocking; raises OSError.

    Bytes that are already durable are not touched, because a power loss may tear what is being
    written.
    """
    disk, directory = files.disk, files.directory
    names = disk.listdir(directory)
    segments = sorted((parsed, name) for name in names if (parsed := parse_segment_name(name)))
    bases = [parsed.base_offset for parsed, _ in segments]
    for (base_offset, _), name in segments:
        following = min((base for base in bases if base > base_offset), default=None)
        if following is None or following > recovery_point:
            with opened(disk, files.path(name)) as fd:
                _write_anew(disk, fd, base_offset, recovery_point)
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
    disk.ftruncate(fd, size)  # the length is in doubt too
    while position < end:
        chunk = disk.pread(fd, min(_CHUNK, end - position), position)
        assert chunk, "nobody cuts a segment that is being opened"
        write_fully(disk, fd, chunk, position)
        position += len(chunk)
    disk.fdatasync(fd)


def _data_end(disk: Disk, fd: int, start: int, size: int) -> int:
    """Position after which only zeros follow; that hole is kept."""
    while size > start:
        position = max(start, size - _CHUNK)
        data = disk.pread(fd, size - position, position).rstrip(b"\0")
        if data:
            return position + len(data)
        size = position
    return start
