"""Log lines without raw bytes from outside: one formatter for all that a process logs.

Texts of clients (names, ids, whatever an error quotes) reach the log through messages and
exceptions. What is not printable, line breaks and escape sequences above all, is written as an
escape, so that nobody can forge an entry or command a terminal; what is too long is cut. And no
client decides how much is written: `Throttle` counts entries that repeat too fast.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from types import TracebackType

FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
LINE_CHARS_MAX = 2_000
TRACEBACK_LINES_MAX = 300
CLIENTS_LOGGER = "raylog.actors.gateway"
"""Whose entries clients cause."""
ENTRIES_MAX = 60
WINDOW_S = 60.0
LEFT_OUT = "left_out"
_INDENT = "  "
_Raised = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def plain(text: str) -> str:
    """One line of text as it may be written."""
    if len(text) > LINE_CHARS_MAX:
        text = f"{text[:LINE_CHARS_MAX]}... ({len(text)} characters)"
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escaped(one) for one in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


class PlainFormatter(logging.Formatter):
    """An entry is one line; those of a traceback follow indented, so they look like no entry."""

    def __init__(self, fmt: str = FORMAT) -> None:
        super().__init__(fmt)

    def format(self, record: logging.LogRecord) -> str:
        """The lines of an entry."""
        record.exc_text = None  # another formatter may have left its own there
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The line of an entry."""
        line = plain(super().formatMessage(record))
        left_out = getattr(record, LEFT_OUT, 0)
        return f"{line} ({left_out} like this were left out)" if left_out else line

    def formatException(self, ei: _Raised) -> str:  # noqa: N802 - logging's name
        """The traceback of an entry."""
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - logging's name
        """The stack of an entry."""
        return _indented(stack_info)


def _indented(text: str) -> str:
    lines = text.split("\n")
    if len(lines) > TRACEBACK_LINES_MAX:
        half = TRACEBACK_LINES_MAX // 2
        lines = [*lines[:half], f"... ({len(lines)} lines)", *lines[-half:]]
    return "\n".join(_INDENT + plain(line) for line in lines)


@dataclass(slots=True)
class _Window:
    """What one place in the code has logged within a time."""

    began_s: float
    entries: int = 0
    left_out: int = 0


class Throttle(logging.Filter):
    """Bounds what clients make a gateway log, by each place in the code that logs.

    Of more than ENTRIES_MAX in WINDOW_S the rest is left out. The first entry from there after that
    time tells how many: it has an attribute LEFT_OUT.
    """

    def __init__(self) -> None:
        super().__init__(CLIENTS_LOGGER)
        self._windows: dict[tuple[str, int], _Window] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether an entry is written."""
        if not super().filter(record) or record.levelno < logging.INFO:
            return True  # others' entries, and the transcript for debugging
        place = (record.pathname, record.lineno)
        window = self._windows.get(place)
        if window is None or not 0 <= record.created - window.began_s < WINDOW_S:
            if window is not None and window.left_out:
                setattr(record, LEFT_OUT, window.left_out)
            window = self._windows[place] = _Window(record.created)
        window.entries += 1
        if window.entries > ENTRIES_MAX:
            window.left_out += 1
        return window.entries <= ENTRIES_MAX


def configure(level: str | int, fmt: str = FORMAT) -> None:
    """Log to stderr by this formatter, unless the process has handlers already."""
    handler = logging.StreamHandler()
    handler.setFormatter(PlainFormatter(fmt))
    handler.addFilter(Throttle())
    logging.basicConfig(level=level, handlers=[handler])
