"""Files of the journal, and traces of processes that crash.

Each process has a file in `journal/running`, which it removes when it ends on request. The file
gets the traceback of whatever ends the process, and faulthandler's output if the interpreter
crashes. Readers and starting processes move the files of processes that no longer run to
`journal/crashes`, where the latest are kept. Nothing is written before the data directory is a
broker's, so an unmounted disk stays empty. A failed write loses lines and has no other effect.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import json
import logging
import os
import queue
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path
from urllib.parse import quote

from raylog.actors.build import BUILD
from raylog.actors.decisions import PROCESS, Decided
from raylog.actors.journal import (
    Crash,
    JournalAsked,
    JournalTold,
    Noted,
    decided,
    keep_with,
    line_of,
    merged,
    read_lines,
)
from raylog.actors.log_formatting import plain
from raylog.actors.runtime.base import ActorSpec
from raylog.actors.runtime.processes import ProcessRecord, is_running, record_of

log = logging.getLogger(__name__)
ENDING = frozenset({"stop", "shutdown"})
"""Calls after which a process may end, because it was requested."""
JOURNAL, _DECISIONS, _BEFORE, _RUNNING, _CRASHES = (
    "journal",
    "decisions",
    "decisions.1",
    "running",
    "crashes",
)
FILE_BYTES_MAX = 1 << 20
"""Maximum size of a file of decisions; there are two such files."""
CRASHES_MAX = 20
CRASH_BYTES_MAX = 64 * 1024
LAST_DECISIONS = 10
LATEST_MAX = 1_000
_PENDING_MAX = 10_000
_PENDING_POLL_S = 1.0
_FLUSH_S = 2.0
_OF_A_BROKER = "meta.json"
"""A file that every broker's data directory has."""


class ProcessJournal:
    """The journal of this process. A thread writes it, so that nothing waits for the disk."""

    def __init__(self, broker_directory: Path, process: str) -> None:
        self._broker_directory = broker_directory
        self._directory = broker_directory / JOURNAL
        self._process = process
        self._pid = os.getpid()
        self._latest: deque[Noted] = deque(maxlen=LATEST_MAX)
        """Decisions of this process, because its broker's directory may be on another machine."""
        self._queue: queue.SimpleQueue[Noted | threading.Event] = queue.SimpleQueue()
        self._mark: FileIO | None = None
        self._mark_path = self._directory / _RUNNING / f"{quote(process, safe='')}.{self._pid}"
        self._was_reported = False
        """Whether it was logged that the journal cannot be written."""
        self._lock = threading.Lock()
        """Held while files change."""
        self._ended = False
        threading.Thread(target=self._write_forever, name="journal", daemon=True).start()

    @classmethod
    def begun(cls, spec: ActorSpec) -> ProcessJournal:
        """Start the journal of an actor's process."""
        journal = cls(Path(spec.journal), spec.name)
        journal.keep()
        own = logging.getLogger(f"raylog.actors.{spec.role}")
        decided(own, Decided(PROCESS, f"{spec.name} starts, build {BUILD}", spec.name))
        return journal

    def keep(self) -> None:
        """Send the decisions of this process here."""
        keep_with(self.note, lambda: (int(time.time() * 1000), self._process, self._pid))

    def note(self, noted: Noted) -> None:
        """Queue a decision to be written."""
        self._latest.append(noted)
        if self._queue.qsize() < _PENDING_MAX:  # bounded, in case the disk hangs
            self._queue.put(noted)

    def read(self, request: JournalAsked) -> JournalTold:
        """Return what this process knows, and its broker's directory if that is here. Blocking."""
        self.flush()
        return read_journal(self._broker_directory, request, tuple(self._latest))

    def flush(self) -> None:
        """Wait up to 2 s until everything queued is written. Blocking."""
        written = threading.Event()
        self._queue.put(written)
        written.wait(_FLUSH_S)

    def ended_as_asked(self) -> None:
        """Remove the process's file: it ends on request. Blocking."""
        self.flush()
        with self._files_are_free() as free:
            self._ended = True
            if free and self._mark is not None:
                faulthandler.disable()
                with contextlib.suppress(OSError):
                    self._mark_path.unlink(missing_ok=True)

    def crashed(self, failure: BaseException) -> None:
        """Keep the exception that ends the process, unless its end was requested. Blocking."""
        if isinstance(failure, InterruptedError):
            self.ended_as_asked()
            return
        self.flush()
        text = "".join(traceback.format_exception(failure)).encode(errors="replace")
        with self._files_are_free() as free, contextlib.suppress(OSError):
            if free and self._mark is not None:
                self._mark.write(text[-CRASH_BYTES_MAX // 2 :])
                self._mark.flush()

    @contextlib.contextmanager
    def _files_are_free(self) -> Iterator[bool]:
        """Lock the files; yields False if the disk blocks them for more than 2 s."""
        free = self._lock.acquire(timeout=_FLUSH_S)
        try:
            yield free
        finally:
            if free:
                self._lock.release()

    def _write_forever(self) -> None:
        pending: deque[Noted] = deque(maxlen=_PENDING_MAX)
        while True:
            asked = self._taken_in(pending)
            if pending and self._write([line_of(one) for one in pending]):
                pending.clear()
            for one in asked:
                one.set()

    def _taken_in(self, pending: deque[Noted]) -> list[threading.Event]:
        """Wait for lines, only briefly if some are due; return the callers waiting for a flush."""
        asked = []
        with contextlib.suppress(queue.Empty):
            one = self._queue.get(timeout=_PENDING_POLL_S if pending else None)
            while True:
                if isinstance(one, threading.Event):
                    asked.append(one)
                else:
                    pending.append(one)
                one = self._queue.get_nowait()
        return asked

    def _write(self, lines: list[bytes]) -> bool:
        """Write lines, or lose them; return False if they must wait for a broker's directory."""
        try:
            if not (self._broker_directory / _OF_A_BROKER).exists():
                return False
            with self._lock:
                self._begin()
                _append(self._directory, b"".join(lines))
        except OSError as failure:
            if not self._was_reported:
                log.warning("the journal in %s cannot be written: %s", self._directory, failure)
            self._was_reported = True
        else:
            self._was_reported = False
        return True

    def _begin(self) -> None:
        """Mark that this process runs, and move the files of processes that no longer run."""
        if self._mark is not None or self._ended:
            return
        running = self._directory / _RUNNING
        running.mkdir(mode=0o700, parents=True, exist_ok=True)
        itself = record_of(self._process, self._pid)
        head = {
            "process": self._process,
            "pid": self._pid,
            "started": "" if itself is None else itself.started,
            "build": BUILD,
        }
        draft = self._directory / f"mark.{self._mark_path.name}"  # complete before it is renamed
        draft.unlink(missing_ok=True)
        mark = draft.open("xb", buffering=0)
        mark.write(json.dumps(head).encode() + b"\n")
        draft.replace(self._mark_path)
        faulthandler.enable(mark)
        self._mark = mark
        _collect(self._directory)


def _append(directory: Path, lines: bytes) -> None:
    """Append lines under a lock, and rotate the file when it is full."""
    directory.mkdir(mode=0o700, exist_ok=True)
    with (directory / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = directory / _DECISIONS
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
                lines = b"\n" + lines  # a crash has cut off a line
            file.write(lines)
        if size + len(lines) > FILE_BYTES_MAX:
            path.replace(directory / _BEFORE)


def read_journal(
    broker_directory: Path, request: JournalAsked, latest: Iterable[Noted] = ()
) -> JournalTold:
    """Return what a broker's directory has, and what else is known. Blocking.

    Any contents of the files are harmless.
    """
    directory = broker_directory / JOURNAL
    noted = [[one for one in latest if one.at_ms >= request.since_ms]]
    unreadable = 0
    for name in (_BEFORE, _DECISIONS):
        found, bad = read_lines(_contents(directory / name, 2 * FILE_BYTES_MAX), request.since_ms)
        noted.append(found)
        unreadable += bad
    ordered = merged(noted)
    crashes = _crashes(directory, ordered) if request.crashes else []
    returned = ordered[-max(request.limit, 0) :] if request.limit > 0 else []
    return JournalTold(tuple(returned), tuple(crashes), unreadable)


def _contents(path: Path, size_max: int) -> bytes:
    """Return the end of a regular file; empty for anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    with os.fdopen(descriptor, "rb") as file:
        try:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - size_max))
            return file.read(size_max)
        except OSError:
            return b""


def _crashes(directory: Path, noted: list[Noted]) -> list[Crash]:
    """Return the traces of crashed processes, the latest last."""
    _collect(directory)
    found = []
    for path in _files(directory / _CRASHES):
        head, text = _mark_of(path)
        if head is None:
            continue
        own = [one for one in noted if (one.process, one.pid) == (head.name, head.pid)]
        at_ms = _modified_ms(path)
        last = tuple(own[-LAST_DECISIONS:])
        found.append(Crash(at_ms, plain(head.name), head.pid, text[0], text[1], last))
    return sorted(found, key=lambda one: one.at_ms)


def _mark_of(path: Path) -> tuple[ProcessRecord | None, tuple[str, str]]:
    """Return a file's process, its build, and what the process wrote when it ended."""
    head, _, rest = _contents(path, CRASH_BYTES_MAX).partition(b"\n")
    try:
        fields = json.loads(head)
        record = ProcessRecord(
            str(fields["process"])[:200], int(fields["pid"]), str(fields["started"])
        )
        build = plain(str(fields["build"])[:80])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None, ("", "")
    lines = rest.decode(errors="replace").splitlines()
    return record, (build, "\n".join(plain(line) for line in lines))


def _collect(directory: Path) -> None:
    """Move the files of processes that no longer run, and keep the latest crashes."""
    crashes = directory / _CRASHES
    for path in _files(directory / _RUNNING):
        record, _ = _mark_of(path)
        if record is not None and is_running(record):
            continue
        with contextlib.suppress(OSError):
            crashes.mkdir(mode=0o700, exist_ok=True)
            path.replace(crashes / f"{_modified_ms(path):015d}-{path.name}")
    for path in _files(crashes)[:-CRASHES_MAX]:
        with contextlib.suppress(OSError):
            path.unlink()


def _modified_ms(path: Path) -> int:
    try:
        return path.lstat().st_mtime_ns // 1_000_000
    except OSError:
        return 0


def _files(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []
