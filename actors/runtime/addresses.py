"""Link addresses: `unix:NAME@MACHINE` on the same machine, `tcp:INSTANCE@HOST:PORT` from all.

An actor that can be reached both ways has both, with a comma between. `unix:NAME` alone means this
machine. A machine is one boot of a kernel and one network namespace of it: abstract socket names
reach no further. The instance is the actor process that is meant: where ports are few, another one
soon has the port of a process that ended.
"""

from __future__ import annotations

import functools
import os
import socket
import sys
from pathlib import Path

Endpoint = str | tuple[str, int]
"""The abstract name of a Unix socket, with its leading zero byte, or host and port."""


@functools.cache
def this_machine() -> str:
    """What tells this machine from all others."""
    if sys.platform != "linux":
        return socket.gethostname()
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot_id}.{os.stat('/proc/self/ns/net').st_ino}"


def unix_address(name: str) -> str:
    """The address of a Unix socket here."""
    return f"unix:{name}@{this_machine()}"


def tcp_address(host: str, port: int, instance: str = "") -> str:
    """The address of a TCP socket, and of the actor process there, if only that is meant."""
    return f"tcp:{instance}@{host}:{port}" if instance else f"tcp:{host}:{port}"


def endpoint_of(address: str) -> Endpoint:
    """The nearest way to an address; raises ValueError when there is none from here."""
    for way in address.split(","):
        scheme, _, place = way.partition(":")
        if scheme == "unix":
            name, _, machine = place.partition("@")
            if machine in ("", this_machine()):
                return "\0" + name
        elif scheme == "tcp":
            host, _, port = place.rpartition("@")[2].rpartition(":")
            return host, int(port)
        else:
            raise ValueError(f"a link address of unknown kind: {address}")
    raise ValueError(f"a link address of another machine: {address}")


def instance_of(address: str) -> str:
    """The actor process that an address means, on whatever way; "" if it does not say."""
    _, tcp, place = address.rpartition("tcp:")
    return place.rpartition("@")[0] if tcp else ""
