"""How a run ends for the process that started it: exceptions, and which topics are named."""

from __future__ import annotations

import queue
import subprocess
import sys
import time
from pathlib import Path

import pytest

from raylog.client import ConnectionLost
from raylog.cluster_record import ClusterRecord
from raylog.loadtest import process_supervisor
from raylog.loadtest.faults import FaultFailed, Names, Striker
from raylog.loadtest.jobs import (
    INTERRUPTED,
    Ended,
    Failed,
    Job,
    Order,
    Progress,
    Report,
    Said,
    Stop,
    StrikeDue,
    Struck,
    TopicsMade,
    TopicsRemoved,
)
from raylog.loadtest.process_supervisor import RunFailed, RunInterrupted, RunUnreachable, conduct
from raylog.loadtest.scenario import Fault
from raylog.wire.errors import CoordinatorNotAvailable
from tests.support import load_results

JOB = load_results.job()
MADE = TopicsMade(names=["orders-ab12", "bills-ab12"])
GONE = Failed(message="no broker can be reached", unreachable=True)
FAULT = Fault(kind="roll", at_s=1.0)
EARLY = Failed(message="interrupted before the run began")


class Lead:
    """Gives scripted messages of a lead process. None is its end, KeyboardInterrupt the user's."""

    reports: list[Report | type[KeyboardInterrupt] | None]
    orders: list[Order]

    def __init__(self, job: Job) -> None:
        self.lines = self

    def get(self, timeout: float = 0.0) -> Report | None:
        if not self.reports:
            raise queue.Empty
        what = self.reports.pop(0)
        if what is KeyboardInterrupt:
            raise KeyboardInterrupt
        assert not isinstance(what, type)
        return what

    def empty(self) -> bool:
        return not self.reports

    def tell(self, order: Order) -> None:
        self.orders.append(order)

    def end(self) -> int:
        return -9

    def kill(self) -> None:
        return None


def ended(
    monkeypatch: pytest.MonkeyPatch, *reports: Report | type[KeyboardInterrupt] | None
) -> tuple[BaseException, list[str]]:
    """What a run raises in which this happens, and what a person is told."""
    monkeypatch.setattr(process_supervisor, "_Lead", Lead)
    monkeypatch.setattr(Lead, "reports", list(reports), raising=False)
    monkeypatch.setattr(Lead, "orders", [], raising=False)
    said: list[str] = []

    def show(what: Progress | Said) -> None:
        assert isinstance(what, Said)
        said.append(what.text)

    with pytest.raises((RunFailed, KeyboardInterrupt)) as raised:
        conduct(JOB, None, None, show)
    return raised.value, said


def test_an_interrupt_before_the_run_began(monkeypatch: pytest.MonkeyPatch) -> None:
    failure, said = ended(monkeypatch, MADE, KeyboardInterrupt, TopicsRemoved(), EARLY)
    assert isinstance(failure, RunInterrupted)
    assert Lead.orders == [Stop(why=INTERRUPTED)]
    assert said == []


@pytest.mark.parametrize("end", [KeyboardInterrupt, None])
def test_topics_that_a_run_leaves_are_named(
    monkeypatch: pytest.MonkeyPatch, end: type[KeyboardInterrupt] | None
) -> None:
    failure, said = ended(monkeypatch, MADE, KeyboardInterrupt, end)
    assert isinstance(failure, KeyboardInterrupt if end is not None else RunInterrupted)
    assert said == [
        "The topics of the run may still exist. Delete them with: "
        "raylog topics delete orders-ab12 bills-ab12 --bootstrap kafka:9092"
    ]


def test_topics_that_were_removed_meanwhile_are_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _, said = ended(monkeypatch, MADE, KeyboardInterrupt, KeyboardInterrupt, TopicsRemoved())
    assert said == []


def test_brokers_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    failure, said = ended(monkeypatch, GONE)
    assert isinstance(failure, RunUnreachable)
    assert said == []


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (FaultFailed("no controller is running"), "no controller is running"),
        (CoordinatorNotAvailable(""), "COORDINATOR_NOT_AVAILABLE"),
        (ConnectionLost("closed by its peer"), "ConnectionLost: closed by its peer"),
        (
            subprocess.TimeoutExpired("raylog", 600),
            "TimeoutExpired: Command 'raylog' timed out after 600 seconds",
        ),
        (PermissionError(1, "not permitted"), "PermissionError: [Errno 1] not permitted"),
        (KeyError(0), "KeyError: 0"),
    ],
)
def test_a_fault_that_fails_leaves_the_run_its_result(
    monkeypatch: pytest.MonkeyPatch, failure: Exception, text: str
) -> None:
    def strike(self: Striker, fault: Fault) -> str:
        raise failure

    def tell(self: Lead, order: Order) -> None:
        orders.append(order)
        self.reports.append(Ended(result=result))

    def get(self: Lead, timeout: float = 0.0) -> Report | None:
        time.sleep(0 if self.reports else 0.001)
        return whats_next(self, timeout)

    result, orders, whats_next = load_results.result(20), list[Order](), Lead.get
    monkeypatch.setattr(Striker, "strike", strike)
    monkeypatch.setattr(process_supervisor, "_Lead", Lead)
    monkeypatch.setattr(Lead, "reports", [StrikeDue(fault=FAULT)], raising=False)
    monkeypatch.setattr(Lead, "tell", tell)
    monkeypatch.setattr(Lead, "get", get)
    record = ClusterRecord("id", [0], ["127.0.0.1:9092"], "127.0.0.1:1", None, "secret")
    striker = Striker(record, Path(), JOB.scenario, Names({}, {}))
    assert conduct(JOB, None, striker, lambda _: None) == result
    assert orders == [Struck(text=f"roll failed: {text}", failed=True)]


INTERRUPTED_IMPORT = """
import sys
from raylog.cli import main

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "raylog.cli.app":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
main()
"""


def test_an_interrupt_while_commands_are_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "")
