"""The copiers of a copy job as processes: started, killed, started again, ended."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from bench import jars
from tests.cluster.copying_copier import FATAL_EXIT, Job

JAVA = Path(__file__).parent / "java"
HEAP = "96M"
END_S = 90.0
CONFLUENT = "confluent"


class Fleet:
    """Copiers, each of a kind, `confluent` or `java`, and with a transactional id of its own."""

    def __init__(self, job: Job, kinds: list[str], folder: Path) -> None:
        """`job` is that of all; `folder` gets notes and error outputs.

        Raises jars.MissingToolError where there should be Java clients and there is no Java.
        """
        self.ends: Counter[int] = Counter()
        """Exits of copiers that nobody killed, by code."""
        self.failures: list[str] = []
        self.jobs = [
            replace(
                job,
                transactional_id=f"{job.transactional_id}-{number}",
                notes=str(folder / f"notes-{number}.txt"),
            )
            for number in range(len(kinds))
        ]
        self._kinds = kinds
        self._folder = folder
        self._jars = jars.fetch(JAVA) if set(kinds) - {CONFLUENT} else None
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        for number in range(len(self.jobs)):
            self._start(number)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._running.values():
            _kill(process)

    @property
    def notes(self) -> list[Path]:
        """What the copiers have written, of those that have written something."""
        paths = [Path(job.notes) for job in self.jobs]
        return [path for path in paths if path.exists()]

    def _start(self, number: int) -> None:
        job = self.jobs[number] = replace(self.jobs[number], life=self.jobs[number].life + 1)
        with self._errors(number).open("ab") as errors:
            self._running[number] = subprocess.Popen(
                self._command(number, job), stdin=subprocess.PIPE, stderr=errors
            )

    def _command(self, number: int, job: Job) -> list[str]:
        if self._kinds[number] == CONFLUENT:
            return [sys.executable, "-m", "tests.cluster.copying_copier", *job.arguments]
        assert self._jars is not None
        return self._jars.command("Copier", *job.arguments, heap=HEAP)

    def _errors(self, number: int) -> Path:
        return self._folder / f"copier-{number}.log"

    def kill(self, number: int) -> None:
        """End a copier by SIGKILL, and start it again."""
        _kill(self._running[number])
        self._start(number)

    def mend(self) -> None:
        """Start again who has ended by itself; ends but those of fenced producers are failures."""
        for number, process in tuple(self._running.items()):
            code = process.poll()
            if code is not None:
                _close(process.stdin)
                self._note_end(number, code)
                self._start(number)

    def _note_end(self, number: int, code: int) -> None:
        self.ends[code] += 1
        if code != FATAL_EXIT:
            said = self._errors(number).read_text(errors="replace").splitlines()
            self.failures.append(f"copier {number} ended with {code}: {said[-3:]}")

    def finish(self) -> None:
        """Have all of them end by themselves."""
        for process in self._running.values():
            _close(process.stdin)
        for number, process in self._running.items():
            code = process.wait(END_S)
            if code:
                self._note_end(number, code)
        self._running.clear()


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    _close(process.stdin)


def _close(stdin: IO[bytes] | None) -> None:
    assert stdin is not None
    with suppress(BrokenPipeError):
        stdin.close()
