"""Placeholders in broker settings for the addresses of the node that a process runs on.

| placeholder       | what it stands for                                                |
|-------------------|-------------------------------------------------------------------|
| `{node.host}`     | the address under which Ray reaches the node                      |
| `{external.host}` | the address under which external clients reach it: the first of   |
|                   | the node's label `raylog-external-host`, the environment variable |
|                   | RAYLOG_EXTERNAL_HOST, the output of `external.host.command`       |

They are replaced on the node, each time the process starts.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping

from raylog.actors.places import NodeEntry
from raylog.wire.errors import InvalidConfig

NODE_HOST = "{node.host}"
EXTERNAL_HOST = "{external.host}"
LABEL = "raylog-external-host"
VARIABLE = "RAYLOG_EXTERNAL_HOST"
COMMAND = "external.host.command"
COMMAND_TIMEOUT_S = 10
_HOST = re.compile(r"[0-9a-zA-Z\-%._:]+")


def has_placeholder(host: str) -> bool:
    """Whether a host is a placeholder."""
    return host in (NODE_HOST, EXTERNAL_HOST)


def fill(
    host: str,
    node: NodeEntry,
    command: str | None,
    environment: Mapping[str, str] = os.environ,
) -> str:
    """Replace a placeholder with this node's address. Blocking; raises InvalidConfig if unknown."""
    if host == NODE_HOST:
        return node.address
    if host != EXTERNAL_HOST:
        return host
    for place, found in (
        (f"the label {LABEL} of the Ray node", node.labels.get(LABEL)),
        (f"the environment variable {VARIABLE}", environment.get(VARIABLE)),
    ):
        if found:
            return _checked(found.strip(), place)
    if command is None:
        raise InvalidConfig(
            f"{EXTERNAL_HOST} is not known on the node {node.address}: start Ray there with "
            f"--labels {LABEL}=HOST, or with {VARIABLE}=HOST in its environment, or set {COMMAND}"
        )
    return _checked(_printed(command), f"the output of {COMMAND}")


def _printed(command: str) -> str:
    """Return the output of a shell command."""
    try:
        done = subprocess.run(  # noqa: S603 - the operator's own command
            ("/bin/sh", "-c", command),
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise InvalidConfig(
            f"{COMMAND} has not ended within {COMMAND_TIMEOUT_S} s: {command}"
        ) from late
    if done.returncode != 0:
        raise InvalidConfig(
            f"{COMMAND} failed with exit code {done.returncode}: {command}: {done.stderr.strip()}"
        )
    return done.stdout.strip()


def _checked(host: str, place: str) -> str:
    host = host.removeprefix("[").removesuffix("]")
    if not _HOST.fullmatch(host):
        raise InvalidConfig(f"{place} must be a host name or an IP address, not {host!r}")
    return host
