"""The client processes of `client_kills`: started, killed, stopped, replaced, ended."""

from __future__ import annotations

import heapq
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

from tests.checker.journal import SUFFIX, Journal
from tests.cluster.client_kills_client import FENCED_EXIT, Life
from tests.cluster.client_kills_teams import Team
from tests.support.ray_clusters import LOOK_S, wait_until

END_S = 90.0
"""For a client that was told to end."""
AWAY_S = (0.0, 6.0)
"""From a kill to the successor's start."""
PAUSE_S = (7.0, 12.0)
"""Longer than a session."""
OVERLAP_S = 5.0
"""A client that was stopped and replaced works beside its successor for so long."""
GONE_S = (1.0, 6.0)
"""From an orderly end to the next start."""
STAYS_S = (8.0, 20.0)
"""For a member more."""
SAID_LINES = 5


@dataclass(slots=True)
class Running:
    """One process."""

    name: str
    process: subprocess.Popen[bytes]
    errors: Path
    asked_to_end_at: float | None = None
    """When it was told to end."""
    is_stopped: bool = False

    def tell(self) -> None:
        """Have it end."""
        if self.asked_to_end_at is None:
            self.asked_to_end_at = time.monotonic()
            assert self.process.stdin is not None
            with suppress(BrokenPipeError):
                self.process.stdin.close()

    def stop(self) -> None:
        """SIGSTOP."""
        self.is_stopped = True
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self.is_stopped = False
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def last_words(self) -> str:
        """The end of what it wrote to its log."""
        lines = self.errors.read_text(errors="replace").splitlines()
        return "\n".join(lines[-SAID_LINES:])


@dataclass(slots=True)
class Slot:
    """One member of a team, over all its restarts."""

    team: Team
    number: int
    lives: int = 0
    running: Running | None = None
    is_busy: bool = False
    """Something is being done to it."""

    @property
    def name(self) -> str:
        """Of the slot."""
        return f"{self.team.name}-{self.number}"

    @property
    def is_spare(self) -> bool:
        """Whether it only comes and goes."""
        return self.number >= self.team.members


@dataclass(frozen=True, slots=True)
class Place:
    """The environment that clients work in."""

    bootstrap: str
    folder: Path
    topic: str
    partitions: int
    records_per_s: float
    """Of each producer."""


@dataclass(slots=True)
class Fleet:
    """All clients."""

    place: Place
    teams: list[Team]
    random: Random
    slots: list[Slot] = field(init=False)
    faults: Counter[str] = field(default_factory=Counter)
    fenced: int = 0
    """Clients that ended because another one had their id."""
    failures: list[str] = field(default_factory=list)
    _leaving: list[Running] = field(default_factory=list)
    _journal: Journal = field(init=False)
    """Of what was done to clients, `faults.log`."""
    _due: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _numbers: count[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self._journal = Journal(self.place.folder / "faults.log")
        self.slots = [
            Slot(team, number) for team in self.teams for number in range(team.members + team.spare)
        ]

    def __enter__(self) -> Self:
        for slot in self.slots:
            if not slot.is_spare:
                self._start(slot)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for running in self.all_running:
            running.kill()

    @property
    def all_running(self) -> list[Running]:
        """All processes that have not ended, as far as known."""
        return [slot.running for slot in self.slots if slot.running] + self._leaving

    def journals(self, team: Team) -> list[Path]:
        """Of all lives of a team's members."""
        slots = [slot for slot in self.slots if slot.team is team]
        found = [
            self.place.folder / f"{slot.name}.{life}{SUFFIX}"
            for slot in slots
            for life in range(1, slot.lives + 1)
        ]
        return [path for path in found if path.exists()]

    # -- faults --------------------------------------------------------------------------------

    def hurt(self, kind: str) -> None:
        """Do something to a client drawn at random."""
        spare = kind == "join"
        slots = [
            slot
            for slot in self.slots
            if not slot.is_busy and (slot.running is None) is spare and slot.is_spare >= spare
        ]
        if not slots:
            return  # something is being done to everybody
        slot = self.random.choice(slots)
        self.faults[kind] += 1
        assert slot.running is not None or spare, "it is one that runs"
        self._journal.write(kind, slot.running.name if slot.running else slot.name)
        FAULTS[kind](self, slot)

    def kill(self, slot: Slot) -> None:
        """SIGKILL; the next life begins soon, perhaps at once."""
        assert slot.running is not None
        slot.running.kill()
        slot.running = None
        slot.is_busy = True
        self._later(AWAY_S, lambda: self._start(slot))

    def pause(self, slot: Slot) -> None:
        """SIGSTOP for longer than its session."""
        running = slot.running
        assert running is not None
        running.stop()
        slot.is_busy = True

        def go_on() -> None:
            running.go_on()
            slot.is_busy = False

        self._later(PAUSE_S, go_on)

    def replace(self, slot: Slot) -> None:
        """SIGSTOP, and another in its place at once, with the same ids; then both go on."""
        running = slot.running
        assert running is not None
        running.stop()
        self._leaving.append(running)
        self._start(slot)
        slot.is_busy = True

        def go_on() -> None:
            running.go_on()
            slot.is_busy = False
            self._later((OVERLAP_S, OVERLAP_S), running.tell)

        self._later(PAUSE_S, go_on)

    def leave(self, slot: Slot) -> None:
        """An orderly end, and another start."""
        self._let_go(slot)
        slot.is_busy = True
        self._later(GONE_S, lambda: self._start(slot))

    def join(self, slot: Slot) -> None:
        """A member more, for a while."""
        self._start(slot)
        slot.is_busy = True

        def leave() -> None:
            self._let_go(slot)
            slot.is_busy = False

        self._later(STAYS_S, leave)

    # -- time ----------------------------------------------------------------------------------

    def look(self) -> None:
        """Do what is due, and look after those that have ended."""
        while self._due and self._due[0][0] <= time.monotonic():
            heapq.heappop(self._due)[2]()
        for slot in self.slots:
            running = slot.running
            if running is not None and running.process.poll() is not None:
                self._ended(running)
                self._start(slot)
        for running in list(self._leaving):
            if running.process.poll() is not None:
                self._leaving.remove(running)
                self._ended(running)
            elif (
                running.asked_to_end_at is not None
                and time.monotonic() - running.asked_to_end_at > END_S
            ):
                self._leaving.remove(running)
                running.kill()
                text = f"{running.name} did not end within {END_S:g} s: {running.last_words()}"
                self.failures.append(text)

    def calm(self) -> None:
        """Undo all faults: whoever shall run runs."""
        while self._due:
            heapq.heappop(self._due)[2]()
            self.look()
        self._due.clear()
        for running in self._leaving:
            running.tell()
        for slot in self.slots:
            assert slot.running is None or not slot.running.is_stopped, "all went on"

    def end(self, is_meant: Callable[[Slot], bool]) -> None:
        """Have some end in order, and wait for it."""
        for slot in self.slots:
            if slot.running is not None and is_meant(slot):
                self._let_go(slot)

        def ended() -> bool:
            self.look()
            return not self._leaving

        wait_until(ended, "clients to end", END_S + 100 * LOOK_S)

    # -- inside --------------------------------------------------------------------------------

    def _later(self, within_s: tuple[float, float], action: Callable[[], None]) -> None:
        at = time.monotonic() + self.random.uniform(*within_s)
        heapq.heappush(self._due, (at, next(self._numbers), action))

    def _start(self, slot: Slot) -> None:
        slot.lives += 1
        slot.is_busy = False
        life = self._life(slot)
        errors = self.place.folder / f"{slot.name}.{slot.lives}.log"
        command = [sys.executable, "-m", "tests.cluster.client_kills_client", life.to_json()]
        with errors.open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                # Linux divides the processor's time among sessions first: all of one would starve.
                start_new_session=True,
            )
        slot.running = Running(life.process, process, errors)

    def _life(self, slot: Slot) -> Life:
        team, place = slot.team, self.place
        process = f"{slot.name}.{slot.lives}"
        return Life(
            team.role,
            process,
            str(place.folder / f"{process}{SUFFIX}"),
            place.bootstrap,
            place.topic,
            place.partitions,
            group=team.name,
            sink=team.sink,
            transactional_id=slot.name,
            commit=team.commit,
            records_per_s=place.records_per_s,
            settings={
                **team.settings,
                **({"group_instance_id": slot.name} if team.is_static else {}),
            },
        )

    def _let_go(self, slot: Slot) -> None:
        assert slot.running is not None
        slot.running.tell()
        self._leaving.append(slot.running)
        slot.running = None

    def _ended(self, running: Running) -> None:
        code = running.process.returncode
        self._journal.write("ended", running.name, code)
        if code == FENCED_EXIT:
            self.fenced += 1
        elif code or running.asked_to_end_at is None:
            self.failures.append(f"{running.name} ended with {code}: {running.last_words()}")


FAULTS: dict[str, Callable[[Fleet, Slot], None]] = {
    "kill": Fleet.kill,
    "pause": Fleet.pause,
    "replace": Fleet.replace,
    "leave": Fleet.leave,
    "join": Fleet.join,
}
