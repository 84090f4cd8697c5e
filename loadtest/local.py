"""What all users of one process share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from raylog.loadtest.clock import Clock
from raylog.loadtest.findings import Findings
from raylog.loadtest.generator import GeneratorWatch
from raylog.loadtest.ledger import Ledger
from raylog.loadtest.pacing import Load
from raylog.loadtest.receiving import Position
from raylog.loadtest.recorder import Recorder
from raylog.loadtest.records import run_number
from raylog.loadtest.results import Generator
from raylog.loadtest.scenario import Scenario

_US_PER_S = 1_000_000
SENDERS_PER_WORKER = 1 << 20
"""A sender's number is its worker's times this, plus its own in that worker."""


class Local:
    """The part of a run that happens in one process.

    The runner sets `clock.offset_us` and `clock_uncertainty_us` before users start, then
    `started_us`, and changes `load` as the shape says. Once a second it calls `generator.sample`,
    and takes what came since from `recorder`, `ledger` and `findings`.
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
        """`run` is a name no other run has; `security`, settings that every client gets."""
        self.scenario = scenario
        self.run = run
        self.run_number = run_number(run)
        self.bootstrap = bootstrap
        self.worker = worker
        self.workers = workers
        self.security = dict(security or {})
        self.load = Load()
        """What is due of the rates of all users."""
        self.clock = Clock()
        self.clock_uncertainty_us = 0
        """The worst of the run."""
        self.recorder = Recorder(self.clock.now_us, self.clock.now_us())
        self.ledger = Ledger()
        self.findings = Findings()
        """Wrong answers that users of this process saw."""
        self.warnings: Counter[str] = Counter()
        """Errors that users of this process have met, by text: each is logged now and then."""
        self.reached: dict[Position, int] = {}
        """By reader and partition, the end of what was read."""
        self.longest_us: dict[str, int] = {}
        """By operation that lasts, the longest that was finished."""
        self.generator = GeneratorWatch(worker)
        self._senders = 0
        self._seats: dict[int, set[int]] = {}

    @property
    def started_us(self) -> int:
        """The run's start, by the run's clock."""
        return self.recorder.started_us

    @started_us.setter
    def started_us(self, started_us: int) -> None:
        self.recorder.started_us = started_us

    def note_uncertainty(self, uncertainty_us: int) -> None:
        """The offset of the clock is known so well."""
        self.clock_uncertainty_us = max(self.clock_uncertainty_us, uncertainty_us)

    @property
    def at_s(self) -> float:
        """Seconds since the run's start; negative before."""
        return (self.clock.now_us() - self.started_us) / _US_PER_S

    def topic(self, name: str) -> str:
        """The name that a topic of the scenario has in this run."""
        return f"{name}-{self.run}"

    def group(self, name: str) -> str:
        """The name that a group of the scenario has in this run."""
        return f"{name}-{self.run}"

    def transactional_id(self, entry: int, seat: int) -> str:
        """That of a user of an entry."""
        return f"{self.run}-{entry}-{seat}"

    def new_sender(self) -> int:
        """A number for a sender that no other has, in any process."""
        number = self.worker * SENDERS_PER_WORKER + self._senders
        self._senders += 1
        return number

    def take_seat(self, entry: int) -> int:
        """Which of its entry's users one is, over all processes, until `leave_seat`.

        Distinct, and below `count`, if each process has its even share of each entry's users:
        worker `w` those numbered `w`, `w + workers`, `w + 2 * workers`...
        """
        taken = self._seats.setdefault(entry, set())
        seat = next(number for number in range(len(taken) + 1) if number not in taken)
        taken.add(seat)
        return seat * self.workers + self.worker

    def leave_seat(self, entry: int, number: int) -> None:
        """A user has stopped; another may take its number."""
        self._seats[entry].discard(number // self.workers)

    def client_settings(self, own: Mapping[str, object]) -> dict[str, object]:
        """Of a client of this run: `own`, and what all clients have."""
        return {"bootstrap.servers": self.bootstrap, **self.security, **own}

    def generator_result(self) -> Generator:
        """How this process was doing so far."""
        return self.generator.result(self.clock.offset_us, self.clock_uncertainty_us)
