"""The disk of a simulated machine: in memory, and as unreliable as disks are.

What was not synced may be there after a power loss or not, in any order, in part, or with a bit
that is wrong. Names that were not synced are there up to some change and not after it. While the
disk is full, files grow by a part of what is written and then not at all. Calls fail with EIO when
told to.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from raylog.actors.simulation.loop import Process, current_process
from raylog.storage.disk import Space, Writable

_SPACE = Space(1 << 40, 1 << 39)


@dataclass(slots=True, eq=False)
class _Inode:
    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Writes since the last sync: position and bytes, or a length and None."""
    written: int = 0
    """End of what was ever written; holes behind it take no space."""


@dataclass(slots=True, eq=False)
class _Directory:
    names: dict[str, _Inode] = field(default_factory=dict)
    durable: dict[str, _Inode] = field(default_factory=dict)
    changes: list[tuple[str, _Inode | None]] = field(default_factory=list)
    directories: dict[str, None] = field(default_factory=dict)

    def put(self, name: str, inode: _Inode) -> None:
        self.names[name] = inode
        self.changes.append((name, inode))

    def drop(self, name: str) -> _Inode:
        inode = self.names.pop(name)
        self.changes.append((name, None))
        return inode

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.changes.clear()


@dataclass(slots=True)
class _Fault:
    call: str
    path: str
    times: int


class SimDisk:
    """A volume of one machine."""

    def __init__(self, random: Random) -> None:
        self.full = False
        self.boots = 1
        self.failed: set[str] = set()
        """Directories in which a call has failed: what is in them may be offline."""
        self._random = random
        self._directories: dict[str, _Directory] = {"": _Directory()}
        self._open: dict[int, tuple[_Inode, str, Process | None]] = {}
        self._locks: dict[str, int] = {}
        self._next_fd = 3
        self._faults: list[_Fault] = []

    # ---- what befalls it -----------------------------------------------------------------

    def fail_next(self, call: str, path: str, times: int) -> None:
        """Let the next calls of a kind on paths that contain `path` fail with EIO."""
        self._faults.append(_Fault(call, path, times))

    def heal(self) -> None:
        """No call fails any more."""
        self.full = False
        self._faults.clear()

    def release(self, process: Process) -> None:
        """A process has ended: its descriptors are closed, its locks are gone."""
        for fd in [fd for fd, opened in self._open.items() if opened[2] is process]:
            self.close(fd)

    def lose_power(self) -> None:
        """Forget what was not synced, or keep parts of it."""
        self._open.clear()
        self._locks.clear()
        self.heal()
        self.boots += 1
        random = self._random
        for directory in self._directories.values():
            kept = directory.changes[: random.randint(0, len(directory.changes))]
            directory.names = dict(directory.durable)
            for name, inode in kept:
                if inode is None:
                    directory.names.pop(name, None)
                else:
                    directory.names[name] = inode
            directory.sync()
            for inode in directory.names.values():
                self._lose(inode)

    def _lose(self, inode: _Inode) -> None:
        random = self._random
        data = inode.durable
        for position, written in inode.unsynced:
            fate = random.random()
            if fate < 0.3:
                continue
            if written is None:
                _resize(data, position)
                continue
            kept = bytearray(written)
            if fate > 0.8 and kept:
                start = random.randint(0, len(kept))
                end = random.randint(start, len(kept))
                kept, position = kept[start:end], position + start
            if fate > 0.95 and kept:
                kept[random.randrange(len(kept))] ^= 1 << random.randrange(8)
            _write(data, position, kept)
        inode.unsynced.clear()
        inode.data = bytearray(data)
        inode.written = len(data)

    def flip_old_bit(self, suffix: str) -> str | None:
        """Change one bit of synced or unsynced data in a file; its path, None if there is none."""
        found = [
            (f"{path}/{name}", inode)
            for path, directory in sorted(self._directories.items())
            for name, inode in sorted(directory.names.items(), key=lambda item: item[0])
            if name.endswith(suffix) and inode.written
        ]
        if not found:
            return None
        path, inode = self._random.choice(found)
        at = self._random.randrange(min(inode.written, len(inode.data)))
        for data in (inode.data, inode.durable):
            if at < len(data):
                data[at] ^= 1 << self._random.randrange(8)
        return path

    def contents(self, path: str) -> bytes:
        """A file as processes see it."""
        parent, _, name = path.rpartition("/")
        return bytes(self._directories[parent].names[name].data)

    # ---- the seam ------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> int:
        """Open a file."""
        self._may_fail("open", path)
        parent, _, name = path.rpartition("/")
        directory = self._directory(parent)
        inode = directory.names.get(name)
        if inode is None:
            if not create:
                raise _os_error(errno.ENOENT, path)
            if self.full:
                raise _os_error(errno.ENOSPC, path)
            inode = _Inode()
            directory.put(name, inode)
        return self._descriptor(inode, path)

    def duplicate(self, fd: int) -> int:
        """A second descriptor."""
        inode, path, _ = self._open[fd]
        return self._descriptor(inode, path)

    def close(self, fd: int) -> None:
        """Give a descriptor back."""
        _, path, _ = self._open.pop(fd)
        if self._locks.get(path) == fd:
            del self._locks[path]

    def size(self, fd: int) -> int:
        """Length of a file."""
        return len(self._open[fd][0].data)

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
                raise _os_error(errno.ENOSPC, path)
            data = data[:fits]
        _write(inode.data, position, data)
        inode.written = max(inode.written, position + len(data))
        inode.unsynced.append((position, data))
        return len(data)

    def ftruncate(self, fd: int, size: int, /) -> None:
        """Set a file's length."""
        inode, path, _ = self._open[fd]
        self._may_fail("ftruncate", path)
        _resize(inode.data, size)
        inode.written = min(inode.written, size)
        inode.unsynced.append((size, None))

    def fdatasync(self, fd: int, /) -> None:
        """Make a file's data durable; what a failed one did not write is lost for good."""
        inode, path, _ = self._open[fd]
        self._may_fail("fdatasync", path)
        for position, data in inode.unsynced:
            if data is None:
                _resize(inode.durable, position)
            else:
                _write(inode.durable, position, data)
        inode.unsynced.clear()

    def fsync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""
        self._may_fail("fdatasync", path)
        self._directory(path).sync()

    def rename(self, source: str, target: str) -> None:
        """Replace a file; both names are in one directory."""
        parent, _, name = source.rpartition("/")
        directory = self._directory(parent)
        if name not in directory.names:
            raise _os_error(errno.ENOENT, source)
        inode = directory.names.pop(name)
        directory.put(target.rpartition("/")[2], inode)
        directory.changes.append((name, None))

    def unlink(self, path: str) -> None:
        """Remove a file."""
        parent, _, name = path.rpartition("/")
        directory = self._directory(parent)
        if name not in directory.names:
            raise _os_error(errno.ENOENT, path)
        directory.drop(name)

    def listdir(self, path: str) -> list[str]:
        """Names in a directory."""
        directory = self._directory(path)
        return [*directory.names, *directory.directories]

    def mkdir(self, path: str) -> None:
        """Make a directory, which is durable at once."""
        if path in self._directories:
            return
        parent, _, name = path.rpartition("/")
        self.mkdir(parent)
        self._directories[parent].directories[name] = None
        self._directories[path] = _Directory()

    def lock(self, path: str) -> int:
        """Lock a file."""
        if path in self._locks:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        fd = self._locks[path] = self.open(path, create=True)
        return fd

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it, at once."""
        for one in [one for one in self._directories if one == path or one.startswith(path + "/")]:
            del self._directories[one]
        parent, _, name = path.rpartition("/")
        if parent in self._directories:
            self._directories[parent].directories.pop(name, None)

    def move_tree(self, source: str, target: str) -> None:
        """Rename a directory with all in it, which is durable at once."""
        self._may_fail("rename", source)
        if target in self._directories:
            raise _os_error(errno.EEXIST, target)
        self._directory(source)
        for one in [one for one in self._directories if f"{one}/".startswith(f"{source}/")]:
            self._directories[target + one[len(source) :]] = self._directories.pop(one)
        parent, _, name = source.rpartition("/")
        del self._directories[parent].directories[name]
        self._directories[parent].directories[target.rpartition("/")[2]] = None

    def used(self, path: str) -> int:
        """Bytes that were written in a directory and all in it."""
        return sum(
            inode.written
            for one, directory in self._directories.items()
            if f"{one}/".startswith(f"{path}/")
            for inode in directory.names.values()
        )

    def space(self, path: str) -> Space:
        """More than any simulation takes."""
        return _SPACE

    def boot_id(self) -> str:
        """Changes with every power loss."""
        return f"boot {self.boots}"

    # ---- inside --------------------------------------------------------------------------

    def _directory(self, path: str) -> _Directory:
        found = self._directories.get(path)
        if found is None:
            raise _os_error(errno.ENOENT, path)
        return found

    def _descriptor(self, inode: _Inode, path: str) -> int:
        self._next_fd += 1
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
                raise _os_error(errno.EIO, path)


def _os_error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def _resize(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))


def _write(data: bytearray, position: int, written: bytes | bytearray) -> None:
    if len(data) < position:
        data.extend(bytes(position - len(data)))
    data[position : position + len(written)] = written
