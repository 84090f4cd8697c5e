"""Log lines contain no raw bytes from outside."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from raylog.actors.log_formatting import (
    CLIENTS_LOGGER,
    ENTRIES_MAX,
    LINE_CHARS_MAX,
    TRACEBACK_LINES_MAX,
    WINDOW_S,
    EscapingFormatter,
    Throttle,
    plain,
)
from raylog.actors.runtime import ray

FORGED = "t\n2026-01-01 00:00:00,000 CRITICAL raylog the disk is full\x1b[2J\r\u202e\x9b31m"


def logged(message: str, *args: object, failure: BaseException | None = None) -> list[str]:
    """The lines of one entry."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(EscapingFormatter())
    record = logging.LogRecord("raylog.x", logging.INFO, __file__, 1, message, args, None)
    if failure is not None:
        record.exc_info = (type(failure), failure, failure.__traceback__)
        record.exc_text = "left by another formatter\n"
    handler.handle(record)
    return stream.getvalue().removesuffix("\n").split("\n")


def test_an_entry_is_one_line_of_printable_characters() -> None:
    [line] = logged("there is no topic %s", FORGED)
    assert line.isprintable()
    assert line.endswith(
        r"raylog.x there is no topic t\n2026-01-01 00:00:00,000 CRITICAL raylog "
        r"the disk is full\x1b[2J\r\u202e\x9b31m"
    )


def test_printable_text_is_unchanged() -> None:
    assert plain("grüße, 日本 \\n 'x'") == "grüße, 日本 \\n 'x'"
    assert plain("half a pair: \ud800") == r"half a pair: \ud800"


def test_a_line_that_is_too_long_is_cut() -> None:
    [line] = logged("%s", "x" * 100_000)
    assert len(line) < LINE_CHARS_MAX + 50
    assert line.endswith("characters)")


def test_lines_of_a_traceback_are_indented_and_bounded() -> None:
    try:
        raise ValueError(FORGED + "\n" * 10_000)
    except ValueError as failure:
        first, *others = logged("failed", failure=failure)
    assert first.endswith("INFO raylog.x failed")
    assert all(one.startswith("  ") and one.isprintable() for one in others)
    assert others[0] == "  Traceback (most recent call last):"
    assert len(others) <= TRACEBACK_LINES_MAX + 1


def test_processes_of_actors_log_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.RootLogger(logging.WARNING)
    monkeypatch.setattr(logging, "root", root)
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    ray._configure_logging()
    root.error("no topic %s", FORGED)
    assert stream.getvalue().count("\n") == 1
    assert isinstance(root.handlers[0].formatter, EscapingFormatter)


class Log:
    """A log whose clock the test sets."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.now_s = 1_000.0
        self._handler = logging.StreamHandler(self.stream)
        self._handler.setFormatter(EscapingFormatter("%(message)s"))
        self._handler.addFilter(Throttle())

    def write(self, message: str, name: str = f"{CLIENTS_LOGGER}.x", line: int = 1) -> None:
        record = logging.LogRecord(name, logging.INFO, __file__, line, message, (), None)
        record.created = self.now_s
        self._handler.handle(record)

    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


def test_clients_do_not_fill_the_disk_with_log_lines() -> None:
    log = Log()
    for _ in range(1_000):
        log.write("refused")
    log.write("another place", line=2)
    assert log.lines() == ["refused"] * ENTRIES_MAX + ["another place"]
    log.now_s += WINDOW_S
    log.write("refused")
    log.write("refused")
    left_out = 1_000 - ENTRIES_MAX
    assert log.lines()[-2:] == [f"refused ({left_out} like this were left out)", "refused"]


def test_a_clock_that_goes_back_does_not_silence_the_log() -> None:
    log = Log()
    for _ in range(ENTRIES_MAX + 1):
        log.write("refused")
    log.now_s -= 3_600
    log.write("refused")
    assert log.lines()[-1] == "refused (1 like this were left out)"


def test_messages_not_caused_by_clients_are_never_limited() -> None:
    log = Log()
    for number in range(ENTRIES_MAX * 3):
        log.write(f"topic-{number} is damaged", "raylog.actors.replica.housing")
    assert len(log.lines()) == ENTRIES_MAX * 3
