"""A process that works for the one that started it (`worker_processes.py`), and ends with it.

Its standard input is the socket that both share. A request is work to do from now on, or None for
the next step of that work; each gets an answer. Requests are unpickled: only the parent sends them.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import select
import socket
import struct
import sys
import threading
from pathlib import Path

from raylog.actors import log_formatting
from raylog.actors.runtime.base import Work

FRAME = struct.Struct(">Q")
"""Before each request and answer: its length in bytes."""
AUTOGROUP = Path("/proc/self/autogroup")


def main() -> None:
    """Serve the parent. The argument is the niceness."""
    log_formatting.configure("WARNING")
    _set_niceness(int(sys.argv[1]))
    gc.disable()  # the work makes millions of objects, and no cycles
    channel = _channel()
    threading.Thread(target=_end_with, args=(channel,), daemon=True).start()
    _serve(channel)


def _channel() -> socket.socket:
    """The socket to the parent, out of reach of work that reads standard input."""
    channel = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return channel


def _set_niceness(nice: int) -> None:
    """Lower the priority of this process, which leads a session of its own.

    Where Linux schedules by sessions (sched_autogroup), niceness counts within a session only, so
    the session gets it too.
    """
    os.nice(nice)
    with contextlib.suppress(FileNotFoundError, PermissionError):  # no autogroups here
        AUTOGROUP.write_text(str(nice))


def _serve(channel: socket.socket) -> None:
    work: Work | None = None
    reader = channel.makefile("rb")
    while len(head := reader.read(FRAME.size)) == FRAME.size:
        request = pickle.loads(reader.read(FRAME.unpack(head)[0]))  # noqa: S301 - from the parent
        if request is None:
            assert work is not None, "work comes before its steps"
            answer = work.step()
        else:
            work = answer = None  # free the memory of the work before
            work = request
        data = pickle.dumps(answer)
        channel.sendall(FRAME.pack(len(data)) + data)


def _end_with(channel: socket.socket) -> None:
    """Exit when the parent is gone, in the middle of a step too."""
    poll = select.poll()
    poll.register(channel, 0)  # a hang-up is always reported
    poll.poll()
    os._exit(0)


if __name__ == "__main__":
    main()
