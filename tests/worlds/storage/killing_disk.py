"""A disk that kills the process using it with SIGKILL, unless that process created the disk."""

import os
import signal
from collections.abc import Sequence

from raylog.storage.disk import OsDisk, Writable


class KillingDisk(OsDisk):
    """Allows `calls` calls that open, read, write or sync; the next one is fatal."""

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self.home = os.getpid()

    def _called(self) -> None:
        if os.getpid() != self.home:
            if self.calls == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self.calls -= 1

    def open(self, path: str, *, create: bool = False) -> int:
        self._called()
        return super().open(path, create=create)

    def preadv(self, fd: int, buffers: Sequence[bytearray | memoryview], position: int, /) -> int:  # type: ignore[override]  # of a static method
        self._called()
        return os.preadv(fd, buffers, position)

    def pwritev(self, fd: int, buffers: Sequence[Writable], position: int, /) -> int:  # type: ignore[override]  # of a static method
        self._called()
        return os.pwritev(fd, buffers, position)

    def fdatasync(self, fd: int, /) -> None:  # type: ignore[override]  # of a static method
        self._called()
        os.fdatasync(fd)
