"""A disk that is only read: shows what opening a log would find, and changes nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence

from raylog.storage.disk import OsDisk, Writable

_DISK = OsDisk()


class DryRunDisk:
    """A `Disk` that accepts changes as if it had made them, and makes none.

    Recovery lists a directory once and does not read a file again after it wrote, renamed or
    removed it, so it finds the same log as on the real disk.
    """

    duplicate = staticmethod(os.dup)
    close = staticmethod(os.close)
    pread = staticmethod(os.pread)
    preadv = staticmethod(os.preadv)

    def open(self, path: str, *, create: bool = False) -> int:
        """Open for reading; in place of a file that would be created, open /dev/null."""
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            if not create:
                raise
            return os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)

    def size(self, fd: int) -> int:
        """Length of the file."""
        return _DISK.size(fd)

    def modified_ms(self, path: str) -> int:
        """Time of a file's last modification."""
        return _DISK.modified_ms(path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Do nothing."""

    def listdir(self, path: str) -> list[str]:
        """Names in a directory; none if it would have been created."""
        try:
            return os.listdir(path)
        except FileNotFoundError:
            return []

    def boot_id(self) -> str:
        """The kernel's boot id."""
        return _DISK.boot_id()

    def pwritev(self, fd: int, buffers: Sequence[Writable], position: int, /) -> int:
        """Write nothing; return the number of bytes given."""
        return sum(len(one) for one in buffers)

    def ftruncate(self, fd: int, size: int, /) -> None:
        """Do nothing."""

    def fdatasync(self, fd: int, /) -> None:
        """Do nothing."""

    def fsync_dir(self, path: str) -> None:
        """Do nothing."""

    def rename(self, source: str, target: str) -> None:
        """Do nothing."""

    def unlink(self, path: str) -> None:
        """Do nothing."""

    def mkdir(self, path: str) -> None:
        """Do nothing."""
