"""Log lines without raw bytes from outside: one formatter for all that a process logs.

Texts of clients (names, ids, whatever an error quotes) reach the log through messages and
exceptions. What is not printable, line breaks and escape sequences above all, is written as an
escape, so that nobody can forge an entry or command a terminal; what is too long is cut.
"""

from __future__ import annotations

import logging
from types import TracebackType

FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
LINE_CHARS_MAX = 2_000
TRACEBACK_LINES_MAX = 300
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
        return plain(super().formatMessage(record))

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


def configure(level: str | int, fmt: str = FORMAT) -> None:
    """Log to stderr by this formatter, unless the process has handlers already."""
    handler = logging.StreamHandler()
    handler.setFormatter(PlainFormatter(fmt))
    logging.basicConfig(level=level, handlers=[handler])
