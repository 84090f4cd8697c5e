"""A disk in memory at which the process ends at a call that is counted."""

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
