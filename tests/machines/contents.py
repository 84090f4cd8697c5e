"""The content of a new machine's disk and the cluster file: texts, without I/O."""

from __future__ import annotations

import copy
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

USER = "raylog"
"""The user in `deploy/local.yaml`."""
USER_ID = 47_001
HOME = f"/home/{USER}"
STATE = "/var/lib/raylog"
"""The state directory in `deploy/node.sh`."""
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
    """/etc/passwd with our user. Another one with its name is removed."""
    return _with_line(users, f"{USER}:x:{USER_ID}:{USER_ID}::{HOME}:/bin/bash")


def with_group(groups: str) -> str:
    """/etc/group with our user's group."""
    return _with_line(groups, f"{USER}:x:{USER_ID}:")


def with_shadow(shadow: str) -> str:
    """/etc/shadow with our user, who has no password but is not locked."""
    return _with_line(shadow, f"{USER}:*:20000:0:99999:7:::")


def _with_line(text: str, line: str) -> str:
    kept = [one for one in text.splitlines() if not one.startswith(f"{USER}:")]
    return "\n".join([*kept, line, ""])


def hosts(addresses: Mapping[str, str]) -> str:
    """/etc/hosts with each machine's name and address."""
    lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in addresses.items())]
    return "\n".join([*lines, ""])


def node_env(venv: str, ray_options: Sequence[str]) -> str:
    """/etc/raylog/node.env, which `deploy/node.sh` reads."""
    values = {"RAYLOG_VENV": venv, "RAYLOG_RAY_OPTIONS": " ".join(ray_options)}
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())


def labels(broker_id: int) -> str:
    """The content of /etc/raylog/labels.yaml."""
    return f'raylog-broker: "{broker_id}"\n'


def cluster_file(
    shipped: Mapping[str, Any], head: str, workers: Sequence[str], key: str
) -> dict[str, Any]:
    """`deploy/local.yaml` with the changes that its comments ask for: addresses and ssh key."""
    made = copy.deepcopy(dict(shipped))
    made["provider"] |= {"head_ip": head, "worker_ips": list(workers)}
    made["auth"] |= {"ssh_private_key": key}
    return made
