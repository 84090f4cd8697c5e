"""Apache Kafka's Java clients next to confluent-kafka's, recorded in the same format.

They run in one process (`java/CheckedClients.java`), whose output is a separate history. Its clock
is that of `time.monotonic_ns`, so that both can be merged.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from bench import jars

SOURCES = Path(__file__).parent / "java"
MAIN = "CheckedClients"
_HEAP = "192M"


class JavaClients:
    """A running process of Java clients."""

    def __init__(self, folder: Path, arguments: Sequence[str]) -> None:
        """`folder` gets the history. Raises jars.MissingToolError without Java."""
        self.path = folder / "history-java.jsonl"
        self._errors = folder / "java.log"
        command = jars.fetch(SOURCES).command(MAIN, *arguments, heap=_HEAP)
        with self.path.open("wb") as history, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=history, stderr=errors
            )

    def finish(self, timeout_s: float) -> list[str]:
        """Stop the clients. Returns their failures."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return [f"Java clients have not ended within {timeout_s:g} s"]
        if code == 0:
            return []
        said = self._errors.read_text(errors="replace").splitlines()
        output = [line for line in said if line.startswith("java-")]
        return output or [f"Java clients ended with {code}: {said[-3:]}"]
