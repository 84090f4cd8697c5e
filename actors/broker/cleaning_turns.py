"""Which of a broker's processes cleans a log: one at a time, as Kafka's one thread does.

Replicas live in several processes. Each that has a log to clean asks, again every second while it
waits and while it cleans; who is silent for longer wants no more.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SILENT_MS = 3_500


@dataclass(slots=True)
class CleaningTurns:
    """Who wants to clean how dirty a log, and who does.

    | cleans | event | effect |
    |---|---|---|
    | nobody | who waits with the dirtiest log asks | it cleans |
    | nobody | another one asks | it waits |
    | one | that one asks | it goes on |
    | one | another one asks | it waits |
    | one | it has ended, or is silent | nobody cleans |
    """

    _asked: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By process: how dirty its dirtiest log is, and when it asked, in ms."""
    _cleaning: str | None = None

    def ask(self, name: str, dirty_ratio: float, now_ms: float) -> bool:
        """Whether the process may begin to clean its dirtiest log, or go on."""
        self._asked[name] = (dirty_ratio, now_ms)
        for silent in [each for each, (_, at) in self._asked.items() if now_ms - at > SILENT_MS]:
            self.end(silent)
        if self._cleaning is None and dirty_ratio >= max(self._asked.values())[0]:
            self._cleaning = name
        return self._cleaning == name

    def end(self, name: str) -> None:
        """A process has cleaned its log, and wants no more for now."""
        self._asked.pop(name, None)
        if self._cleaning == name:
            self._cleaning = None
