"""The copiers of a copy job as processes: started, killed, restarted, ended."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

from bench import jars
from tests.copying.copier import FATAL_EXIT, Job
from tests.support.working import Until, close, kill

JAVA = Path(__file__).parent / "java"
HEAP = "96M"
END_S = 90.0
CONFLUENT = "confluent"


class Fleet(Until):
    """Copiers, each of a kind, `confluent` or `java`, and with a transactional id of its own."""

    def __init__(self, job: Job, kinds: list[str], folder: Path) -> None:
        """Prepare copiers of `job`; `folder` gets their notes and error output.

        Raise jars.MissingToolError if `kinds` has Java clients and Java is missing.
        """
        self.ends: Counter[int] = Counter()
        """Exit codes of copiers that were not killed, with counts."""
        self.failures: list[str] = []
        self.jobs = [
            replace(
                job,
                transactional_id=f"{job.transactional_id}-{number}",
                notes=str(folder / f"notes-{number}.txt"),
            )
            for number in range(len(kinds))
        ]
        self.kinds = kinds
        self._folder = folder
        self._jars = jars.fetch(JAVA) if set(kinds) - {CONFLUENT} else None
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def begin(self) -> None:
        """Start all copiers."""
        for number in range(len(self.jobs)):
            self._start(number)

    def end(self) -> None:
        """Kill the copiers that still run."""
        for process in self._running.values():
            kill(process)

    @property
    def notes(self) -> list[Path]:
        """The files with the copiers' notes, as far as they exist."""
        paths = [Path(job.notes) for job in self.jobs]
        return [path for path in paths if path.exists()]

    def _start(self, number: int) -> None:
        job = self.jobs[number] = replace(self.jobs[number], life=self.jobs[number].life + 1)
        with self._errors(number).open("ab") as errors:
            self._running[number] = subprocess.Popen(
                self._command(number, job), stdin=subprocess.PIPE, stderr=errors
            )

    def _command(self, number: int, job: Job) -> list[str]:
        if self.kinds[number] == CONFLUENT:
            return [sys.executable, "-m", "tests.copying.copier", *job.arguments]
        assert self._jars is not None
        return self._jars.command("Copier", *job.arguments, heap=HEAP)

    def _errors(self, number: int) -> Path:
        return self._folder / f"copier-{number}.log"

    def kill(self, number: int) -> None:
        """Kill a copier with SIGKILL and restart it."""
        kill(self._running[number])
        self._start(number)

    def mend(self) -> None:
        """Restart copiers that ended; record a failure unless the producer was fenced."""
        for number, process in tuple(self._running.items()):
            code = process.poll()
            if code is not None:
                close(process.stdin)
                self._note_end(number, code)
                self._start(number)

    def _note_end(self, number: int, code: int) -> None:
        self.ends[code] += 1
        if code != FATAL_EXIT:
            said = self._errors(number).read_text(errors="replace").splitlines()
            self.failures.append(f"copier {number} ended with {code}: {said[-3:]}")

    def finish(self) -> None:
        """Let all copiers end by themselves."""
        for process in self._running.values():
            close(process.stdin)
        for number, process in self._running.items():
            code = process.wait(END_S)
            if code:
                self._note_end(number, code)
        self._running.clear()
