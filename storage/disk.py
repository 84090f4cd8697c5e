"""All file access of the log, behind one small seam, so that tests can make a disk fail."""

import errno
import fcntl
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

Writable = bytes | bytearray | memoryview
"""What is written: anything `os.pwritev` takes that the log ever hands it."""

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_BLOCK = 512
NAME_TO_SYNC = "sync.tmp"
"""Is made and removed so that a directory has changed; no partition or log is named so."""
_PASSING = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE}


class Disk(Protocol):
    """Calls of the operating system that the log uses; each raises `OSError` as they do.

    Paths are absolute. Positions and sizes are in bytes.
    """

    def open(self, path: str, *, create: bool = False) -> int:
        """A descriptor for reading and writing; an existing file keeps its contents."""

    def duplicate(self, fd: int) -> int:
        """A second descriptor of the same open file: it sees the same write-back errors."""

    def close(self, fd: int) -> None:
        """Give the descriptor back."""

    def size(self, fd: int) -> int:
        """Length of the file, holes included."""

    def modified_ms(self, path: str) -> int:
        """When a file was changed last, in ms since the epoch."""

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Have a file changed last at another time."""

    def pread(self, fd: int, length: int, position: int, /) -> bytes:
        """At most `length` bytes; fewer at the end of the file."""

    def preadv(self, fd: int, buffers: Sequence[bytearray | memoryview], position: int, /) -> int:
        """Fill `buffers`; the number of bytes read, fewer at the end of the file."""

    def pwritev(self, fd: int, buffers: Sequence[Writable], position: int, /) -> int:
        """Write; the number of bytes written, fewer than given when the disk is full."""

    def ftruncate(self, fd: int, size: int, /) -> None:
        """Set the length; growth is a hole that takes no space."""

    def fdatasync(self, fd: int, /) -> None:
        """Wait until the file's data is durable. Blocking: only ever called in an executor."""

    def fsync_dir(self, path: str) -> None:
        """Wait until the names in a directory are durable. Blocking as `fdatasync` is."""

    def rename(self, source: str, target: str) -> None:
        """Replace `target` by `source` in one step."""

    def unlink(self, path: str) -> None:
        """Remove a name; whoever has the file mapped or open keeps it."""

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, in no order."""

    def mkdir(self, path: str) -> None:
        """Make a directory and its parents; one that exists is left alone."""

    def boot_id(self) -> str:
        """What changes when the machine starts anew; empty if there is no telling."""


class Space(NamedTuple):
    """Bytes of a volume."""

    total: int
    free: int


class Volume(Disk, Protocol):
    """What a broker's data directory needs beyond what a log does."""

    def lock(self, path: str) -> int:
        """A descriptor of a file, made if missing, that nobody else may lock until it is closed.

        Raises BlockingIOError when somebody has it locked.
        """

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it; what cannot be removed stays."""

    def move_tree(self, source: str, target: str) -> None:
        """Give a directory another name, beside its old one, that nothing has yet."""

    def used(self, path: str) -> int:
        """Bytes that a directory and all in it take; what vanishes meanwhile takes none."""

    def space(self, path: str) -> Space:
        """How much the volume of a path holds."""


class OsDisk:
    """The disk of the machine."""

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
        """Open for reading and writing; a new file is readable by the owner and the group."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o640)

    def size(self, fd: int) -> int:
        """Length of the file, holes included."""
        return os.fstat(fd).st_size

    def modified_ms(self, path: str) -> int:
        """When a file was changed last."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Have a file changed last at another time; when it was read last is left alone."""
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
        """Remove a directory and all in it."""
        shutil.rmtree(path, ignore_errors=True)

    def move_tree(self, source: str, target: str) -> None:
        """Rename a directory; OSError if the new name is taken."""
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        os.rename(source, target)

    def used(self, path: str) -> int:
        """Blocks that are allocated: a hole takes no space."""
        total = 0
        for directory, _, names in os.walk(path):
            for name in names:
                try:
                    total += os.lstat(os.path.join(directory, name)).st_blocks * _BLOCK
                except FileNotFoundError:
                    continue
        return total

    def space(self, path: str) -> Space:
        """How much the volume of a path holds."""
        usage = shutil.disk_usage(path)
        return Space(usage.total, usage.free)

    def boot_id(self) -> str:
        """The kernel's, where it has one (Linux)."""
        try:
            with open(_BOOT_ID, encoding="ascii") as file:
                return file.read().strip()
        except FileNotFoundError:
            return ""


def make_durably(disk: Disk, path: str) -> None:
    """Make a directory with its parents, such that a power loss takes none of them. Blocking.

    The name of one that is there is synced, too: who made it may have ended before that.
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
    """Make the names in a directory durable though a sync of it may have failed. Blocking; OSError.

    A kernel that could not write a directory says so once and counts it as written from then on:
    another sync alone would write nothing. A change of any name has the directory written again.
    Several may do this to one directory: whoever removes the name has changed it for all.
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
    """Whether the call may succeed later: no space, or no descriptor, is left at the moment."""
    return failure.errno in _PASSING


def remove(disk: Disk, path: str) -> None:
    """Unlink a file that may be gone already."""
    try:
        disk.unlink(path)
    except FileNotFoundError:
        return
