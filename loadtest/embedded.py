"""A broker for runs without a cluster: `python -m raylog.loadtest.embedded`.

It runs in its own process, prints its bootstrap servers, and ends with its standard input.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from raylog.loadtest.workers import end, forget


@contextmanager
def embedded_broker() -> Iterator[str]:
    """Run an embedded broker and yield its bootstrap servers.

    Raises OSError if it does not start.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "raylog.loadtest.embedded"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None, "it is a pipe"
        bootstrap = process.stdout.readline().decode().strip()
        if not bootstrap:
            raise OSError("the embedded broker did not start; see its output above")
        yield bootstrap
    finally:
        end(process)
        forget(process)


def main() -> None:
    """Run the broker's process."""
    from raylog.testing import EmbeddedBroker

    with EmbeddedBroker(settings={"health.listener": "127.0.0.1:0"}) as broker:
        sys.stdout.write(f"{broker.bootstrap}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
