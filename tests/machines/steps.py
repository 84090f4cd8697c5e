"""What is done to the machines, in this order; each step leaves the cluster whole."""

from __future__ import annotations

from tests.machines import changes, losses
from tests.machines.scene import Step

LOST_S = 15.0
"""Until all partitions of what was lost are written again."""
MOVED_S = 2.0
"""Where brokers change because somebody says so."""

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
    """Steps by a list of names with commas, in the order of the table; "all" for all of them.

    Raises ValueError for a name that is none.
    """
    if names == "all":
        return list(STEPS)
    wanted = names.split(",")
    unknown = [name for name in wanted if name not in STEPS]
    if unknown:
        raise ValueError(f"no step is called {', '.join(unknown)}; there are {', '.join(STEPS)}")
    return [name for name in STEPS if name in wanted]
