"""Whether the processes of a run may have as many open files as its users need."""

from __future__ import annotations

import math

from raylog.actors.gateway.descriptors import descriptor_budget, open_files_max
from raylog.loadtest.scenario import BadScenario, Scenario

FILES_PER_USER = 4
"""Two of its event loop, and a connection each to a bootstrap server and a broker."""
CONNECTIONS_PER_USER = 2
_FILES_OF_PROCESS = 100
_FILES_PER_CONNECTION = 4
"""So many open files let an embedded broker take a connection, at least: see `DescriptorBudget`."""


def check_open_files(scenario: Scenario, processes: int) -> None:
    """Raise BadScenario if so many processes of this machine cannot have all users."""
    users = _users(scenario)
    needed = math.ceil(users / processes) * FILES_PER_USER + _FILES_OF_PROCESS
    limit = _limit(needed)
    if needed <= limit:
        return
    enough = math.ceil(users * FILES_PER_USER / max(limit - _FILES_OF_PROCESS, 1))
    each = "one process" if processes == 1 else f"{processes} processes"
    raise BadScenario(
        f"{scenario.name}: {users:,} users in {each} need at least {needed:,} open files a process "
        f"({FILES_PER_USER} for each user), and {limit:,} are allowed: raise that (ulimit -n), use "
        f"--processes {enough}, or lower the count of users"
    )


def check_embedded(scenario: Scenario) -> None:
    """Raise BadScenario if an embedded broker does not take so many connections."""
    needed = _users(scenario) * CONNECTIONS_PER_USER
    taken = descriptor_budget(_limit(_FILES_PER_CONNECTION * needed), shared=True).connections
    if needed > taken:
        raise BadScenario(
            f"{scenario.name}: {_users(scenario):,} users make at least {needed:,} connections, "
            f"and an embedded broker takes {taken:,} with the present limit of open files: raise "
            "that (ulimit -n), name a cluster (--bootstrap), or lower the count of users"
        )


def _users(scenario: Scenario) -> int:
    return sum(one.count for one in scenario.users)


def _limit(needed: int) -> int:
    """What this process and its children may have, raised as far as the system lets us."""
    if open_files_max() < needed:
        from raylog.actors.runtime.ray_node import raise_descriptor_limit  # imports much

        raise_descriptor_limit()
    return open_files_max()
