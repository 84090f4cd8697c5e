"""A disk in memory that fails as told, fills up, and forgets what was not synced."""

import errno
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

Writable = bytes | bytearray | memoryview


@dataclass
class _Fault:
    call: str
    error: int
    times: int
    skip: int
    path: str


@dataclass
class _Inode:
    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)  # None: cut or grown to
    blocks: set[int] = field(default_factory=set)


class FaultyDisk:
    """Stands in for `OsDisk`.

    - `fail("pwritev", errno.EIO)`: the next such call raises.
    - `capacity`: bytes of blocks; a write beyond them is short, then ENOSPC.
    - `kill()`: the process dies, the machine does not. `crash(rng)`: the power goes: of what was
      not synced, any part may be there, in any order, also half a write; names in order.
    """

    block = 512

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.calls: list[str] = []
        self.boots = 1
        self._names: dict[str, _Inode] = {}
        self._durable_names: dict[str, _Inode] = {}
        self._name_changes: list[tuple[str, _Inode | None]] = []
        self._open: dict[int, tuple[_Inode, str]] = {}
        self._next_fd = 3
        self._faults: list[_Fault] = []

    # -- what tests do -------------------------------------------------------------------------

    def fail(self, call: str, error: int, *, times: int = 1, skip: int = 0, path: str = "") -> None:
        """Let the next `times` calls, after `skip` good ones, fail; `path`: a part of the name."""
        self._faults.append(_Fault(call, error, times, skip, path))

    def heal(self) -> None:
        """Forget faults that have not happened, and the capacity."""
        self._faults.clear()
        self.capacity = None

    def kill(self) -> None:
        """End of the process: descriptors are gone, written bytes are not."""
        self._open.clear()
        self._faults.clear()

    def crash(self, rng: random.Random) -> None:
        """End of the machine."""
        self.kill()
        self.boots += 1
        self._names = dict(self._durable_names)
        for name, inode in self._name_changes[: rng.randint(0, len(self._name_changes))]:
            if inode is None:
                self._names.pop(name, None)
            else:
                self._names[name] = inode
        self._name_changes.clear()
        self._durable_names = dict(self._names)
        for inode in {id(each): each for each in self._names.values()}.values():
            self._lose(inode, rng)

    @property
    def used(self) -> int:
        """Bytes of blocks in use."""
        inodes = {id(inode): inode for inode in self._names.values()}
        inodes |= {id(inode): inode for inode, _ in self._open.values()}
        return sum(len(inode.blocks) for inode in inodes.values()) * self.block

    @property
    def open_descriptors(self) -> int:
        """Descriptors that were not closed."""
        return len(self._open)

    def contents(self, path: str) -> bytes:
        """A file as the process sees it."""
        return bytes(self._names[path].data)

    def corrupt(self, path: str, position: int, data: bytes) -> None:
        """Change a file behind everybody's back; it stays so."""
        inode = self._names[path]
        inode.data[position : position + len(data)] = data
        inode.durable = bytes(inode.data)
        inode.unsynced.clear()

    # -- the seam ------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> int:
        self._called("open", path)
        inode = self._names.get(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            inode = self._names[path] = _Inode()
            self._name_changes.append((path, inode))
        return self._descriptor(inode, path)

    def duplicate(self, fd: int) -> int:
        inode, path = self._open[fd]
        self._called("duplicate", path)
        return self._descriptor(inode, path)

    def close(self, fd: int) -> None:
        del self._open[fd]

    def size(self, fd: int) -> int:
        return len(self._open[fd][0].data)

    def pread(self, fd: int, length: int, position: int, /) -> bytes:
        inode, path = self._open[fd]
        self._called("pread", path)
        return bytes(inode.data[position : position + length])

    def preadv(self, fd: int, buffers: Sequence[bytearray | memoryview], position: int, /) -> int:
        inode, path = self._open[fd]
        self._called("preadv", path)
        start = position
        for buffer in buffers:
            chunk = inode.data[position : position + len(buffer)]
            buffer[: len(chunk)] = chunk
            position += len(chunk)
        return position - start

    def pwritev(self, fd: int, buffers: Sequence[Writable], position: int, /) -> int:
        inode, path = self._open[fd]
        self._called("pwritev", path)
        data = b"".join(buffers)
        fits = self._allocate(inode, position, len(data))
        if data and fits == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        _write(inode.data, position, data[:fits])
        inode.unsynced.append((position, data[:fits]))
        return fits

    def ftruncate(self, fd: int, size: int, /) -> None:
        inode, path = self._open[fd]
        self._called("ftruncate", path)
        _resize(inode.data, size)
        inode.blocks = {block for block in inode.blocks if block * self.block < size}
        inode.unsynced.append((size, None))

    def fdatasync(self, fd: int, /) -> None:
        inode, path = self._open[fd]
        self._called("fdatasync", path)
        inode.durable = bytes(inode.data)
        inode.unsynced.clear()

    def fsync_dir(self, path: str) -> None:
        self._called("fsync_dir", path)
        self._durable_names = dict(self._names)
        self._name_changes.clear()

    def rename(self, source: str, target: str) -> None:
        self._called("rename", source)
        inode = self._names.pop(source)
        self._names[target] = inode
        self._name_changes += [(target, inode), (source, None)]

    def unlink(self, path: str) -> None:
        self._called("unlink", path)
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        del self._names[path]
        self._name_changes.append((path, None))

    def listdir(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        return [name.removeprefix(prefix) for name in self._names if name.startswith(prefix)]

    def mkdir(self, path: str) -> None:
        self._called("mkdir", path)

    def boot_id(self) -> str:
        return f"boot {self.boots}"

    # -- inside --------------------------------------------------------------------------------

    def _called(self, call: str, path: str) -> None:
        self.calls.append(call)
        for fault in self._faults:
            if fault.call == call and fault.path in path:
                if fault.skip > 0:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                if fault.times == 0:
                    self._faults.remove(fault)
                raise OSError(fault.error, os.strerror(fault.error), path)

    def _descriptor(self, inode: _Inode, path: str) -> int:
        self._next_fd += 1
        self._open[self._next_fd] = inode, path
        return self._next_fd

    def _allocate(self, inode: _Inode, position: int, length: int) -> int:
        """Take the blocks that the bytes need, as far as there are any; bytes that have theirs."""
        free = None if self.capacity is None else (self.capacity - self.used) // self.block
        for block in range(position // self.block, -(-(position + length) // self.block)):
            if block in inode.blocks:
                continue
            if free is not None:
                if free <= 0:
                    return max(block * self.block - position, 0)
                free -= 1
            inode.blocks.add(block)
        return length

    def _lose(self, inode: _Inode, rng: random.Random) -> None:
        data = bytearray(inode.durable)
        for position, written in inode.unsynced:
            kept = rng.choice(("all", "all", "none", "part"))
            if kept == "none":
                continue
            if written is None:
                _resize(data, position)
            elif kept == "all":
                _write(data, position, written)
            else:
                start = rng.randint(0, len(written))
                end = rng.randint(start, len(written))
                _write(data, position + start, written[start:end])
        inode.data = data
        inode.durable = bytes(data)
        inode.unsynced.clear()
        inode.blocks = {
            start // self.block
            for start in range(0, len(data), self.block)
            if any(data[start : start + self.block])
        }


def _resize(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))


def _write(data: bytearray, position: int, written: bytes) -> None:
    if written:
        if len(data) < position:
            _resize(data, position)
        data[position : position + len(written)] = written
