"""The journal: what actors have decided, one line each, in files beside a broker's data.

| file under the data directory | contents                                                       |
|-------------------------------|----------------------------------------------------------------|
| `journal/decisions`           | JSON, an object a line: `Noted`; all processes append          |
| `journal/decisions.1`         | the lines before; it is replaced when `decisions` is full      |
| `journal/running/`            | a file for each process that runs (`runtime.evidence`)         |
| `journal/crashes/`            | what is left of processes that ended without being asked to    |

A decision also goes to the log of its process. Where no process writes a journal (in one process,
in the simulation) that is all.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from raylog.actors.plain import message, taken
from raylog.actors.plain_logs import plain
from raylog.wire.errors import KafkaError

LINE_BYTES_MAX = 4_096
TEXT_CHARS_MAX = 600
ELECTION, ISR, FENCING, UNCLEAN = "election", "isr", "fencing", "unclean"
CONTROLLER, BROKER, LOAD = "controller", "broker", "load"
TRUNCATION, MEMBER, PROCESS = "truncation", "member", "process"
KINDS = (ELECTION, ISR, FENCING, UNCLEAN, CONTROLLER, BROKER, LOAD, TRUNCATION, MEMBER, PROCESS)


class Decided(NamedTuple):
    """A decision, for the journal."""

    kind: str
    """One of KINDS."""
    text: str
    """One line with the numbers that led to it."""
    subject: str = ""
    """Of what: TOPIC-PARTITION, a group, a broker."""


@message
class Noted(NamedTuple):
    """A decision as it is kept and told."""

    at_ms: int
    """Wall-clock time since the epoch."""
    role: str
    """Of the actor."""
    process: str
    """Name of the process' own actor."""
    pid: int
    kind: str
    subject: str
    text: str


@message
class Crash(NamedTuple):
    """What is left of a process that ended without being asked to."""

    at_ms: int
    """When it was last known to run, or wrote what ended it."""
    process: str
    pid: int
    build: str
    text: str
    """What it wrote at its end: traceback or faulthandler's output; "" if nothing."""
    last: tuple[Noted, ...] = ()
    """Its last decisions."""


@message
class JournalAsked(NamedTuple):
    """What is to be told of a journal."""

    since_ms: int = 0
    limit: int = 10_000
    """At most so many decisions, the latest ones."""
    crashes: bool = False
    """Whether crashes are to be told, too."""


@message
class JournalTold(NamedTuple):
    """What is known of the processes of one broker."""

    noted: tuple[Noted, ...]
    crashes: tuple[Crash, ...] = ()
    unreadable: int = 0
    """Lines that are none."""


_Process = Callable[[], tuple[int, str, int]]
_keepers: list[tuple[Callable[[Noted], None], _Process]] = []
"""What keeps the journal of this process; none or one."""


def keep_with(write: Callable[[Noted], None], of_process: _Process) -> None:
    """Keep the decisions of this process: `of_process` gives time in ms, name and pid."""
    _keepers[:] = [(write, of_process)]


def decided(log: logging.Logger, one: Decided, *, warn: bool = False) -> None:
    """Log a decision and note it in the journal."""
    log.log(logging.WARNING if warn else logging.INFO, "%s: %s", one.kind, one.text)
    for write, of_process in _keepers:
        at_ms, process, pid = of_process()
        write(Noted(at_ms, _role(log.name), process, pid, one.kind, one.subject, one.text))


class Few:
    """Lets so many through in a time: no client decides how much is written."""

    def __init__(self, count: int = 60, window_ms: float = 60_000) -> None:
        self._count = count
        self._window_ms = window_ms
        self._began_ms = -window_ms
        self._passed = 0
        self._left_out = 0

    def passed(self, decisions: Iterable[Decided], now_ms: float) -> list[Decided]:
        """Those to be noted; the first of them later tells how many were left out before."""
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
    """The role of an actor by the logger of its code."""
    parts = logger.removeprefix("raylog.actors.").split(".")
    return parts[0]


def line_of(noted: Noted) -> bytes:
    """A line of the file, without raw bytes from outside, at most LINE_BYTES_MAX long."""
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
    """The decisions of a file's lines, and how many lines are none; whatever the file holds."""
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
    """All decisions in time order, each once: two brokers on one machine may tell the same."""
    return sorted({one: None for part in parts for one in part}, key=lambda one: one.at_ms)
