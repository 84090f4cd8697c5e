"""The disk of a simulated machine: in memory, and as unreliable as real disks (`volume.py`).

If the disk is full, a write first stores a part of its data, and then nothing. Calls fail with EIO
when they are told to.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from raylog.simulation.loop import Process, current_process
from raylog.simulation.volume import Directory, Inode, Volume, os_error
from raylog.storage.disk import Space, Writable

_SPACE = Space(1 << 40, 1 << 39)


@dataclass(slots=True)
class _Fault:
    call: str
    path: str
    times: int


class SimDisk:
    """A volume of one machine."""

    def __init__(self, random: Random, now_ms: Callable[[], int] = lambda: 0) -> None:
        self.full = False
        self.boots = 1
        self.failed: set[str] = set()
        """Directories in which a call has failed. Their logs may be offline."""
        self._doubtful: set[str] = set()
        """Directories in which a sync failed or a name was removed or replaced."""
        self._random = random
        self._now_ms = now_ms
        """The clock for the modification times of files."""
        self._volume = Volume()
        self._open: dict[int, tuple[Inode, str, Process | None]] = {}
        self._locks: dict[str, int] = {}
        self._next_fd = 3
        self._faults: list[_Fault] = []

    # ---- faults --------------------------------------------------------------------------

    def fail_next(self, call: str, path: str, times: int) -> None:
        """Let the next `times` calls of a kind fail with EIO, on paths that contain `path`."""
        self._faults.append(_Fault(call, path, times))

    def heal(self) -> None:
        """End all failures."""
        self.full = False
        self._faults.clear()

    def release(self, process: Process) -> None:
        """Close the descriptors and release the locks of a process that has ended."""
        for fd in [fd for fd, opened in self._open.items() if opened[2] is process]:
            self.close(fd)

    def lose_power(self) -> None:
        """Lose what was not synced, in whole or in part."""
        self._open.clear()
        self._locks.clear()
        self.heal()
        self.boots += 1
        self._volume.lose_power(self._random)

    def contents(self, path: str) -> bytes:
        """The content of a file, as processes see it."""
        return bytes(self._volume.file(path).data)

    def is_doubtful(self, path: str) -> bool:
        """Whether a directory may hold less than its owner made durable."""
        return any(path == one or path.startswith(one + "/") for one in self._doubtful)

    def copy_of(self, path: str) -> Directory | None:
        """A copy of a directory as it is now, for `put_back`; None if there is none."""
        return self._volume.directory(path).copy() if self._volume.has(path) else None

    def put_back(self, path: str, copy: Inode | Directory | None) -> None:
        """Replace what is at `path` by a copy, or remove it if the copy is None."""
        if self._volume.has(path.rpartition("/")[0]):
            self._volume.put_tree(path, None if copy is None else copy.copy())
            self._doubtful.add(path)

    # ---- the `Disk` interface ------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> int:
        """Open a file."""
        self._may_fail("open", path)
        directory, name = self._volume.place(path)
        inode = directory.names.get(name)
        if isinstance(inode, Directory):
            raise os_error(errno.EISDIR, path)
        if inode is None:
            if not create:
                raise os_error(errno.ENOENT, path)
            if self.full:
                raise os_error(errno.ENOSPC, path)
            inode = Inode(modified_ms=self._now_ms())
            directory.put(name, inode)
        return self._descriptor(inode, path)

    def duplicate(self, fd: int) -> int:
        """Duplicate a descriptor."""
        inode, path, _ = self._open[fd]
        return self._descriptor(inode, path)

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        inode, path, _ = self._open.pop(fd)
        inode.close(self._random)
        if self._locks.get(path) == fd:
            del self._locks[path]

    def size(self, fd: int) -> int:
        """The length of a file."""
        return len(self._open[fd][0].data)

    def modified_ms(self, path: str) -> int:
        """The modification time of a file."""
        return self._volume.file(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the modification time of a file."""
        self._volume.file(path).modified_ms = modified_ms

    def pread(self, fd: int, length: int, position: int, /) -> bytes:
        """Read."""
        inode, path, _ = self._open[fd]
        self._may_fail("pread", path)
        return bytes(inode.data[position : position + length])

    def preadv(self, fd: int, buffers: Sequence[bytearray | memoryview], position: int, /) -> int:
        """Read into buffers."""
        inode, path, _ = self._open[fd]
        self._may_fail("pread", path)
        start = position
        for buffer in buffers:
            chunk = inode.data[position : position + len(buffer)]
            buffer[: len(chunk)] = chunk
            position += len(chunk)
        return position - start

    def pwritev(self, fd: int, buffers: Sequence[Writable], position: int, /) -> int:
        """Write."""
        inode, path, _ = self._open[fd]
        self._may_fail("pwritev", path)
        data = b"".join(buffers)
        if self.full and position + len(data) > inode.written:
            fits = self._random.randint(0, len(data) // 2)
            if not fits:
                raise os_error(errno.ENOSPC, path)
            data = data[:fits]
        inode.write(position, data)
        inode.modified_ms = self._now_ms()
        return len(data)

    def ftruncate(self, fd: int, size: int, /) -> None:
        """Set a file's length."""
        inode, path, _ = self._open[fd]
        self._may_fail("ftruncate", path)
        inode.resize(size)
        inode.modified_ms = self._now_ms()

    def fdatasync(self, fd: int, /) -> None:
        """Make a file's data durable. What a failed sync did not write is lost for good."""
        inode, path, _ = self._open[fd]
        try:
            self._may_fail("fdatasync", path)
        except OSError:
            inode.fail_sync()
            self._doubtful.add(path.rpartition("/")[0])
            raise
        inode.sync()

    def fsync_dir(self, path: str) -> None:
        """Make the names in a directory durable.

        After a failed sync the next one reports success.
        """
        directory = self._volume.directory(path.rstrip("/"))
        try:
            self._may_fail("fdatasync", path)
        except OSError:
            directory.fail_sync()
            self._doubtful.add(path)
            raise
        directory.sync()

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory."""
        self._volume.rename(source, target)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        self._volume.unlink(path)

    def listdir(self, path: str) -> list[str]:
        """The names in a directory."""
        return list(self._volume.directory(path).names)

    def mkdir(self, path: str) -> None:
        """Create a directory and its parents."""
        self._volume.make(path)

    def lock(self, path: str) -> int:
        """Lock a file."""
        if path in self._locks:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        fd = self._locks[path] = self.open(path, create=True)
        return fd

    def remove_tree(self, path: str) -> None:
        """Remove a directory with everything in it."""
        if self._volume.has(path):
            self._volume.remove_tree(path)
            self._doubtful.add(path)

    def move_tree(self, source: str, target: str) -> None:
        """Rename a directory with everything in it."""
        self._may_fail("rename", source)
        if self._volume.has(target):
            raise os_error(errno.EEXIST, target)
        self._volume.rename(source, target)
        self._doubtful.add(source)

    def used(self, path: str) -> int:
        """Bytes written below a directory."""
        return sum(inode.written for _, inode in self._volume.files(path))

    def space(self, path: str) -> Space:
        """Report more space than any simulation uses."""
        return _SPACE

    def boot_id(self) -> str:
        """An id that changes with every power loss."""
        return f"boot {self.boots}"

    # ---- internals -----------------------------------------------------------------------

    def _descriptor(self, inode: Inode, path: str) -> int:
        self._next_fd += 1
        inode.users += 1
        self._open[self._next_fd] = inode, path, current_process()
        return self._next_fd

    def _may_fail(self, call: str, path: str) -> None:
        if not self._faults:
            return
        for fault in self._faults:
            if fault.call == call and fault.path in path:
                fault.times -= 1
                if fault.times <= 0:
                    self._faults.remove(fault)
                self.failed.add(path.rpartition("/")[0])
                raise os_error(errno.EIO, path)
