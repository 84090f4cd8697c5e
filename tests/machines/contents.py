"""What is on the disk of a new machine, and the cluster file for machines: texts, no I/O."""

from __future__ import annotations

import copy
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

USER = "raylog"
"""Of `deploy/local.yaml`."""
USER_ID = 47_001
HOME = f"/home/{USER}"
STATE = "/var/lib/raylog"
"""Of `deploy/node.sh`."""
WHEEL = "raylog-0-py3-none-any.whl"
SSHD = """\
HostKey /etc/ssh/machine_key
PasswordAuthentication no
UsePAM no
X11Forwarding no
MaxStartups 100
MaxSessions 100
Subsystem sftp internal-sftp
LogLevel ERROR
"""


def with_user(users: str) -> str:
    """The text of /etc/passwd with our user; one of the same name makes way."""
    return _with_line(users, f"{USER}:x:{USER_ID}:{USER_ID}::{HOME}:/bin/bash")


def with_group(groups: str) -> str:
    """The text of /etc/group with our user's group."""
    return _with_line(groups, f"{USER}:x:{USER_ID}:")


def with_shadow(shadow: str) -> str:
    """The text of /etc/shadow with our user, who has no password but is not locked."""
    return _with_line(shadow, f"{USER}:*:20000:0:99999:7:::")


def _with_line(text: str, line: str) -> str:
    kept = [one for one in text.splitlines() if not one.startswith(f"{USER}:")]
    return "\n".join([*kept, line, ""])


def hosts(addresses: Mapping[str, str]) -> str:
    """The text of /etc/hosts: each machine's name and address."""
    lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in addresses.items())]
    return "\n".join([*lines, ""])


def node_env(venv: str, ray_options: Sequence[str]) -> str:
    """The text of /etc/raylog/node.env, which `deploy/node.sh` reads."""
    values = {"RAYLOG_VENV": venv, "RAYLOG_RAY_OPTIONS": " ".join(ray_options)}
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())


def labels(broker_id: int) -> str:
    """The text of /etc/raylog/labels.yaml."""
    return f'raylog-broker: "{broker_id}"\n'


def cluster_file(
    shipped: Mapping[str, Any], head: str, workers: Sequence[str], key: str
) -> dict[str, Any]:
    """`deploy/local.yaml` with what its comments say is to be changed: addresses and ssh key."""
    made = copy.deepcopy(dict(shipped))
    made["provider"] |= {"head_ip": head, "worker_ips": list(workers)}
    made["auth"] |= {"ssh_private_key": key}
    return made
