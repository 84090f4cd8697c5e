"""A disk that is read and never written: what opening a log would find, and nothing more."""

from __future__ import annotations

import os
from collections.abc import Sequence

from raylog.storage.disk import OsDisk, Writable

_DISK = OsDisk()


class DryRunDisk:
    """A `Disk` that answers changes as if it had made them, and makes none.

    Recovery lists a directory once and looks at no file again that it has written, renamed or
    removed, so that it finds the same log as on the real disk.
    """

    duplicate = staticmethod(os.dup)
    close = staticmethod(os.close)
    pread = staticmethod(os.pread)
    preadv = staticmethod(os.preadv)

    def open(self, path: str, *, create: bool = False) -> int:
        """Open for reading; a file that would be made is /dev/null."""
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
        """When a file was changed last."""
        return _DISK.modified_ms(path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Change nothing."""

    def listdir(self, path: str) -> list[str]:
        """Names in a directory; none where it would have been made."""
        try:
            return os.listdir(path)
        except FileNotFoundError:
            return []

    def boot_id(self) -> str:
        """The kernel's."""
        return _DISK.boot_id()

    def pwritev(self, fd: int, buffers: Sequence[Writable], position: int, /) -> int:
        """Write nothing; says that all was written."""
        return sum(len(one) for one in buffers)

    def ftruncate(self, fd: int, size: int, /) -> None:
        """Cut nothing."""

    def fdatasync(self, fd: int, /) -> None:
        """Wait for nothing."""

    def fsync_dir(self, path: str) -> None:
        """Wait for nothing."""

    def rename(self, source: str, target: str) -> None:
        """Rename nothing."""

    def unlink(self, path: str) -> None:
        """Remove nothing."""

    def mkdir(self, path: str) -> None:
        """Make nothing."""
