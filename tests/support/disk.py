"""A disk in memory that fails as told, fills up, and forgets what was not synced."""

import errno
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass

from raylog.actors.simulation.volume import Inode, Volume, missing

Writable = bytes | bytearray | memoryview


@dataclass
class _Fault:
    call: str
    error: int
    times: int
    skip: int
    path: str


class FaultyDisk:
    """Stands in for `OsDisk`.

    - `fail("pwritev", errno.EIO)`: the next such call raises.
    - `capacity`: bytes of blocks; a write beyond them is short, then ENOSPC.
    - `kill()`: the process dies, the machine does not. `crash(rng)`: the power goes, and with it
      what was not synced, names too (`simulation/volume.py`). The directory in the root is always
      there.
    """

    block = 512

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.calls: list[str] = []
        self.boots = 1
        self.now_ms = 1_700_000_000_000
        """What files that are changed are stamped with."""
        self._volume = Volume()
        self._blocks: dict[Inode, set[int]] = {}
        self._open: dict[int, tuple[Inode, str]] = {}
        self._next_fd = 3
        self._random = random.Random(0)
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
        for fd in tuple(self._open):
            self.close(fd)
        self._faults.clear()

    def crash(self, rng: random.Random) -> None:
        """End of the machine."""
        self.kill()
        self.boots += 1
        self._volume.lose_power(rng)
        self._blocks = {inode: self._written(inode) for _, inode in self._volume.files()}

    def evict(self) -> None:
        """Memory runs short: files whose sync failed are read from the disk from now on."""
        for _, inode in self._volume.files():
            if inode.sync_failed:
                inode.evict()

    @property
    def used(self) -> int:
        """Bytes of blocks in use."""
        inodes = {inode for _, inode in self._volume.files()}
        inodes |= {inode for inode, _ in self._open.values()}
        return sum(len(self._blocks.get(inode, ())) for inode in inodes) * self.block

    @property
    def open_descriptors(self) -> int:
        """Descriptors that were not closed."""
        return len(self._open)

    def contents(self, path: str) -> bytes:
        """A file as the process sees it."""
        return bytes(self._volume.file(path).data)

    def corrupt(self, path: str, position: int, data: bytes) -> None:
        """Change a file behind everybody's back; it stays so."""
        inode = self._volume.file(path)
        inode.data[position : position + len(data)] = data
        inode.durable = bytearray(inode.data)
        inode.unsynced.clear()

    # -- the seam ------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> int:
        self._called("open", path)
        if path.count("/") > 1:
            self._volume.make("/" + path.split("/")[1])
        directory, name = self._volume.place(path)
        inode = directory.names.get(name)
        if inode is None:
            if not create:
                raise missing(path)
            inode = Inode(modified_ms=self.now_ms)
            directory.put(name, inode)
        assert isinstance(inode, Inode), f"{path} is a directory"
        return self._descriptor(inode, path)

    def duplicate(self, fd: int) -> int:
        inode, path = self._open[fd]
        self._called("duplicate", path)
        return self._descriptor(inode, path)

    def close(self, fd: int) -> None:
        inode, _ = self._open.pop(fd)
        inode.close(self._random)

    def size(self, fd: int) -> int:
        return len(self._open[fd][0].data)

    def modified_ms(self, path: str) -> int:
        self._called("modified_ms", path)
        return self._volume.file(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._called("set_modified_ms", path)
        self._volume.file(path).modified_ms = modified_ms

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
        inode.write(position, data[:fits])
        inode.modified_ms = self.now_ms
        return fits

    def ftruncate(self, fd: int, size: int, /) -> None:
        inode, path = self._open[fd]
        self._called("ftruncate", path)
        inode.resize(size)
        inode.modified_ms = self.now_ms
        blocks = self._blocks.get(inode, ())
        self._blocks[inode] = {block for block in blocks if block * self.block < size}

    def fdatasync(self, fd: int, /) -> None:
        inode, path = self._open[fd]
        try:
            self._called("fdatasync", path)
        except OSError:
            inode.fail_sync()
            raise
        inode.sync()

    def fsync_dir(self, path: str) -> None:
        directory = self._volume.directory(path)
        try:
            self._called("fsync_dir", path)
        except OSError:
            directory.fail_sync()
            raise
        directory.sync()

    def rename(self, source: str, target: str) -> None:
        self._called("rename", source)
        self._volume.rename(source, target)

    def unlink(self, path: str) -> None:
        self._called("unlink", path)
        self._volume.unlink(path)

    def listdir(self, path: str) -> list[str]:
        return list(self._volume.directory(path.rstrip("/")).names)

    def mkdir(self, path: str) -> None:
        self._called("mkdir", path)
        self._volume.make(path)

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

    def _descriptor(self, inode: Inode, path: str) -> int:
        self._next_fd += 1
        inode.users += 1
        self._open[self._next_fd] = inode, path
        return self._next_fd

    def _allocate(self, inode: Inode, position: int, length: int) -> int:
        """Take the blocks that the bytes need, as far as there are any; bytes that have theirs."""
        free = None if self.capacity is None else (self.capacity - self.used) // self.block
        blocks = self._blocks.setdefault(inode, set())
        for block in range(position // self.block, -(-(position + length) // self.block)):
            if block in blocks:
                continue
            if free is not None:
                if free <= 0:
                    return max(block * self.block - position, 0)
                free -= 1
            blocks.add(block)
        return length

    def _written(self, inode: Inode) -> set[int]:
        """Blocks that are no holes."""
        data = inode.data
        return {
            start // self.block
            for start in range(0, len(data), self.block)
            if any(data[start : start + self.block])
        }
