"""Starts one Ray node in the current network namespace, and prints its id."""

import sys
from pathlib import Path

from raylog.actors.runtime import ray_node


def main(run: str, index: str, join: str, host: str) -> None:
    """Start node `index` at the address `host`; it goes on when this process ends."""
    node = ray_node.start_node(Path(run), index=int(index), join=join, host=host)
    sys.stdout.write(node.node_id)


if __name__ == "__main__":
    main(*sys.argv[1:])
