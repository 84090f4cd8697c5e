"""franz-go's srfake, a schema registry in Go, as a process of the test."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import queue
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from bench.jars import cache_directory
from tests.worlds.servers.registry import Call

VERSION = "v1.8.0"
_MODULE = "github.com/twmb/franz-go/pkg/sr"
_SOURCE = Path(__file__).parent / "srfake" / "main.go"
_ANSWER_S = 30
_MARK = "/so-far"


class MissingGoError(Exception):
    """Go is not installed, or could not build the module; the message says which."""


@dataclass(slots=True)
class SrFake:
    """A running registry."""

    url: str
    _lines: queue.Queue[str]
    _calls: list[Call] = field(default_factory=list)

    @property
    def calls(self) -> list[Call]:
        """The requests received so far, up to a marker request that this property sends."""
        with contextlib.suppress(HTTPError):
            urlopen(f"{self.url}{_MARK}", timeout=_ANSWER_S).close()
        while (said := json.loads(self._lines.get(timeout=_ANSWER_S)))["uri"] != _MARK:
            self._calls.append(Call.read(said["method"], said["uri"], said["body"]))
        return self._calls


def program() -> Path:
    """Return the program's path; build it on the first call."""
    go = shutil.which("go")
    if go is None:
        raise MissingGoError("Go is needed for franz-go's srfake: go is not on the path")
    text = _SOURCE.read_text()
    digest = hashlib.sha256(f"{VERSION}{text}".encode()).hexdigest()[:16]
    root = cache_directory() / f"srfake-{digest}"
    root.mkdir(parents=True, exist_ok=True)
    built = root / "srfake"
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            (root / "main.go").write_text(text)
            (root / "go.mod").unlink(missing_ok=True)
            _run(root, go, "mod", "init", "raylog/srfake")
            _run(root, go, "get", f"{_MODULE}@{VERSION}")
            _run(root, go, "build", "-o", "making", ".")
            (root / "making").rename(built)
    return built


def _run(root: Path, *command: str) -> None:
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=False, timeout=280
    )
    if done.returncode != 0:
        raise MissingGoError(f"Go could not build srfake: {done.stderr[-500:]}")


@contextmanager
def running(authorization: str | None = None) -> Iterator[SrFake]:
    """Run a registry until the block ends; raise MissingGoError without Go."""
    command = [str(program())]
    if authorization is not None:
        command += ["-authorization", authorization]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdin is not None
    assert process.stdout is not None
    lines: queue.Queue[str] = queue.Queue()
    output = process.stdout

    def read() -> None:
        for line in output:
            lines.put(line)

    reader = threading.Thread(target=read, name="srfake", daemon=True)
    reader.start()
    try:
        yield SrFake(lines.get(timeout=_ANSWER_S).strip(), lines)
    finally:
        process.stdin.close()
        process.wait(_ANSWER_S)
        reader.join(_ANSWER_S)
        output.close()
