"""Memory and deaths of a broker's processes, sampled all the time, process by process."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from bench.measure import cpu_by_process, marked_processes
from raylog.actors.runtime.worker_processes import MODULE as HELPER

SETTLED_S = 20.0
SAMPLE_S = 0.25
LOOK_FOR_NEW_S = 5.0
SHOWN = 3
_PROC = Path("/proc")


@dataclass(slots=True)
class Memory:
    """Private memory of one process in bytes: mapped files, which the kernel may drop, not counted.

    `start` is None until the warm-up is over.
    """

    name: str
    start: int | None = None
    peak: int = 0
    last: int = 0
    ended: bool = False
    """Whether the process is gone: another one may have its number by now."""

    @property
    def growth(self) -> int:
        """Of the peak over the start; 0 for a process that came later."""
        return 0 if self.start is None else self.peak - self.start


class Sampler:
    """Watches the processes that carry a mark."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler")
        self._lock = threading.Lock()
        self._watched: set[int] = set()
        self.memories: dict[int, Memory] = {}
        self.samples = 0
        self.died: list[str] = []
        """Processes that were there when `start` was called and are gone; helpers end when idle."""

    def __enter__(self) -> Sampler:
        """Begin to sample."""
        self._find()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._ending.set()
        self._thread.join()

    def start(self) -> None:
        """The warm-up is over: what the processes have now is what they start from."""
        self._find()
        with self._lock:
            for pid, memory in self.memories.items():
                memory.start = memory.peak = memory.last = private_bytes(pid)
            self._watched = {
                pid
                for pid, memory in self.memories.items()
                if memory.start and memory.name != HELPER
            }

    @property
    def growth(self) -> int:
        """The largest of any process."""
        return max((memory.growth for memory in self.memories.values()), default=0)

    def growths(self) -> str:
        """The processes that have grown most, for a line of progress."""
        grown = sorted(self.memories.values(), key=lambda one: -one.growth)[:SHOWN]
        return ", ".join(f"{one.name} {one.growth / 2**20:.0f} MiB" for one in grown)

    @property
    def kept(self) -> int:
        """What is left in the end over the start, of the process that has most of it."""
        memories = self.memories.values()
        return max((one.last - one.start for one in memories if one.start), default=0)

    def settle(self, most: int) -> None:
        """Wait for a while until no process keeps so much: requests may still be at work."""
        until = monotonic() + SETTLED_S
        while self.kept >= most and monotonic() < until and not self._ending.wait(SAMPLE_S):
            pass

    def name(self, names: dict[int, str]) -> None:
        """Say what processes are: `ps` knows them all as Ray's."""
        with self._lock:
            for pid, memory in self.memories.items():
                memory.name = names.get(pid, memory.name)

    def lines(self) -> list[str]:
        """Start, peak and end of each process, in MiB, and its CPU seconds."""
        cpu = cpu_by_process(self._mark)
        return [
            f"{pid:>7} {memory.name:<32} {cpu.get(pid, 0.0):7.1f} s "
            + " / ".join(
                f"{value / 2**20:7.1f}" for value in (memory.start or 0, memory.peak, memory.last)
            )
            for pid, memory in sorted(self.memories.items())
            if memory.start
        ]

    def _run(self) -> None:
        looked = monotonic()
        while not self._ending.wait(SAMPLE_S):
            if monotonic() - looked > LOOK_FOR_NEW_S:
                looked = monotonic()
                self._find()
            with self._lock:
                self._sample()

    def _sample(self) -> None:
        self.samples += 1
        for pid, memory in self.memories.items():
            if memory.ended:
                continue
            now = private_bytes(pid)
            if now:
                memory.last = now
                memory.peak = max(memory.peak, now)
                continue
            memory.ended = True
            if pid in self._watched:
                self.died.append(f"{memory.name} ({pid})")

    def _find(self) -> None:
        found = {pid: _name(pid) for pid in marked_processes(self._mark)}
        with self._lock:
            for pid, name in found.items():
                if pid not in self.memories or self.memories[pid].ended:
                    self.memories[pid] = Memory(name)


def private_bytes(pid: int) -> int:
    """Anonymous memory that is resident; 0 if the process is gone."""
    try:
        status = (_PROC / str(pid) / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    for line in status.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1_024
    return 0


def _name(pid: int) -> str:
    """What `ps` shows: Ray gives its workers the names of their actors."""
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").split()
    except (FileNotFoundError, ProcessLookupError):
        return "gone"
    if HELPER.encode() in words:
        return HELPER
    text = b" ".join(word.rpartition(b"/")[2] for word in words[:2]).decode(errors="replace")
    return text[:24]
