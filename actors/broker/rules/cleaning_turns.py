"""Decides which process of a broker cleans a log: one at a time, like Kafka's single thread.

A Replica process that has a log to clean asks, and asks again every second while it waits or
cleans. A process that is silent for longer is forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SILENT_MS = 3_500


@dataclass(slots=True)
class CleaningTurns:
    """Tracks how dirty each process's dirtiest log is, and which process cleans.

    | cleaning | event | effect |
    |---|---|---|
    | nobody | the waiting process with the dirtiest log asks | it cleans |
    | nobody | another process asks | it waits |
    | a process | it asks again | it goes on |
    | a process | another one asks | that one waits |
    | a process | it has ended, or is silent | nobody cleans |
    """

    _asked: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By process: how dirty its dirtiest log is, and when it last asked, in ms."""
    _cleaning: str | None = None

    def ask(self, name: str, dirty_ratio: float, now_ms: float) -> bool:
        """Decide whether the process may start or continue cleaning its dirtiest log."""
        self._asked[name] = (dirty_ratio, now_ms)
        for silent in [each for each, (_, at) in self._asked.items() if now_ms - at > SILENT_MS]:
            self.end(silent)
        if self._cleaning is None and dirty_ratio >= max(self._asked.values())[0]:
            self._cleaning = name
        return self._cleaning == name

    def end(self, name: str) -> None:
        """Record that a process has cleaned its log and asks for nothing more."""
        self._asked.pop(name, None)
        if self._cleaning == name:
            self._cleaning = None
