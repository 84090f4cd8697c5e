"""Decides whether a process of replicas is cut off from the other brokers.

It is cut off if no follower has fetched from it for one broker session, and the controller has not
answered its broker for as long. Other brokers may lead its partitions by then. One of the two alone
proves nothing: the followers may be gone, or the controller.

| state   | event                                                       | state after it |
|---------|-------------------------------------------------------------|----------------|
| contact | both silent for a session, at two checks in a row           | cut off        |
| cut off | a follower fetches, or the controller answers               | contact        |
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Contact:
    """Contacts of a process with other brokers; times in ms of a monotonic clock."""

    session_ms: int
    fetched_ms: float = 0.0
    """When a follower last fetched."""
    is_cut_off: bool = False
    _silent_before: bool = False
    """Whether the previous check found silence: a process that was suspended has had no contact
    either."""

    def follower_fetched(self, now_ms: float) -> bool:
        """Record a fetch of a follower; return whether it ends an isolation."""
        self.fetched_ms = now_ms
        self._silent_before = False
        ended, self.is_cut_off = self.is_cut_off, False
        return ended

    @property
    def look_ms(self) -> float:
        """When to start to ask about the controller: early enough that its answer is fresh."""
        return self.fetched_ms + self.session_ms / 2

    def is_silent(self, now_ms: float) -> bool:
        """Whether no follower has fetched for one session."""
        return now_ms - self.fetched_ms >= self.session_ms

    def looked(self, now_ms: float, controller_silent_ms: float) -> bool:
        """Check, given how long the controller was silent; return whether the state changed."""
        silent = self.is_silent(now_ms) and controller_silent_ms >= self.session_ms
        cut_off = silent and self._silent_before
        self._silent_before = silent
        changed, self.is_cut_off = cut_off != self.is_cut_off, cut_off
        return changed
