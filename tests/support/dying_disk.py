"""A disk in memory at which the process ends at a call that is counted."""

import os

from tests.support.disk import FaultyDisk


class Killed(BaseException):
    """The process ends here."""


class DyingDisk(FaultyDisk):
    """Ends the process at the `left`-th call from now on."""

    left = -1

    def _called(self, call: str, path: str) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1
        super()._called(call, path)


class TroubledDisk(DyingDisk):
    """Fails at the `left`-th call from now on if `error` says how, else the process ends there."""

    error: int | None = None
    counted: frozenset[str] | None = None
    """The calls that count; None: all."""
    count = 0
    """How many of them there were."""

    def _called(self, call: str, path: str) -> None:
        if self.counted is not None and call not in self.counted:
            FaultyDisk._called(self, call, path)
            return
        self.count += 1
        if self.left == 0 and self.error is not None:
            self.left = -1
            raise OSError(self.error, os.strerror(self.error), path)
        super()._called(call, path)
