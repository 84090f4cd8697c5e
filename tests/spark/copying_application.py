"""The Spark application of a copy job as processes: started, hurt, started again, ended."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from types import TracebackType
from typing import IO, Self

from raylog.actors.runtime.processes import ProcessRecord, descendants, record_of
from raylog.actors.runtime.ray_node import actors_named
from tests.cluster.faults_site import send
from tests.spark.copying_app import AppSettings

EXECUTOR = "raydp-executor"
"""How RayDP names its executors' actors."""
END_S = 120.0
_RUN_AGAIN = re.compile(r"to be written again: (.*)")
_REASON = re.compile(r"[^:,(0-9]*")


@dataclass(frozen=True, slots=True)
class Blow:
    """Whom a kill hits."""

    text: str
    pids: list[int]
    then: Callable[[], None] = lambda: None
    """What is to be done when they are gone."""

    def strike(self) -> None:
        """Kill them."""
        send(signal.SIGKILL, self.pids)
        self.then()


class Application:
    """One Spark application, whose driver is a process of ours; it is kept running."""

    def __init__(self, settings: AppSettings, folder: Path) -> None:
        """`settings` is that of the first query; `folder` gets checkpoints and error outputs."""
        self.starts = 0
        self.ends: Counter[int] = Counter()
        """Drivers that ended and that nobody killed, by their exit's code."""
        self.settings = replace(settings, query=0, checkpoint=str(folder / "checkpoint-0"))
        self._folder = folder
        self._running: subprocess.Popen[bytes] | None = None
        self._hurt: list[tuple[subprocess.Popen[bytes], float]] = []
        """Drivers that were hurt and may take a while to end, and when that was."""

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._running is not None:
            self._leave()
        for process, _ in self._hurt:
            _kill(process)

    @property
    def checkpoints(self) -> dict[int, Path]:
        """All queries' by their numbers."""
        first = range(self.settings.query + 1)
        return {query: self._folder / f"checkpoint-{query}" for query in first}

    @property
    def runs_again(self) -> Counter[str]:
        """Runs of a batch that were repeated, by reason, as the sink's drivers said."""
        found: Counter[str] = Counter()
        for path in self._folder.glob("application-*.log"):
            for match in _RUN_AGAIN.finditer(path.read_text(errors="replace")):
                found[_reason(match.group(1))] += 1
        return found

    def _start(self) -> None:
        self.starts += 1
        command = [sys.executable, "-m", "tests.spark.copying_app", self.settings.encode()]
        with (self._folder / f"application-{self.starts}.log").open("ab") as errors:
            self._running = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=errors, stderr=errors
            )

    def mend(self) -> None:
        """Start again what has ended by itself, and end what should have ended."""
        for hurt in tuple(self._hurt):
            process, since = hurt
            if process.poll() is not None or time.monotonic() - since > END_S:
                _kill(process)
                self._hurt.remove(hurt)
        assert self._running is not None, "it is started"
        code = self._running.poll()
        if code is not None:
            self.ends[code] += 1
            _close(self._running.stdin)
            self._start()

    def executor(self, random: Random) -> Blow | None:
        """At an executor; None if none runs."""
        return _one("executor", executors(), random)

    def worker(self, random: Random) -> Blow | None:
        """At a Python worker of an executor; None if none runs."""
        workers = [
            one.pid
            for one in descendants(_records(executors()))
            if "worker_daemon" in _command_line(one.pid)
        ]
        return _one("Python worker", workers, random)

    def driver(self, random: Random) -> Blow | None:
        """At the driver's Python or its JVM; it is started again while the other half is there."""
        halves = self._halves()
        if len(halves) < 2 or not executors():
            return None
        half = random.choice(("Python", "JVM"))
        text = f"the driver's {half}, process {halves[half]}"
        return Blow(text, [halves[half]], self._start_anew)

    def whole(self, *, new_query: bool) -> Blow | None:
        """At driver and executors; it is started again, from its checkpoint or without one."""
        halves, running = self._halves(), executors()
        if len(halves) < 2 or not running:
            return None
        how = "without its checkpoint" if new_query else "from its checkpoint"
        pids = [*halves.values(), *running]
        text = f"the application, {len(pids)} processes; goes on {how}"
        return Blow(text, pids, self._start_new_query if new_query else self._start_anew)

    def finish(self) -> None:
        """Have it end by itself."""
        assert self._running is not None, "it is started"
        running, self._running = self._running, None
        _close(running.stdin)
        try:
            running.wait(END_S)
        finally:
            _kill(running)

    def _halves(self) -> dict[str, int]:
        """The driver's processes that run."""
        assert self._running is not None, "it is started"
        pid = self._running.pid
        found = {"Python": pid} if self._running.poll() is None else {}
        for child in descendants(_records([pid])):
            if "SparkSubmit" in _command_line(child.pid):
                found["JVM"] = child.pid
        return found

    def _start_anew(self) -> None:
        self._leave()
        self._start()

    def _start_new_query(self) -> None:
        query = self.settings.query + 1
        checkpoint = str(self._folder / f"checkpoint-{query}")
        self.settings = replace(self.settings, query=query, checkpoint=checkpoint)
        self._start_anew()

    def _leave(self) -> None:
        assert self._running is not None, "it is started"
        self._hurt.append((self._running, time.monotonic()))
        self._running = None


def executors() -> list[int]:
    """The processes of all executors on the cluster."""
    return [
        one.pid
        for one in actors_named("")
        if one.name.startswith(EXECUTOR) and one.state == "ALIVE" and one.pid
    ]


def _one(what: str, pids: list[int], random: Random) -> Blow | None:
    if not pids:
        return None
    pid = random.choice(sorted(pids))
    return Blow(f"{what} {pid}", [pid])


def _records(pids: Iterable[int]) -> list[ProcessRecord]:
    return [record for pid in pids if (record := record_of("", pid)) is not None]


def _command_line(pid: int) -> str:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


def _reason(text: str) -> str:
    """What reasons of one kind have in common."""
    found = _REASON.match(text)
    assert found is not None
    return found.group().strip() or text[:40]


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    _close(process.stdin)


def _close(stdin: IO[bytes] | None) -> None:
    assert stdin is not None
    with suppress(BrokenPipeError):
        stdin.close()
