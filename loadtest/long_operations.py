"""Operations that take time and may be in progress when the run ends."""

from __future__ import annotations

from raylog.loadtest.local import Local

UNFINISHED = "had not ended when its user stopped"
OPEN_S = 10.0
"""An operation in progress when its user stops may have taken this long without failing."""
_USUAL_FACTOR = 2
"""It may also have taken this multiple of the longest completed one in its process."""
_US_PER_S = 1_000_000


class LongOperation:
    """One operation of one user. It begins, and is completed or left in progress.

    An operation left in progress counts as failed if it took longer than usual. Otherwise the end
    of the run just cut it off.
    """

    def __init__(self, local: Local, operation: str) -> None:
        self._local = local
        self._operation = operation
        self._since_us: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether the operation is in progress."""
        return self._since_us is not None

    def begin(self, now_us: int) -> None:
        """Begin the operation."""
        self._since_us = now_us

    def done(self, now_us: int, size: int = 0) -> None:
        """Complete the operation, if it is in progress."""
        if self._since_us is None:
            return
        since_us, self._since_us = self._since_us, None
        longest = self._local.longest_us
        longest[self._operation] = max(longest.get(self._operation, 0), now_us - since_us)
        self._local.recorder.done(self._operation, since_us, now_us, size)

    def leave(self, *, is_over: bool = False) -> None:
        """Leave the operation because the user stops. With `is_over` it has failed in any case."""
        if self._since_us is None:
            return
        since_us, self._since_us = self._since_us, None
        open_us = self._local.clock.now_us() - since_us
        usual_us = _USUAL_FACTOR * self._local.longest_us.get(self._operation, 0)
        if is_over or open_us > max(OPEN_S * _US_PER_S, usual_us):
            self._local.recorder.failed(self._operation, UNFINISHED, since_us)
