"""Starts one Ray node in the network namespace in which it is run; the record in RUN says which."""

import sys
from pathlib import Path

from raylog.actors.runtime import ray_node


def main(run: str, index: str, join: str, host: str) -> None:
    """Start node `index` at the address `host`; it goes on when this process ends."""
    ray_node.start_node(Path(run), index=int(index), join=join, host=host)


if __name__ == "__main__":
    main(*sys.argv[1:])
