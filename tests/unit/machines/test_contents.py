"""The files put on a machine's disk, and the contents of the cluster file."""

from __future__ import annotations

from typing import Any

import yaml

from tests.machines import contents
from tests.machines.machine_cluster import CLUSTER_FILE


def shipped() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(CLUSTER_FILE.read_text())
    return found


def test_a_user_is_added_to_those_of_the_system() -> None:
    users = "root:x:0:0:root:/root:/bin/bash\nraylog:x:5:5::/elsewhere:/bin/sh\n"
    assert contents.with_user(users).splitlines() == [
        "root:x:0:0:root:/root:/bin/bash",
        "raylog:x:47001:47001::/home/raylog:/bin/bash",
    ]
    assert contents.with_group("") == "raylog:x:47001:\n"


def test_the_user_has_no_password_but_is_not_locked() -> None:
    assert contents.with_shadow("root:!:1::::::\n").splitlines()[-1].split(":")[1] == "*"


def test_machines_know_each_other_by_name() -> None:
    assert contents.hosts({"m0": "10.0.0.1", "m1": "10.0.0.2"}).splitlines() == [
        "127.0.0.1 localhost",
        "10.0.0.1 m0",
        "10.0.0.2 m1",
    ]


def test_values_of_the_environment_are_quoted_for_a_shell() -> None:
    said = contents.node_env("/a b", ["--x=1", "--y=2"])
    assert said == "RAYLOG_VENV='/a b'\nRAYLOG_RAY_OPTIONS='--x=1 --y=2'\n"


def test_the_label_is_a_text_for_yaml() -> None:
    assert yaml.safe_load(contents.labels(7)) == {"raylog-broker": "7"}


def test_only_addresses_and_the_key_of_the_shipped_file_are_changed() -> None:
    before = shipped()
    made = contents.cluster_file(before, "10.0.0.1", ["10.0.0.2"], "/key")
    assert before == shipped()
    assert made["provider"] == {"type": "local", "head_ip": "10.0.0.1", "worker_ips": ["10.0.0.2"]}
    assert made["auth"] == {"ssh_user": contents.USER, "ssh_private_key": "/key"}
    unchanged = {key for key in before if made[key] == before[key]}
    assert set(before) - unchanged == {"provider", "auth"}
