"""Checks that the processes of a run may open as many files as their users need."""

from __future__ import annotations

import math

from raylog.actors.gateway.descriptors import descriptor_budget, open_files_max
from raylog.loadtest.scenario import BadScenario, Scenario

FILES_PER_USER = 4
"""Two for the event loop, and one connection each to a bootstrap server and a broker."""
CONNECTIONS_PER_USER = 2
_FILES_OF_PROCESS = 100
_FILES_PER_CONNECTION = 4
"""The open files that an embedded broker needs to accept a connection (`DescriptorBudget`)."""


def check_open_files(scenario: Scenario, processes: int) -> None:
    """Raise BadScenario if this many processes on this machine cannot have all users."""
    users = _users(scenario)
    needed = math.ceil(users / processes) * FILES_PER_USER + _FILES_OF_PROCESS
    limit = _limit(needed)
    if needed <= limit:
        return
    enough = math.ceil(users * FILES_PER_USER / max(limit - _FILES_OF_PROCESS, 1))
    each = "one process" if processes == 1 else f"{processes} processes"
    raise BadScenario(
        f"{scenario.name}: {users:,} users in {each} need at least {needed:,} open files per "
        f"process ({FILES_PER_USER} per user), but the limit is {limit:,}: raise it (ulimit -n), "
        f"use --processes {enough}, or lower the number of users"
    )


def check_embedded(scenario: Scenario) -> None:
    """Raise BadScenario if an embedded broker cannot accept that many connections."""
    needed = _users(scenario) * CONNECTIONS_PER_USER
    taken = descriptor_budget(_limit(_FILES_PER_CONNECTION * needed), shared=True).connections
    if needed > taken:
        raise BadScenario(
            f"{scenario.name}: {_users(scenario):,} users open at least {needed:,} connections, "
            f"but an embedded broker accepts {taken:,} with the current limit of open files: "
            "raise it (ulimit -n), name a cluster (--bootstrap), or lower the number of users"
        )


def _users(scenario: Scenario) -> int:
    return sum(one.count for one in scenario.users)


def _limit(needed: int) -> int:
    """The limit of this process and its children, raised as far as possible."""
    if open_files_max() < needed:
        from raylog.actors.runtime.ray_node import raise_descriptor_limit  # a slow import

        raise_descriptor_limit()
    return open_files_max()
