"""Operations that last, and may be open when the run ends."""

from __future__ import annotations

from raylog.loadtest.local import Local

UNFINISHED = "was not over when its user stopped"
OPEN_S = 10.0
"""An operation may be open so long when its user stops."""
_USUAL_FACTOR = 2
"""It may be open for this multiple of the longest that was finished in its process."""
_US_PER_S = 1_000_000


class Lasting:
    """One operation of one user: it begins, and is done or left open.

    What is left open has failed if it took longer than usual; else the run ended in the middle.
    """

    def __init__(self, local: Local, operation: str) -> None:
        self._local = local
        self._operation = operation
        self._since_us: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has begun and is not done."""
        return self._since_us is not None

    def begin(self, now_us: int) -> None:
        """It begins."""
        self._since_us = now_us

    def done(self, now_us: int, size: int = 0) -> None:
        """It is done; nothing happens if it had not begun."""
        if self._since_us is None:
            return
        since_us, self._since_us = self._since_us, None
        longest = self._local.longest_us
        longest[self._operation] = max(longest.get(self._operation, 0), now_us - since_us)
        self._local.recorder.intended(self._operation)
        self._local.recorder.done(self._operation, since_us, now_us, size)

    def leave(self, *, is_over: bool = False) -> None:
        """The user stops; `is_over`: nothing can come of it any more, however long it took."""
        if self._since_us is None:
            return
        since_us, self._since_us = self._since_us, None
        open_us = self._local.clock.now_us() - since_us
        usual_us = _USUAL_FACTOR * self._local.longest_us.get(self._operation, 0)
        if is_over or open_us > max(OPEN_S * _US_PER_S, usual_us):
            self._local.recorder.intended(self._operation)
            self._local.recorder.failed(self._operation, UNFINISHED, since_us)
