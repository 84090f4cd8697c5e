"""The Spark application of a copy job as processes: started, killed, restarted, ended."""

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

from raylog.actors.runtime.processes import ProcessRecord, descendants, record_of
from raylog.actors.runtime.ray_node import actors_named
from tests.cluster.three_node_cluster import send
from tests.copying.spark_app import AppSettings
from tests.support.working import Until, close, kill

EXECUTOR = "raydp-executor"
"""The prefix of RayDP's executor actors."""
END_S = 120.0
_RUN_AGAIN = re.compile(r"to be written again: (.*)")
_REASON = re.compile(r"[^:,(0-9]*")


@dataclass(frozen=True, slots=True)
class Blow:
    """The processes that a kill hits."""

    text: str
    pids: list[int]
    then: Callable[[], None] = lambda: None
    """What to do when they have ended."""

    def strike(self) -> None:
        """Kill them."""
        send(signal.SIGKILL, self.pids)
        self.then()


class Application(Until):
    """One Spark application that is kept running; its driver is a child process of ours."""

    def __init__(self, settings: AppSettings, folder: Path) -> None:
        """`settings` is for the first query; `folder` gets checkpoints and error output."""
        self.starts = 0
        self.ends: Counter[int] = Counter()
        """Exit codes of drivers that were not killed, with counts."""
        self.settings = replace(settings, query=0, checkpoint=str(folder / "checkpoint-0"))
        self._folder = folder
        self._running: subprocess.Popen[bytes] | None = None
        self._hurt: list[tuple[subprocess.Popen[bytes], float]] = []
        """Drivers that were hit and may take a while to end, and when that was."""

    def begin(self) -> None:
        """Start the application."""
        self._start()

    def end(self) -> None:
        """Kill all drivers that still run."""
        if self._running is not None:
            self._leave()
        for process, _ in self._hurt:
            kill(process)

    @property
    def checkpoints(self) -> dict[int, Path]:
        """The checkpoints of all queries by number."""
        first = range(self.settings.query + 1)
        return {query: self._folder / f"checkpoint-{query}" for query in first}

    @property
    def runs_again(self) -> Counter[str]:
        """How many batches were run again, by reason, from the logs of the sink's drivers."""
        found: Counter[str] = Counter()
        for path in self._folder.glob("application-*.log"):
            for match in _RUN_AGAIN.finditer(path.read_text(errors="replace")):
                found[_reason(match.group(1))] += 1
        return found

    def _start(self) -> None:
        self.starts += 1
        command = [sys.executable, "-m", "tests.copying.spark_app", self.settings.encode()]
        with (self._folder / f"application-{self.starts}.log").open("ab") as errors:
            self._running = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=errors, stderr=errors
            )

    def mend(self) -> None:
        """Restart a driver that ended, and kill those that should have ended."""
        for hurt in tuple(self._hurt):
            process, since = hurt
            if process.poll() is not None or time.monotonic() - since > END_S:
                kill(process)
                self._hurt.remove(hurt)
        assert self._running is not None, "it is started"
        code = self._running.poll()
        if code is not None:
            self.ends[code] += 1
            close(self._running.stdin)
            self._start()

    def executor(self, random: Random) -> Blow | None:
        """Return a kill of an executor; None if none runs."""
        return _one("executor", executors(), random)

    def worker(self, random: Random) -> Blow | None:
        """Return a kill of an executor's Python worker; None if none runs."""
        workers = [
            one.pid
            for one in descendants(_records(executors()))
            if "worker_daemon" in _command_line(one.pid)
        ]
        return _one("Python worker", workers, random)

    def driver(self, random: Random) -> Blow | None:
        """Return a kill of the driver's Python or JVM; a driver starts beside the other half."""
        halves = self._halves()
        if len(halves) < 2 or not executors():
            return None
        half = random.choice(("Python", "JVM"))
        text = f"the driver's {half}, process {halves[half]}"
        return Blow(text, [halves[half]], self._start_anew)

    def whole(self, *, new_query: bool) -> Blow | None:
        """Return a kill of driver and executors; a driver starts, with or without checkpoint."""
        halves, running = self._halves(), executors()
        if len(halves) < 2 or not running:
            return None
        how = "without its checkpoint" if new_query else "from its checkpoint"
        pids = [*halves.values(), *running]
        text = f"the application, {len(pids)} processes; goes on {how}"
        return Blow(text, pids, self._start_new_query if new_query else self._start_anew)

    def finish(self) -> None:
        """Let the application end by itself."""
        assert self._running is not None, "it is started"
        running, self._running = self._running, None
        close(running.stdin)
        try:
            running.wait(END_S)
        finally:
            kill(running)

    def _halves(self) -> dict[str, int]:
        """Return the driver's running processes."""
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
    """Return the pids of all executors on the cluster."""
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
    """Return the common part of reasons of one kind."""
    found = _REASON.match(text)
    assert found is not None
    return found.group().strip() or text[:40]
