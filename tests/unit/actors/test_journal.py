"""Decisions as log lines: no raw input, and torn or hostile lines do no harm."""

from __future__ import annotations

import json
import logging

import pytest

from raylog.actors import journal
from raylog.actors.decisions import ELECTION, MEMBER, Decided
from raylog.actors.journal import (
    LINE_BYTES_MAX,
    Few,
    Noted,
    decided,
    keep_with,
    line_of,
    merged,
    read_lines,
)

ONE = Noted(1_000, "controller", "c/controller/1", 7, ELECTION, "t-0", "broker 1 leads")


def test_a_line_is_read_as_it_was_written() -> None:
    later = ONE._replace(at_ms=2_000)
    assert read_lines(line_of(ONE) + line_of(later)) == ([ONE, later], 0)
    assert read_lines(line_of(ONE) + line_of(later), since_ms=1_500) == ([later], 0)


@pytest.mark.parametrize("text", ["a\nb", "\x1b[2J", "\u202e", "\U0001f600" * 2_000, "x" * 10_000])
def test_text_from_outside_is_one_printable_line(text: str) -> None:
    line = line_of(ONE._replace(text=text, subject=text, process=text))
    assert line.count(b"\n") == 1
    assert len(line) <= LINE_BYTES_MAX
    assert line.isascii()
    [found], unreadable = read_lines(line)
    assert (unreadable, found.text.isprintable(), found.subject.isprintable()) == (0, True, True)


@pytest.mark.parametrize(
    "bad",
    [
        line_of(ONE)[:40],
        b"\x00\xff",
        b"[" * 4_000,
        b"[]",
        b"{}",
        b"7",
        json.dumps(ONE._asdict() | {"at_ms": "soon"}).encode(),
        json.dumps(ONE._asdict() | {"text": None}).encode(),
        b" " * (LINE_BYTES_MAX + 1),
    ],
)
def test_malformed_journal_line_is_skipped(bad: bytes) -> None:
    assert read_lines(b"\n".join([line_of(ONE), bad, line_of(ONE)])) == ([ONE, ONE], 1)


def test_a_hostile_file_shows_no_escape_sequences() -> None:
    raw = json.dumps(ONE._asdict() | {"text": "\x1b[2J\n", "of": "a newer build"}).encode()
    assert read_lines(raw)[0][0].text == "\\x1b[2J\\n"


def test_journals_are_merged_in_time_order_each_decision_once() -> None:
    others = [ONE._replace(at_ms=at) for at in (500, 1_500)]
    assert merged([[ONE], others, [ONE]]) == [others[0], ONE, others[1]]


def test_a_decision_is_logged_and_kept(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_keepers", [])
    kept: list[Noted] = []
    keep_with(kept.append, lambda: (5, "c/replica/1", 9))
    with caplog.at_level(logging.INFO):
        decided(logging.getLogger("raylog.actors.group.hosting"), Decided(MEMBER, "it leaves", "g"))
    assert [one.message for one in caplog.records] == ["member: it leaves"]
    assert kept == [Noted(5, "group", "c/replica/1", 9, MEMBER, "g", "it leaves")]


def test_clients_do_not_decide_how_much_is_written() -> None:
    few, one = Few(2, 1_000), Decided(MEMBER, "leaves")
    assert few.passed([one] * 5, 0) == [one, one]
    assert few.passed([one], 999) == []
    assert few.passed([one, one], 1_000) == [
        Decided(MEMBER, "leaves (4 like this were left out)"),
        one,
    ]
