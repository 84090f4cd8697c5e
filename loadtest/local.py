"""The state shared by all users of one process."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from raylog.loadtest.clock import Clock
from raylog.loadtest.findings import Findings
from raylog.loadtest.generator import GeneratorWatch
from raylog.loadtest.ledger import Ledger
from raylog.loadtest.missing_records import Position, RecordRuns
from raylog.loadtest.pacing import Load
from raylog.loadtest.recorder import Recorder
from raylog.loadtest.records import run_number
from raylog.loadtest.results import Generator
from raylog.loadtest.scenario import Scenario

_US_PER_S = 1_000_000
SENDERS_PER_WORKER = 1 << 20
"""A sender's number is its worker's number times this, plus its number in the worker."""


class Local:
    """The part of a run in one process.

    The runner sets `clock.offset_us` and `clock_uncertainty_us` before users start, then
    `started_us`, and changes `load` as the shape says. Once a second it calls `generator.sample`
    and takes what is new from `recorder`, `ledger` and `findings`.
    """

    def __init__(
        self,
        scenario: Scenario,
        run: str,
        bootstrap: str,
        worker: int = 0,
        workers: int = 1,
        security: Mapping[str, object] | None = None,
    ) -> None:
        """`run` is a unique name; `security` has settings for every client."""
        self.scenario = scenario
        self.run = run
        self.run_number = run_number(run)
        self.bootstrap = bootstrap
        self.worker = worker
        self.workers = workers
        self.security = dict(security or {})
        self.load = Load()
        """The current factor of all users' rates."""
        self.clock = Clock()
        self.clock_uncertainty_us = 0
        """The largest uncertainty in the run."""
        self.recorder = Recorder(self.clock.now_us, self.clock.now_us())
        self.ledger = Ledger()
        self.findings = Findings()
        """Wrong answers that users of this process saw."""
        self.warnings: Counter[str] = Counter()
        """By text, errors that users of this process met. Each is logged now and then."""
        self.received: defaultdict[Position, RecordRuns] = defaultdict(RecordRuns)
        """By reader and partition, what was read."""
        self.longest_us: dict[str, int] = {}
        """By lasting operation, the longest completed one."""
        self.generator = GeneratorWatch(worker)
        self._senders = 0
        self._seats: dict[int, set[int]] = {}

    @property
    def started_us(self) -> int:
        """The start of the run, on the run's clock."""
        return self.recorder.started_us

    @started_us.setter
    def started_us(self, started_us: int) -> None:
        self.recorder.started_us = started_us

    def note_uncertainty(self, uncertainty_us: int) -> None:
        """Note the uncertainty of a clock measurement."""
        self.clock_uncertainty_us = max(self.clock_uncertainty_us, uncertainty_us)

    @property
    def at_s(self) -> float:
        """Seconds since the start of the run; negative before it."""
        return (self.clock.now_us() - self.started_us) / _US_PER_S

    def topic(self, name: str) -> str:
        """The name of a scenario's topic in this run."""
        return f"{name}-{self.run}"

    def group(self, name: str) -> str:
        """The name of a scenario's group in this run."""
        return f"{name}-{self.run}"

    def transactional_id(self, entry: int, seat: int) -> str:
        """The transactional id of an entry's user."""
        return f"{self.run}-{entry}-{seat}"

    def new_sender(self) -> int:
        """A number for a sender, unique over all processes."""
        number = self.worker * SENDERS_PER_WORKER + self._senders
        self._senders += 1
        return number

    def take_seat(self, entry: int) -> int:
        """A free user number of an entry, to be returned with `leave_seat`.

        Numbers are distinct over all processes and below `count`, if each process has its even
        share of each entry's users: worker `w` has the numbers `w`, `w + workers`, `w + 2 *
        workers`...
        """
        taken = self._seats.setdefault(entry, set())
        seat = next(number for number in range(len(taken) + 1) if number not in taken)
        taken.add(seat)
        return seat * self.workers + self.worker

    def leave_seat(self, entry: int, number: int) -> None:
        """Return a user number, which another user may get."""
        self._seats[entry].discard(number // self.workers)

    def client_settings(self, own: Mapping[str, object]) -> dict[str, object]:
        """The settings of a client of this run: `own` and those of all clients."""
        return {"bootstrap.servers": self.bootstrap, **self.security, **own}

    def generator_result(self) -> Generator:
        """The state of this process so far."""
        return self.generator.result(self.clock.offset_us, self.clock_uncertainty_us)
