"""A process that started with a lower priority than its parent takes its parent's."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_CHILD = """
import os, threading
from raylog.actors.runtime.processes import be_as_urgent_as_parent

os.nice(3)
before, go_on, seen = os.nice(0), threading.Event(), []

def look():
    go_on.wait()
    seen.append(os.getpriority(os.PRIO_PROCESS, 0))

other = threading.Thread(target=look)
other.start()
done = be_as_urgent_as_parent()
go_on.set()
other.join()
print(done, before, os.getpriority(os.PRIO_PROCESS, 0), *seen)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may raise a priority")
def test_all_threads_take_the_niceness_of_the_parent() -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    if own > 15:
        pytest.skip(f"niceness {own} cannot be raised far enough to be seen")
    output = subprocess.run(
        [sys.executable, "-c", _CHILD], capture_output=True, text=True, check=True
    ).stdout.split()
    assert output == ["True", str(own + 3), str(own), str(own)]
