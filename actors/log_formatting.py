"""Log formatting that escapes untrusted text: one formatter for everything a process logs.

Text from clients (names, ids, whatever an error quotes) reaches the log through messages and
exceptions. Characters that are not printable, such as line breaks and escape sequences, are
escaped, so that nobody can forge an entry or control a terminal, and long lines are truncated.
`Throttle` limits entries that clients cause.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from types import TracebackType

FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
LINE_CHARS_MAX = 2_000
TRACEBACK_LINES_MAX = 300
CLIENTS_LOGGER = "raylog.actors.gateway"
"""The logger of entries that clients cause."""
ENTRIES_MAX = 60
WINDOW_S = 60.0
LEFT_OUT = "left_out"
_Raised = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def plain(text: str) -> str:
    """Return text as one printable line."""
    if len(text) > LINE_CHARS_MAX:
        text = f"{text[:LINE_CHARS_MAX]}... ({len(text)} characters)"
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text
    )


class EscapingFormatter(logging.Formatter):
    """Formats an entry as one line, then an indented traceback, which cannot look like one."""

    def __init__(self, fmt: str = FORMAT) -> None:
        super().__init__(fmt)

    def format(self, record: logging.LogRecord) -> str:
        """Format an entry."""
        record.exc_text = None  # another formatter may have left its own there
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Format the first line of an entry."""
        line = plain(super().formatMessage(record))
        left_out = getattr(record, LEFT_OUT, 0)
        return f"{line} ({left_out} like this were left out)" if left_out else line

    def formatException(self, ei: _Raised) -> str:  # noqa: N802 - logging's name
        """Format a traceback."""
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - logging's name
        """Format a stack."""
        return _indented(stack_info)


def _indented(text: str) -> str:
    lines = text.split("\n")
    if len(lines) > TRACEBACK_LINES_MAX:
        half = TRACEBACK_LINES_MAX // 2
        lines = [*lines[:half], f"... ({len(lines)} lines)", *lines[-half:]]
    return "\n".join("  " + plain(line) for line in lines)


@dataclass(slots=True)
class _Window:
    """Entries that one place in the code has logged in a time window."""

    began_s: float
    entries: int = 0
    left_out: int = 0


class Throttle(logging.Filter):
    """Limits what clients make a gateway log, per place in the code that logs.

    At most ENTRIES_MAX entries pass in WINDOW_S. The first entry after that tells in its attribute
    LEFT_OUT how many were dropped.
    """

    def __init__(self) -> None:
        super().__init__(CLIENTS_LOGGER)
        self._windows: dict[tuple[str, int], _Window] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write an entry."""
        if not super().filter(record) or record.levelno < logging.INFO:
            return True  # others' entries, and debug output
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
    """Log to stderr with this formatter, unless the process has handlers already."""
    handler = logging.StreamHandler()
    handler.setFormatter(EscapingFormatter(fmt))
    handler.addFilter(Throttle())
    logging.basicConfig(level=level, handlers=[handler])
