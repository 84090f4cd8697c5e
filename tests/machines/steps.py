"""The steps in their order. Each leaves the cluster intact."""

from __future__ import annotations

from tests.machines import changes, losses
from tests.machines.step_run import Step

LOST_S = 15.0
"""The limit until all partitions are written again after a loss."""
MOVED_S = 2.0
"""The limit if brokers change on request."""

STEPS = {
    "up": Step(changes.up),
    "brokers": Step(changes.brokers),
    "pipeline": Step(changes.pipeline),
    "machine-away": Step(losses.machine_away, LOST_S),
    "machine-replaced": Step(losses.machine_replaced, LOST_S),
    "machine-cut": Step(losses.machine_cut, LOST_S),
    "head-away": Step(losses.head_away, LOST_S),
    "head-lost": Step(losses.head_lost),
    "add": Step(changes.add, MOVED_S),
    "rebalance": Step(changes.rebalance, MOVED_S),
    "drain": Step(changes.drain, MOVED_S),
    "roll": Step(changes.roll, MOVED_S),
    "machine-serviced": Step(changes.serviced, MOVED_S),
    "changed-file": Step(changes.changed_file),
    "down": Step(changes.down, ends_brokers=True),
    "up-again": Step(changes.up_again),
}
BARE = "up,machine-away,head-away"
"""Ray alone, without brokers."""


def chosen(names: str) -> list[str]:
    """Parse a comma-separated list of steps, in the order of the table; "all" for all of them.

    Raises ValueError for an unknown name.
    """
    if names == "all":
        return list(STEPS)
    wanted = names.split(",")
    unknown = [name for name in wanted if name not in STEPS]
    if unknown:
        raise ValueError(f"no step is called {', '.join(unknown)}; there are {', '.join(STEPS)}")
    return [name for name in STEPS if name in wanted]
