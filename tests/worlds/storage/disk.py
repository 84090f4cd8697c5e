"""The simulation's disk, which also fails on request, fills up, and kills the process at a call."""

import errno
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass

from raylog.simulation.disk import SimDisk
from raylog.simulation.volume import Inode
from raylog.storage.disk import Writable


class Killed(BaseException):
    """The process died at this call."""


@dataclass
class _Fault:
    call: str
    error: int
    times: int
    skip: int
    path: str


class FaultyDisk(SimDisk):
    """Stands in for `OsDisk`.

    - `fail("pwritev", errno.EIO)`: the next such call raises.
    - `left`: how many more calls succeed. The next one kills the process by raising `Killed`; with
      `error` set it fails instead, once. `counted` limits which calls count.
    - `capacity`: bytes of blocks. A write that exceeds it is short, the next one fails with ENOSPC.
    - `kill()`: the process dies, the machine does not. `crash(rng)`: the machine loses power, and
      with it everything that was not synced, also names (`raylog/simulation/volume.py`). The
      directory below the root always exists.
    """

    block = 512

    def __init__(self, capacity: int | None = None) -> None:
        super().__init__(random.Random(0), lambda: self.now_ms)
        self.capacity = capacity
        self.calls: list[str] = []
        self.now_ms = 1_700_000_000_000
        """The modification time of changed files."""
        self.left = -1
        self.error: int | None = None
        self.counted: frozenset[str] | None = None
        """The calls that count; None for all."""
        self.count = 0
        """How many counted calls there were."""
        self._blocks: dict[Inode, set[int]] = {}
        self._planned: list[_Fault] = []

    # -- what tests do -------------------------------------------------------------------------

    def fail(self, call: str, error: int, *, times: int = 1, skip: int = 0, path: str = "") -> None:
        """Fail the next `times` calls after `skip` good ones, on paths that contain `path`."""
        self._planned.append(_Fault(call, error, times, skip, path))

    def heal(self) -> None:
        """Cancel faults that have not happened, and the capacity."""
        self._planned.clear()
        self.capacity = None

    def kill(self) -> None:
        """Kill the process: descriptors are closed, written bytes are kept."""
        for fd in tuple(self._open):
            self.close(fd)
        self._planned.clear()

    def crash(self, rng: random.Random) -> None:
        """Crash the machine."""
        self.kill()
        self.boots += 1
        self._volume.lose_power(rng)
        self._blocks = {inode: self._written(inode) for _, inode in self._volume.files()}

    def evict(self) -> None:
        """Drop cached pages: files whose sync failed are read from the disk from now on."""
        for _, inode in self._volume.files():
            if inode.sync_failed:
                inode.evict()

    @property
    def used_bytes(self) -> int:
        """Bytes of blocks in use."""
        inodes = {inode for _, inode in self._volume.files()}
        inodes |= {inode for inode, *_ in self._open.values()}
        return sum(len(self._blocks.get(inode, ())) for inode in inodes) * self.block

    @property
    def open_descriptors(self) -> int:
        """Descriptors that were not closed."""
        return len(self._open)

    def corrupt(self, path: str, position: int, data: bytes) -> None:
        """Change a file's bytes for good, without any call of the product."""
        inode = self._volume.file(path)
        inode.data[position : position + len(data)] = data
        inode.durable = bytearray(inode.data)
        inode.unsynced.clear()

    # -- the seam ------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> int:
        self._called("open", path)
        if path.count("/") > 1:
            self._volume.make("/" + path.split("/")[1])
        return super().open(path, create=create)

    def duplicate(self, fd: int) -> int:
        self._called("duplicate", self._open[fd][1])
        return super().duplicate(fd)

    def modified_ms(self, path: str) -> int:
        self._called("modified_ms", path)
        return super().modified_ms(path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._called("set_modified_ms", path)
        super().set_modified_ms(path, modified_ms)

    def pread(self, fd: int, length: int, position: int, /) -> bytes:
        self._called("pread", self._open[fd][1])
        return super().pread(fd, length, position)

    def preadv(self, fd: int, buffers: Sequence[bytearray | memoryview], position: int, /) -> int:
        self._called("preadv", self._open[fd][1])
        return super().preadv(fd, buffers, position)

    def pwritev(self, fd: int, buffers: Sequence[Writable], position: int, /) -> int:
        inode, path, _ = self._open[fd]
        self._called("pwritev", path)
        data = b"".join(buffers)
        fits = self._allocate(inode, position, len(data))
        if data and fits == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return super().pwritev(fd, [data[:fits]], position)

    def ftruncate(self, fd: int, size: int, /) -> None:
        inode, path, _ = self._open[fd]
        self._called("ftruncate", path)
        super().ftruncate(fd, size)
        blocks = self._blocks.get(inode, ())
        self._blocks[inode] = {block for block in blocks if block * self.block < size}

    def fdatasync(self, fd: int, /) -> None:
        inode, path, _ = self._open[fd]
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
        except OSError as failure:
            if failure.errno != errno.EMFILE:  # it could not even be opened
                directory.fail_sync()
            raise
        directory.sync()

    def rename(self, source: str, target: str) -> None:
        self._called("rename", source)
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._called("unlink", path)
        super().unlink(path)

    def listdir(self, path: str) -> list[str]:
        return super().listdir(path.rstrip("/"))

    def mkdir(self, path: str) -> None:
        self._called("mkdir", path)
        super().mkdir(path)

    # -- inside --------------------------------------------------------------------------------

    def _called(self, call: str, path: str) -> None:
        if self.counted is None or call in self.counted:
            self._count(path)
        self.calls.append(call)
        for fault in self._planned:
            if fault.call == call and fault.path in path:
                if fault.skip > 0:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                if fault.times == 0:
                    self._planned.remove(fault)
                raise OSError(fault.error, os.strerror(fault.error), path)

    def _count(self, path: str) -> None:
        self.count += 1
        if self.left == 0:
            if self.error is None:
                raise Killed
            self.left = -1
            raise OSError(self.error, os.strerror(self.error), path)
        self.left -= 1

    def _allocate(self, inode: Inode, position: int, length: int) -> int:
        """Allocate the blocks of a write; return how many of its bytes have blocks."""
        free = None if self.capacity is None else (self.capacity - self.used_bytes) // self.block
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
        """Return the blocks that are not holes."""
        data = inode.data
        return {
            start // self.block
            for start in range(0, len(data), self.block)
            if any(data[start : start + self.block])
        }
