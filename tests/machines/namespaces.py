"""Namespaces that contain a program and all its machines, and end with it.

`run_in_namespaces` runs the program again as the first process of a PID namespace. When that
process ends in any way, the kernel ends all others in the namespace, and with them networks and
mounts. Only a folder is left, which the process outside removes.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

TOOLS = {
    "ip": "iproute2",
    "nft": "nftables",
    "redis-server": "redis-server",
    "redis-cli": "redis-tools",
    "rsync": "rsync",
    "setpriv": "util-linux",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "sshd": "openssh-server",
    "unshare": "util-linux",
}
"""The required tools, and their Debian packages."""
NAMESPACES = ("unshare", "--net", "--mount", "--pid", "--ipc", "--uts", "--propagation", "private")
_FOLDER = "RAYLOG_MACHINES_FOLDER"
_END_S = 30.0
_SYSTEM_PATH = "/usr/sbin:/sbin"


class NoMachinesError(Exception):
    """Machines cannot be created here. The text says why, and what to do."""


def what_is_missing(user_id: int, find: Callable[[str], str | None]) -> str | None:
    """Why machines cannot be created, or None. `find` returns the path of a tool."""
    if user_id != 0:
        return (
            f"machines are made of namespaces and mounts: run this as root, not as user {user_id}"
        )
    missing = [tool for tool in TOOLS if find(tool) is None]
    if missing:
        packages = " ".join(sorted({TOOLS[tool] for tool in missing}))
        return f"not found: {', '.join(missing)}. Install them: apt-get install {packages}"
    return None


def find_tool(name: str) -> str | None:
    """The path of a tool, including those in sbin directories."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{_SYSTEM_PATH}")


def machines_folder() -> Path | None:
    """The folder for machines; None outside of the namespaces."""
    return Path(os.environ[_FOLDER]) if _FOLDER in os.environ else None


def run_in_namespaces() -> int:
    """Run this program in new namespaces. Returns its exit code. Raises NoMachinesError."""
    if problem := what_is_missing(os.getuid(), find_tool):
        raise NoMachinesError(problem)
    os.environ["PATH"] += f":{_SYSTEM_PATH}"
    tried = subprocess.run([*NAMESPACES, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        raise NoMachinesError(f"namespaces are not permitted: {tried.stderr.strip()}")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="raylog-machines-", dir="/var/tmp") as folder:
        program = ["--mount-proc", sys.executable, *sys.orig_argv[1:]]
        holder = start_namespaces(program, os.environ | {_FOLDER: folder})
        try:
            return holder.wait()
        except KeyboardInterrupt:
            return 128 + signal.SIGINT
        finally:
            end_namespaces(holder)


def start_namespaces(
    command: Sequence[str], environment: Mapping[str, str], network: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    """Start a command as the first process of new namespaces, which end with this process.

    `network` is a command prefix to run in an existing network. Without it a new one is created.
    """
    kept = [one for one in NAMESPACES if not network or one != "--net"]
    return subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *network, *kept, "--kill-child", *command],
        env=dict(environment),
    )


def end_namespaces(holder: subprocess.Popen[bytes]) -> None:
    """Kill the process of `start_namespaces` and all others in its namespaces. Waits for them."""
    inner = psutil.Process(holder.pid).children() if holder.poll() is None else []
    handles = [os.pidfd_open(process.pid) for process in inner]
    try:
        holder.kill()
        holder.wait()
        for handle in handles:
            ended = select.poll()
            ended.register(handle, select.POLLIN)
            if not ended.poll(_END_S * 1000):
                raise TimeoutError(f"processes of a namespace have not ended within {_END_S:g} s")
    finally:
        for handle in handles:
            os.close(handle)
