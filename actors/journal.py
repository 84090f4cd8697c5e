"""The journal: the decisions of actors, one per line, in files next to a broker's data.

| file under the data directory | contents                                                       |
|-------------------------------|----------------------------------------------------------------|
| `journal/decisions`           | a JSON object (`Noted`) per line; all processes append to it   |
| `journal/decisions.1`         | earlier lines; replaced when `decisions` is full               |
| `journal/running/`            | a file for each running process (`runtime.evidence`)           |
| `journal/crashes/`            | what remains of processes that crashed                         |

A decision is also logged by its process. Where no process writes a journal (in one process, in the
simulation) it is only logged.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from raylog.actors.decisions import Decided
from raylog.actors.log_formatting import plain
from raylog.actors.message import message, taken
from raylog.wire.errors import KafkaError

LINE_BYTES_MAX = 4_096
TEXT_CHARS_MAX = 600


@message
class Noted(NamedTuple):
    """A decision as stored and reported."""

    at_ms: int
    """Wall-clock time in ms since the epoch."""
    role: str
    """Role of the actor."""
    process: str
    """Name of the process's own actor."""
    pid: int
    kind: str
    subject: str
    text: str


@message
class Crash(NamedTuple):
    """The remains of a process that crashed."""

    at_ms: int
    """When it was last known to run, or wrote its last output."""
    process: str
    pid: int
    build: str
    text: str
    """Its last output: a traceback or faulthandler's dump; "" if none."""
    last: tuple[Noted, ...] = ()
    """Its last decisions."""


@message
class JournalAsked(NamedTuple):
    """A request for part of a journal."""

    since_ms: int = 0
    limit: int = 10_000
    """Maximum number of decisions; the latest are returned."""
    crashes: bool = False
    """Whether to include crashes."""


@message
class JournalTold(NamedTuple):
    """Decisions and crashes of the processes of one broker."""

    noted: tuple[Noted, ...]
    crashes: tuple[Crash, ...] = ()
    unreadable: int = 0
    """Lines that could not be parsed."""


_Process = Callable[[], tuple[int, str, int]]
_keepers: list[tuple[Callable[[Noted], None], _Process]] = []
"""The journal of this process: none or one."""


def keep_with(write: Callable[[Noted], None], of_process: _Process) -> None:
    """Write the decisions of this process; `of_process` returns time in ms, name and pid."""
    _keepers[:] = [(write, of_process)]


def decided(log: logging.Logger, one: Decided, *, warn: bool = False) -> None:
    """Log a decision and write it to the journal."""
    log.log(logging.WARNING if warn else logging.INFO, "%s: %s", one.kind, one.text)
    for write, of_process in _keepers:
        at_ms, process, pid = of_process()
        write(Noted(at_ms, _role(log.name), process, pid, one.kind, one.subject, one.text))


class Few:
    """A rate limit, so that clients cannot decide how much is written."""

    def __init__(self, count: int = 60, window_ms: float = 60_000) -> None:
        self._count = count
        self._window_ms = window_ms
        self._began_ms = -window_ms
        self._passed = 0
        self._left_out = 0

    def passed(self, decisions: Iterable[Decided], now_ms: float) -> list[Decided]:
        """Return the decisions to write; the first after a pause tells how many were left out."""
        found = []
        for one in decisions:
            if not 0 <= now_ms - self._began_ms < self._window_ms:
                if self._left_out:
                    text = f"{one.text} ({self._left_out} like this were left out)"
                    found.append(one._replace(text=text))
                else:
                    found.append(one)
                self._began_ms, self._passed, self._left_out = now_ms, 1, 0
            elif self._passed < self._count:
                self._passed += 1
                found.append(one)
            else:
                self._left_out += 1
        return found


def _role(logger: str) -> str:
    """Return the role of an actor from the logger of its code."""
    parts = logger.removeprefix("raylog.actors.").split(".")
    return parts[0]


def line_of(noted: Noted) -> bytes:
    """Return a line of the file: escaped, and at most LINE_BYTES_MAX bytes long."""
    whole = noted._replace(
        text=_short(noted.text), subject=_short(noted.subject), process=_short(noted.process)
    )
    line = json.dumps(whole._asdict(), ensure_ascii=True).encode() + b"\n"
    if len(line) > LINE_BYTES_MAX:  # characters that take many bytes
        whole = whole._replace(
            text=whole.text[:100], subject=whole.subject[:50], process=whole.process[:100]
        )
        line = json.dumps(whole._asdict(), ensure_ascii=True).encode() + b"\n"
    return line


def _short(text: str) -> str:
    return plain(text[:TEXT_CHARS_MAX])


def read_lines(contents: bytes, since_ms: int = 0) -> tuple[list[Noted], int]:
    """Parse the decisions in a file; also return how many lines are invalid."""
    found, unreadable = [], 0
    for line in contents.split(b"\n"):
        if not line:
            continue
        noted = _read(line)
        if noted is None:
            unreadable += 1
        elif noted.at_ms >= since_ms:
            found.append(noted)
    return found, unreadable


def _read(line: bytes) -> Noted | None:
    if len(line) > LINE_BYTES_MAX:
        return None
    try:
        fields: Any = json.loads(line)
        noted = taken(Noted, [fields[name] for name in Noted._fields])
    except (ValueError, KeyError, TypeError, RecursionError, KafkaError):
        return None
    return noted._replace(text=_short(noted.text), subject=_short(noted.subject))


def merged(parts: Iterable[Iterable[Noted]]) -> list[Noted]:
    """Merge decisions by time without duplicates, which brokers on one machine may return."""
    return sorted({one: None for part in parts for one in part}, key=lambda one: one.at_ms)
