"""All file access of the log, behind one small interface, so that tests can make a disk fail."""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple, Protocol

Writable = bytes | bytearray | memoryview
"""Data to be written: anything that the log passes to `os.pwritev`."""

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_BLOCK = 512
NAME_TO_SYNC = "sync.tmp"
"""Created and removed to change a directory; no partition or log has this name."""
_PASSING = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE}


class Disk(Protocol):
    """System calls that the log uses; each raises `OSError` as the call does.

    Paths are absolute. Positions and sizes are in bytes.
    """

    def open(self, path: str, *, create: bool = False) -> int:
        """Open a file for reading and writing; an existing file keeps its contents."""

    def duplicate(self, fd: int) -> int:
        """Duplicate a descriptor; the copy reports the same write-back errors."""

    def close(self, fd: int) -> None:
        """Close the descriptor."""

    def size(self, fd: int) -> int:
        """Length of the file, including holes."""

    def modified_ms(self, path: str) -> int:
        """Time of a file's last modification, in ms since the epoch."""

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time of a file's last modification."""

    def pread(self, fd: int, length: int, position: int, /) -> bytes:
        """Read at most `length` bytes; fewer at the end of the file."""

    def preadv(self, fd: int, buffers: Sequence[bytearray | memoryview], position: int, /) -> int:
        """Fill `buffers`; return the number of bytes read, fewer at the end of the file."""

    def pwritev(self, fd: int, buffers: Sequence[Writable], position: int, /) -> int:
        """Write; return the number of bytes written, fewer than given if the disk is full."""

    def ftruncate(self, fd: int, size: int, /) -> None:
        """Set the length; growth is a hole that takes no space."""

    def fdatasync(self, fd: int, /) -> None:
        """Wait until the file's data is durable. Blocking: only called in an executor."""

    def fsync_dir(self, path: str) -> None:
        """Wait until the names in a directory are durable. Blocking, like `fdatasync`."""

    def rename(self, source: str, target: str) -> None:
        """Replace `target` with `source` in one step."""

    def unlink(self, path: str) -> None:
        """Remove a name; a file that is mapped or open stays usable."""

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, in no particular order."""

    def mkdir(self, path: str) -> None:
        """Make a directory and its parents; an existing one is left alone."""

    def boot_id(self) -> str:
        """Identifies this boot of the machine; empty if unknown."""


class Space(NamedTuple):
    """Size of a volume in bytes."""

    total: int
    free: int


class Volume(Disk, Protocol):
    """The further calls that a broker's data directory needs."""

    def lock(self, path: str) -> int:
        """Lock a file, made if missing, until the returned descriptor is closed.

        Raises BlockingIOError if it is already locked.
        """

    def remove_tree(self, path: str) -> None:
        """Remove a directory and everything in it, as far as that is possible."""

    def move_tree(self, source: str, target: str) -> None:
        """Rename a directory within its parent; the new name must not exist."""

    def used(self, path: str) -> int:
        """Bytes used by a directory and everything in it; files that vanish meanwhile count 0."""

    def space(self, path: str) -> Space:
        """Size and free space of the volume that holds a path."""


class OsDisk:
    """The machine's own disk."""

    duplicate = staticmethod(os.dup)
    close = staticmethod(os.close)
    pread = staticmethod(os.pread)
    preadv = staticmethod(os.preadv)
    pwritev = staticmethod(os.pwritev)  # the hot path: no Python frame between log and kernel
    ftruncate = staticmethod(os.ftruncate)
    fdatasync = staticmethod(os.fdatasync)
    unlink = staticmethod(os.unlink)
    listdir = staticmethod(os.listdir)
    rename = staticmethod(os.replace)

    def open(self, path: str, *, create: bool = False) -> int:
        """Open for reading and writing; a new file is readable by owner and group."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o640)

    def size(self, fd: int) -> int:
        """Length of the file, including holes."""
        return os.fstat(fd).st_size

    def modified_ms(self, path: str) -> int:
        """Time of a file's last modification."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time of a file's last modification and keep that of its last access."""
        os.utime(path, ns=(os.stat(path).st_atime_ns, modified_ms * 1_000_000))

    def fsync_dir(self, path: str) -> None:
        """Wait until the names in a directory are durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def mkdir(self, path: str) -> None:
        """Make a directory and its parents."""
        os.makedirs(path, exist_ok=True)

    def lock(self, path: str) -> int:
        """Lock a file for this process."""
        fd = self.open(path, create=True)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise
        return fd

    def remove_tree(self, path: str) -> None:
        """Remove a directory and everything in it."""
        shutil.rmtree(path, ignore_errors=True)

    def move_tree(self, source: str, target: str) -> None:
        """Rename a directory; OSError if the new name is taken."""
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        os.rename(source, target)

    def used(self, path: str) -> int:
        """Allocated blocks in bytes: a hole takes no space."""
        total = 0
        for directory, _, names in os.walk(path):
            for name in names:
                try:
                    total += os.lstat(os.path.join(directory, name)).st_blocks * _BLOCK
                except FileNotFoundError:
                    continue
        return total

    def space(self, path: str) -> Space:
        """Size and free space of the volume that holds a path."""
        usage = shutil.disk_usage(path)
        return Space(usage.total, usage.free)

    def boot_id(self) -> str:
        """The kernel's boot id, where there is one (Linux)."""
        try:
            with open(_BOOT_ID, encoding="ascii") as file:
                return file.read().strip()
        except FileNotFoundError:
            return ""


@contextmanager
def opened(disk: Disk, path: str, *, create: bool = False) -> Iterator[int]:
    """Open a file for the duration of the context."""
    fd = disk.open(path, create=create)
    try:
        yield fd
    finally:
        disk.close(fd)


def write_fully(disk: Disk, fd: int, data: Writable, position: int) -> None:
    """Write all of `data` at `position`. May raise OSError."""
    rest = memoryview(data)
    while rest:
        written = disk.pwritev(fd, (rest,), position)
        position += written
        rest = rest[written:]


def make_durably(disk: Disk, path: str) -> None:
    """Make a directory and its parents so that none of them is lost in a power failure. Blocking.

    The name of an existing one is synced too: its creator may have crashed before the sync.
    """
    fresh = []
    at = path
    while at and not _exists(disk, at):
        fresh.append(at)
        at = at.rpartition("/")[0]
    disk.mkdir(path)
    for made in reversed(fresh or [path]):
        disk.fsync_dir(made.rpartition("/")[0] or "/")


def sync_names_anew(disk: Disk, directory: str) -> None:
    """Make a directory's names durable though a sync may have failed. Blocking; raises OSError.

    A kernel that could not write a directory reports that once and treats it as written from then
    on, so another sync alone would write nothing. Changing any name makes the kernel write the
    directory again. Concurrent calls for one directory are safe: whoever removes the name has
    changed it for all.
    """
    path = f"{directory}/{NAME_TO_SYNC}"
    disk.close(disk.open(path, create=True))
    with suppress(FileNotFoundError):
        disk.unlink(path)
    disk.fsync_dir(directory)


def _exists(disk: Disk, path: str) -> bool:
    try:
        disk.listdir(path)
    except FileNotFoundError:
        return False
    except PermissionError:
        return True
    return True


def is_passing(failure: OSError) -> bool:
    """Whether the call may succeed later: currently there is no space or no descriptor left."""
    return failure.errno in _PASSING


def remove(disk: Disk, path: str) -> None:
    """Unlink a file; one that does not exist is no error."""
    try:
        disk.unlink(path)
    except FileNotFoundError:
        return
