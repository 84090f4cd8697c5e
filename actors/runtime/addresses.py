"""Link addresses: `unix:NAME@MACHINE` on one machine, `tcp:INSTANCE@HOST:PORT` between machines.

An actor that can be reached both ways has both, separated by a comma. `unix:NAME` alone means this
machine. A machine is one boot of a kernel and one of its network namespaces, because abstract
socket names reach no further. The instance is the actor process that is meant: in a small port
range another process soon takes the port of one that has ended.
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
    """Return an id that no other machine has."""
    if sys.platform != "linux":
        return socket.gethostname()
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot_id}.{os.stat('/proc/self/ns/net').st_ino}"


def unix_address(name: str) -> str:
    """Return the address of a Unix socket on this machine."""
    return f"unix:{name}@{this_machine()}"


def tcp_address(host: str, port: int, instance: str = "") -> str:
    """Return the address of a TCP socket, and of an actor process if only that is meant."""
    return f"tcp:{instance}@{host}:{port}" if instance else f"tcp:{host}:{port}"


def endpoint_of(address: str) -> Endpoint:
    """Return the best endpoint for an address; raises ValueError if there is none from here."""
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
    """Return the actor process that an address names; "" if it names none."""
    _, tcp, place = address.rpartition("tcp:")
    return place.rpartition("@")[0] if tcp else ""
