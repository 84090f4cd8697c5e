"""A process that does work for another one (`helpers.py`), which starts this module.

It is at the other end of the socket that is its standard input, has a low priority, and ends with
the one that started it. A request is work to do from now on, or None for its next step; either is
answered. Whoever holds the socket started this process: what it sends is unpickled.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import select
import socket
import struct
import threading
from pathlib import Path

from raylog.actors import plain_logs
from raylog.actors.runtime.base import Work

FRAME = struct.Struct(">Q")
"""Before each request and answer: its length in bytes."""
NICE = 5
"""Gets about a third of what others get who want it, too, so that it goes on all the same."""
AUTOGROUP = Path("/proc/self/autogroup")


def main() -> None:
    """Serve until there is nobody to serve."""
    plain_logs.configure("WARNING")
    _give_way()
    gc.disable()  # the work makes millions of objects, and no cycles
    channel = socket.socket(fileno=0)
    threading.Thread(target=_end_with, args=(channel,), daemon=True).start()
    _serve(channel)


def _give_way() -> None:
    """Take the processor last. The process leads a session, so that this tells it from the others.

    Where Linux has a group of tasks for each session (sched_autogroup) a priority counts within it
    only, and what work takes would be taken off the share of the process that it is done for.
    """
    os.nice(NICE)
    with contextlib.suppress(FileNotFoundError, PermissionError):  # there is no such group
        AUTOGROUP.write_text(str(NICE))


def _serve(channel: socket.socket) -> None:
    work: Work | None = None
    reader = channel.makefile("rb")
    while len(head := reader.read(FRAME.size)) == FRAME.size:
        request = pickle.loads(reader.read(FRAME.unpack(head)[0]))  # noqa: S301 - from who started us
        if request is None:
            assert work is not None, "steps are of some work"
            answer = work.step()
        else:
            work = answer = None  # memory of the work before
            work = request
        data = pickle.dumps(answer)
        channel.sendall(FRAME.pack(len(data)) + data)


def _end_with(channel: socket.socket) -> None:
    """End in the middle of a step when the other end is gone: nobody is interested any more."""
    poll = select.poll()
    poll.register(channel, 0)  # the end is told of unasked
    poll.poll()
    os._exit(0)


if __name__ == "__main__":
    main()
