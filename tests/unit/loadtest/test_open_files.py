"""More users than a process can have are refused before the run."""

from __future__ import annotations

import resource

import pytest

from raylog.loadtest.open_files import check_embedded, check_open_files
from raylog.loadtest.scenario import BadScenario
from raylog.loadtest.shipped import found


@pytest.fixture(autouse=True)
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that lets a process have 1,024 open files."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))


def test_users_that_fit_are_let_through() -> None:
    scenario = found("steady", changes=["users.0.count=229"])
    check_open_files(scenario, 1)
    check_open_files(found("steady", changes=["users.0.count=460"]), 2)


def test_too_many_users_for_the_processes() -> None:
    scenario = found("steady", changes=["users.0.count=1000"])
    with pytest.raises(BadScenario) as refused:
        check_open_files(scenario, 2)
    assert str(refused.value) == (
        "steady: 1,002 users in 2 processes need at least 2,104 open files per process (4 per "
        "user), but the limit is 1,024: raise it (ulimit -n), use --processes 5, or lower the "
        "number of users"
    )
    check_open_files(scenario, 5)


def test_too_many_users_for_an_embedded_broker() -> None:
    check_embedded(found("steady", changes=["users.0.count=100"]))
    with pytest.raises(BadScenario, match="202 users open at least 404 connections"):
        check_embedded(found("steady", changes=["users.0.count=200"]))
