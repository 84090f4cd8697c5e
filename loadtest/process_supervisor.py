"""Makes a run for the command: starts its processes, watches them, and gets the result."""

from __future__ import annotations

import contextlib
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from pydantic import ValidationError

from raylog.client.producer.reports import describe
from raylog.loadtest import topics
from raylog.loadtest.faults import FaultFailed, Striker
from raylog.loadtest.jobs import (
    INTERRUPTED,
    BreakOff,
    Ended,
    Failed,
    Job,
    Listening,
    Order,
    Progress,
    Report,
    Said,
    Stop,
    StrikeDue,
    Struck,
    TopicsMade,
    TopicsRemoved,
    WorkerJob,
    report_adapter,
)
from raylog.loadtest.results import Result
from raylog.loadtest.scenario import Fault
from raylog.loadtest.workers import Workers, end, ended_by, forget, launched

LOOK_S = 0.2
INTERRUPTED_S = 15.0
"""How long an interrupted run may take for its result."""
_LINE_SHOWN = 200
"""How many bytes to show of a line that is no message."""
Shown = Progress | Said


class RunFailed(Exception):
    """A run has no result. The message gives the reason."""


class RunUnreachable(RunFailed):
    """No broker was reachable."""


class RunInterrupted(RunFailed):
    """A run was interrupted and has no result."""


@dataclass(slots=True)
class _Faults:
    """Carries out faults in a thread, one after another."""

    striker: Striker | None
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "faults"))
    _waiting: list[Future[Struck]] = field(default_factory=list)

    def begin(self, fault: Fault) -> None:
        self._waiting.append(self._pool.submit(self._strike, fault))

    def _strike(self, fault: Fault) -> Struck:
        assert self.striker is not None, "a scenario with faults has who does them"
        try:
            text, failed = self.striker.strike(fault), False
        except FaultFailed as failure:
            text, failed = f"{fault.kind} failed: {failure}", True
        except Exception as failure:  # noqa: BLE001 - of Ray, too; the run shall keep its result
            text, failed = f"{fault.kind} failed: {describe(failure)}", True
        return Struck(text=text, failed=failed)

    def done(self) -> Iterator[Struck]:
        """The faults that ended since the last call. Raises their exceptions."""
        while self._waiting and self._waiting[0].done():
            yield self._waiting.pop(0).result()

    def hurry(self) -> None:
        """End a fault that lasts: resume a paused broker."""
        if self.striker is not None:
            self.striker.end()

    def end(self) -> None:
        """Wait for the current fault and drop the others."""
        self.hurry()
        self._pool.shutdown(cancel_futures=True)


class _Lead:
    """The leading process and its pipes."""

    def __init__(self, job: Job) -> None:
        self._process = launched(job.model_dump_json(), stdout=subprocess.PIPE)
        self.lines: queue.Queue[Report | None] = queue.Queue()
        """Its messages; None at its end."""
        self._reader = threading.Thread(target=self._read, name="run", daemon=True)
        self._reader.start()

    def tell(self, order: Order) -> None:
        """Send it an order. A process that has ended is ignored."""
        assert self._process.stdin is not None, "it is a pipe"
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(order.model_dump_json().encode() + b"\n")
            self._process.stdin.flush()

    def end(self) -> int:
        """End it. Returns its exit code."""
        end(self._process)
        self._reader.join()
        forget(self._process)
        return self._process.returncode

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()

    def _read(self) -> None:
        assert self._process.stdout is not None, "it is a pipe"
        try:
            for line in self._process.stdout:
                if line.endswith(b"\n"):  # a process that ends may write a partial line
                    self.lines.put(_message(line))
        finally:
            self.lines.put(None)


def _message(line: bytes) -> Report:
    try:
        return report_adapter.validate_json(line)
    except ValidationError:
        return Failed(
            message="the process that leads the run: expected a message, found "
            f"{line[:_LINE_SHOWN]!r}"
        )


def conduct(
    job: Job, workers: Workers | None, striker: Striker | None, show: Callable[[Shown], None]
) -> Result:
    """Make a run. Raises RunFailed.

    Ctrl-C and SIGTERM end the run early, and its result says so. A second signal raises. Call this
    in the main thread.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # Ray has its own handler
    faults = _Faults(striker)
    lead = _Lead(job)
    conductor = _Conductor(job, lead, workers, faults, show)
    try:
        return conductor.result()
    except BaseException:
        lead.kill()
        lead.end()
        conductor.name_topics_left()
        raise
    finally:
        faults.end()
        lead.end()
        if workers is not None:
            workers.end()
        if before is not None:
            signal.signal(signal.SIGTERM, before)


@dataclass(slots=True)
class _Conductor:
    job: Job
    lead: _Lead
    workers: Workers | None
    faults: _Faults
    show: Callable[[Shown], None]
    _interrupted_s: float | None = None
    _is_broken: bool = False
    _has_workers: bool = False
    _topics: list[str] = field(default_factory=list)
    """Topics that the run has created and not removed."""

    def result(self) -> Result:
        while True:
            try:
                found = self._next()
            except KeyboardInterrupt:
                if self._interrupted_s is not None:
                    raise
                self._interrupted_s = time.monotonic()
                self.faults.hurry()
                self.lead.tell(Stop(why=INTERRUPTED))
                continue
            if found is not None:
                return found

    def name_topics_left(self) -> None:
        """Report the topics left by a leading process that ended without a result."""
        while not self.lead.lines.empty():
            self._note_topics(self.lead.lines.get())
        if self._topics:
            self.show(Said(text=topics.may_be_left(self._topics, self.job.bootstrap)))

    def _note_topics(self, what: Report | None) -> None:
        match what:
            case TopicsMade(names=names):
                self._topics = names
            case TopicsRemoved():
                self._topics = []

    def _next(self) -> Result | None:
        self._look_around()
        try:
            what = self.lead.lines.get(timeout=LOOK_S)
        except queue.Empty:
            return None
        self._note_topics(what)
        match what:
            case None:
                raise self._failed(f"the process that leads the run {ended_by(self.lead.end())}")
            case Listening(port=port):
                self._start_workers(port)
            case StrikeDue(fault=fault):
                self.faults.begin(fault)
            case Failed(message=message, unreachable=unreachable):
                raise self._failed(message, unreachable=unreachable)
            case Ended(result=result):
                return result
            case Progress() | Said():
                self.show(what)
        return None

    def _failed(self, message: str, *, unreachable: bool = False) -> RunFailed:
        if self._interrupted_s is not None:
            return RunInterrupted(message)
        return RunUnreachable(message) if unreachable else RunFailed(message)

    def _look_around(self) -> None:
        for struck in self.faults.done():
            self.lead.tell(struck)
        lost = self.workers.lost() if self.workers is not None and self._has_workers else None
        if lost is not None and not self._is_broken:
            self._is_broken = True
            self.lead.tell(BreakOff(why=lost))
        began_s = self._interrupted_s
        if began_s is not None and time.monotonic() > began_s + INTERRUPTED_S:
            raise self._failed(f"interrupted, and no result came within {INTERRUPTED_S:g} s")

    def _start_workers(self, port: int) -> None:
        assert self.workers is not None, "only a run with workers listens"
        self.workers.start(WorkerJob(scenario=self.job.scenario, host=self.workers.bind, port=port))
        self._has_workers = True
