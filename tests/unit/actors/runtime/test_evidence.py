"""Journal files: written by several processes, kept after they end, bounded."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from raylog.actors import journal
from raylog.actors.decisions import ELECTION
from raylog.actors.journal import JournalAsked, Noted, line_of
from raylog.actors.runtime import evidence
from raylog.actors.runtime.evidence import CRASHES_MAX, ProcessJournal, read_journal

ONE = Noted(1_000, "controller", "c/controller/1", 7, ELECTION, "t-0", "broker 1 leads")
ALL = JournalAsked(crashes=True)


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    (tmp_path / "meta.json").write_text("{}")
    return tmp_path


@pytest.fixture(autouse=True)
def _nobody_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_keepers", [])


def test_decisions_of_two_processes_are_kept(broker: Path) -> None:
    first, second = ProcessJournal(broker, "c/broker/1"), ProcessJournal(broker, "c/replica/1/0")
    first.note(ONE)
    second.note(ONE._replace(at_ms=500))
    first.flush()
    second.flush()
    assert [one.at_ms for one in read_journal(broker, ALL).noted] == [500, 1_000]
    assert [one.at_ms for one in read_journal(broker, JournalAsked(since_ms=600)).noted] == [1_000]
    assert [one.at_ms for one in read_journal(broker, JournalAsked(limit=1)).noted] == [1_000]
    for one in (first, second):
        one.ended_as_asked()
    assert read_journal(broker, ALL).crashes == ()


def test_nothing_is_written_where_no_broker_has_its_data(tmp_path: Path) -> None:
    own = ProcessJournal(tmp_path, "c/broker/1")
    own.note(ONE)
    assert own.read(ALL).noted == (ONE,), "it knows what it decided itself"
    assert list(tmp_path.iterdir()) == [], "an unmounted disk stays empty"
    (tmp_path / "meta.json").write_text("{}")
    own.flush()
    assert read_journal(tmp_path, ALL).noted == (ONE,), "what was decided before is not lost"


def test_a_torn_line_costs_itself_only(broker: Path) -> None:
    (broker / "journal").mkdir()
    (broker / "journal" / "decisions").write_bytes(line_of(ONE)[:30])
    own = ProcessJournal(broker, "c/broker/1")
    own.note(ONE)
    own.flush()
    journal = read_journal(broker, ALL)
    assert (journal.noted, journal.unreadable) == ((ONE,), 1)


def test_files_are_bounded(broker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "FILE_BYTES_MAX", 2_000)
    own = ProcessJournal(broker, "c/broker/1")
    for at in range(100):
        own.note(ONE._replace(at_ms=at))
        own.flush()
    sizes = [path.stat().st_size for path in (broker / "journal").glob("decisions*")]
    assert sum(sizes) < 5_000
    assert read_journal(broker, ALL).noted[-1].at_ms == 99


@pytest.mark.parametrize("name", ["decisions", "decisions.1", "running", "crashes"])
def test_hostile_files_do_no_harm(broker: Path, name: str, tmp_path: Path) -> None:
    directory = broker / "journal"
    directory.mkdir()
    outside = tmp_path / "outside"
    outside.write_text("of somebody else\n")
    (directory / name).symlink_to(outside)
    own = ProcessJournal(broker, "c/broker/1")
    own.note(ONE)
    journal = own.read(ALL)
    assert (journal.noted, journal.crashes) == ((ONE,), ())
    assert outside.read_text() == "of somebody else\n"


CRASHES = """
import sys
from pathlib import Path
from raylog.actors.journal import Noted
from raylog.actors.runtime.evidence import ProcessJournal
own = ProcessJournal(Path(sys.argv[1]), "c/broker/1")
import os
own.note(Noted(1_000, "broker", "c/broker/1", os.getpid(), "broker", "", "the last word"))
own.flush()
"""


def run(broker: Path, end: str) -> None:
    subprocess.run([sys.executable, "-c", CRASHES + end, str(broker)], check=False, timeout=60)


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("own.crashed(AssertionError('a broken invariant')); os._exit(70)", "a broken invariant"),
        ("import faulthandler; faulthandler._sigsegv()", "Segmentation fault"),
        ("os.kill(os.getpid(), 9)", ""),
    ],
)
def test_crash_evidence_is_kept(broker: Path, end: str, expected: str) -> None:
    run(broker, end)
    for _ in range(2):  # the first to look moves it
        [crash] = read_journal(broker, ALL).crashes
        assert (crash.process, expected in crash.text) == ("c/broker/1", True)
        assert [one.text for one in crash.last] == ["the last word"]
    assert read_journal(broker, JournalAsked()).crashes == ()


def test_a_process_that_was_asked_to_end_leaves_nothing(broker: Path) -> None:
    run(broker, "own.ended_as_asked()")
    assert read_journal(broker, ALL).crashes == ()


def test_crash_files_are_bounded_without_a_reader(broker: Path) -> None:
    running = broker / "journal" / "running"
    running.mkdir(parents=True)
    for pid in range(10**7, 10**7 + 2 * CRASHES_MAX):  # beyond those that Linux gives
        (running / f"c.{pid}").write_text(
            json.dumps({"process": "c", "pid": pid, "started": "1", "build": "b"})
        )
    own = ProcessJournal(broker, "c/broker/1")
    own.note(ONE)
    own.flush()
    assert [one.name for one in running.iterdir()] == [f"c%2Fbroker%2F1.{os.getpid()}"]
    assert len([*(broker / "journal" / "crashes").iterdir()]) == CRASHES_MAX
    own.ended_as_asked()
    assert list(running.iterdir()) == []


def test_a_disk_that_fails_does_not_end_the_journal(
    broker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exists = Path.exists
    fails = [True]

    def broken(path: Path) -> bool:
        if fails and path.parent == broker:
            raise OSError(errno.EIO, "a disk that fails")
        return exists(path)

    monkeypatch.setattr(Path, "exists", broken)
    own = ProcessJournal(broker, "c/broker/1")
    own.note(ONE._replace(text="lost"))
    own.flush()
    fails.clear()
    own.note(ONE)
    own.flush()
    assert read_journal(broker, ALL).noted == (ONE,)


def test_a_disk_that_hangs_keeps_no_process_from_ending(
    broker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "_FLUSH_S", 0.05)
    monkeypatch.setattr(evidence, "_PENDING_MAX", 3)
    goes_on = threading.Event()
    monkeypatch.setattr(evidence, "_append", lambda *_: goes_on.wait(60))
    own = ProcessJournal(broker, "c/broker/1")
    own.note(ONE)
    for _ in range(10):
        own.note(ONE)
    ends = [
        threading.Thread(target=end, daemon=True)
        for end in (own.ended_as_asked, lambda: own.crashed(AssertionError("broken")))
    ]
    for one in ends:
        one.start()
    for one in ends:
        one.join(30)
    still_there = [one.is_alive() for one in ends]
    waits = own._queue.qsize()
    goes_on.set()
    assert (still_there, waits <= 3 + len(ends)) == ([False, False], True)


def test_crashes_are_bounded_and_those_that_run_are_none(broker: Path) -> None:
    running = broker / "journal" / "running"
    running.mkdir(parents=True)
    for number in range(CRASHES_MAX + 5):
        mark = running / f"gone.{number}"
        mark.write_text('{"process": "p", "pid": 1, "started": "long ago", "build": "0"}\n\x1b[2J')
        os.utime(mark, (number, number))
    (running / "hostile").write_text("[" * 9_000)
    own = ProcessJournal(broker, "c/broker/1")
    own.note(ONE)
    crashes = own.read(ALL).crashes
    assert len(crashes) in (CRASHES_MAX, CRASHES_MAX - 1)
    assert crashes[-1].at_ms == (CRASHES_MAX + 4) * 1_000
    assert {one.text for one in crashes} == {"\\x1b[2J"}
    assert len(list((broker / "journal" / "crashes").iterdir())) == CRASHES_MAX
    own.ended_as_asked()
