"""deploy/*.yaml and the files they copy: valid by Ray's own schema, and consistent."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
CLOUDS = ["aws", "gcp", "azure"]
FILES = ["local", *CLOUDS]


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / f"{name}.yaml").read_text())
    return found


@pytest.mark.parametrize("name", FILES)
def test_ray_takes_the_file(name: str) -> None:
    validate_config(prepare_config(read(name)))


@pytest.mark.parametrize("name", FILES)
def test_file_mounts_refer_to_existing_files(name: str) -> None:
    copied = read(name)["file_mounts"].values()
    here = [path for path in copied if not path.startswith("~")]
    assert "dist" in here  # made before `ray up`, as docs/deploy.md says
    assert all((ROOT / path).exists() for path in here if path != "dist")


@pytest.mark.parametrize("name", CLOUDS)
def test_a_broker_of_a_cloud_has_one_machine_and_its_label(name: str) -> None:
    config = read(name)
    types = config["available_node_types"]
    brokers = {kind: found for kind, found in types.items() if kind != config["head_node_type"]}
    assert len(brokers) == config["max_workers"]
    for number, (kind, found) in enumerate(brokers.items()):
        assert kind == f"broker-{number}"
        assert found["labels"] == {"raylog-broker": str(number)}
        assert (found["min_workers"], found["max_workers"]) == (1, 1)
    attach = f"sh ~/raylog/attach-disk.sh {name}"
    assert config["worker_start_ray_commands"].index(attach) == 1


def test_a_disk_of_google_cloud_has_the_name_that_is_looked_for() -> None:
    for kind, found in read("gcp")["available_node_types"].items():
        extra = [disk for disk in found["node_config"]["disks"] if not disk["boot"]]
        assert [disk["deviceName"] for disk in extra] == (
            [] if kind == "head" else [f"raylog-{kind}"]
        )
        assert not any(disk["autoDelete"] for disk in extra)


@pytest.mark.parametrize("script", sorted(DEPLOY.glob("*.sh")), ids=lambda path: path.name)
def test_a_script_is_one_for_sh(script: Path) -> None:
    subprocess.run(["sh", "-n", str(script)], check=True)


def bash(command: str, **environment: str) -> str:
    done = subprocess.run(
        ["bash", "-euc", command],
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_the_environment_is_complete_without_a_file_of_the_machine() -> None:
    said = bash(f". {DEPLOY / 'node.sh'}; echo $PATH $RAYLOG_LABELS $RAYLOG_RAY_OPTIONS")
    assert said.split() == ["/opt/raylog/bin:/usr/bin:/bin", "--object-store-memory=100000000"]


@pytest.mark.parametrize("labels", ["", '{"other":"1"}'])
def test_a_machine_without_a_broker_gets_no_disk(labels: str) -> None:
    said = bash(f"sh {DEPLOY / 'attach-disk.sh'} gcp", RAY_OVERRIDE_LABELS=labels)
    assert "no disk" in said


class Disk:
    """A Google Cloud machine on which disk commands only print what they would do."""

    def __init__(self, folder: Path, blkid: int) -> None:
        self._path = folder / "bin"
        self._path.mkdir()
        self._said = folder / "said"
        (self._path / "sudo").write_text('#!/bin/sh\nexec "$@"\n')
        for name, code in {"blkid": blkid, "mkfs.ext4": 0, "mount": 0, "chown": 0}.items():
            (self._path / name).write_text(
                f'#!/bin/sh\necho "{name} $@" >> {self._said}\nexit {code}\n'
            )
        (self._path / "mountpoint").write_text("#!/bin/sh\nexit 1\n")
        for tool in self._path.iterdir():
            tool.chmod(0o755)
        self._script = folder / "attach.sh"
        text = (DEPLOY / "attach-disk.sh").read_text()
        (folder / "google-raylog-broker-7").touch()
        self._script.write_text(text.replace("/dev/disk/by-id", str(folder)))
        self._mount = folder / "mounted"

    def attach(self) -> tuple[int, list[str]]:
        done = subprocess.run(
            [shutil.which("sh") or "sh", str(self._script), "gcp"],
            env={
                "PATH": f"{self._path}:/usr/bin:/bin",
                "RAYLOG_STATE": str(self._mount),
                "RAY_OVERRIDE_LABELS": '{"raylog-broker":"7"}',
            },
            check=False,
        )
        return done.returncode, [line.split()[0] for line in self._said.read_text().splitlines()]


@pytest.mark.parametrize(
    ("blkid", "code", "done"),
    [
        (0, 0, ["blkid", "mount", "chown"]),
        (2, 0, ["blkid", "mkfs.ext4", "mount", "chown"]),
        (4, 1, ["blkid"]),
        (8, 1, ["blkid"]),
    ],
)
def test_only_an_empty_disk_is_formatted(
    tmp_path: Path, blkid: int, code: int, done: list[str]
) -> None:
    assert Disk(tmp_path, blkid).attach() == (code, done)


def unit() -> dict[str, list[str]]:
    """The lines of raylog.service by section."""
    sections: dict[str, list[str]] = {}
    text = (DEPLOY / "raylog.service").read_text().replace("\\\n", "")
    for line in text.splitlines():
        if line.startswith("["):
            sections[line.strip("[]")] = []
        elif line and not line.startswith("#"):
            list(sections.values())[-1].append(line)
    return sections


def test_the_unit_has_the_sections_of_a_service() -> None:
    assert list(unit()) == ["Unit", "Service", "Install"]
    assert all("=" in line for lines in unit().values() for line in lines)


def command_of_unit(key: str = "ExecStart=") -> str:
    [line] = [line for line in unit()["Service"] if line.startswith(key)]
    command = line.removeprefix(f"{key}/bin/bash -c '").removesuffix("'")
    assert "$" not in command.replace("$$", "")  # systemd would put its own variables there
    return command.replace("$$", "$").replace("/etc/raylog/node.sh", str(DEPLOY / "node.sh"))


@pytest.mark.parametrize(
    ("head", "wanted"),
    [
        (
            "10.0.0.10:6380",
            "start --block --address=10.0.0.10:6380 --object-store-memory=100000000",
        ),
        (
            "",
            "start --block --head --port=6380 --include-dashboard=false"
            " --object-store-memory=100000000",
        ),
    ],
)
def test_the_unit_starts_a_head_or_joins_one(tmp_path: Path, head: str, wanted: str) -> None:
    fake = tmp_path / "ray"
    fake.write_text('#!/bin/sh\necho "$@"\n')
    fake.chmod(0o755)
    said = bash(command_of_unit(), RAYLOG_HEAD=head, PATH=f"{tmp_path}:/usr/bin:/bin")
    assert said.strip() == wanted


def stand_in(folder: Path, name: str, script: str) -> None:
    """A program that does as the script says."""
    tool = folder / name
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)


def test_the_unit_stops_its_brokers_before_ray_ends(tmp_path: Path) -> None:
    stand_in(tmp_path, "raylog", 'echo "$@"')
    said = bash(command_of_unit("ExecStop=-"), PATH=f"{tmp_path}:/usr/bin:/bin")
    assert said.strip() == "brokers stop --here --timeout 60"


def azure_event(kind: str, *machines: str) -> str:
    """What says Azure's answer with one event."""
    return "echo '" + json.dumps({"Events": [{"EventType": kind, "Resources": machines}]}) + "'"


NOTICES = {
    "aws": ("aws", "echo token", "exit 22", "echo '{}'"),
    "gcp": ("gcp", "exit 7", "echo FALSE", "echo TRUE"),
    "azure": (
        "azure",
        "echo broker-1",
        """echo '{"Events":[]}'""",
        azure_event("Preempt", "broker-2", "Broker-1"),
    ),
    "azure, of another machine": (
        "azure",
        "echo broker-1",
        azure_event("Preempt", "broker-2", "broker-10"),
        azure_event("Terminate", "broker-1"),
    ),
    "azure, of something else": (
        "azure",
        "echo broker-1",
        azure_event("Freeze", "broker-1"),
        azure_event("Preempt", "broker-1"),
    ),
    "azure, which says nothing": (
        "azure",
        "echo broker-1",
        "exit 7",
        azure_event("Preempt", "broker-1"),
    ),
}


@pytest.mark.parametrize("case", NOTICES)
def test_a_notice_stops_the_broker_and_then_ray(tmp_path: Path, case: str) -> None:
    """Before there is one, nothing is stopped, whatever the cloud answers meanwhile."""
    cloud, who, nothing_yet, notice = NOTICES[case]
    said, asked = tmp_path / "said", tmp_path / "asked"
    answers = f"""echo "$@" >> {asked}
case "$*" in *api/token*|*compute/name*) {who}; exit;; esac
if [ $(grep -Evc 'api/token|compute/name' {asked}) -lt 3 ]; then {nothing_yet}; else {notice}; fi"""
    stand_in(tmp_path, "curl", answers)
    stand_in(tmp_path, "raylog", f'echo "raylog $@" >> {said}; exit 1')
    stand_in(tmp_path, "ray", f'echo "ray $@" >> {said}')
    stand_in(tmp_path, "sleep", f"test ! -e {said}")
    subprocess.run(
        ["sh", str(DEPLOY / "on-notice.sh"), cloud],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "TMPDIR": str(tmp_path)},
        check=True,
        timeout=60,
    )
    assert said.read_text().splitlines() == [
        "raylog brokers stop --here --timeout 20",
        "ray stop",
    ]
    lines = asked.read_text().splitlines()
    assert sum("api/token" not in line and "compute/name" not in line for line in lines) == 3


def test_an_unknown_cloud_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", str(DEPLOY / "on-notice.sh"), "elsewhere"],
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
    assert b"expected aws, gcp or azure, found elsewhere" in done.stderr


@pytest.mark.parametrize("name", FILES)
def test_the_wheel_that_was_built_last_is_installed_once(name: str, tmp_path: Path) -> None:
    (install,) = [one for one in read(name)["setup_commands"] if "pip install" in one]
    dist, venv = tmp_path / "raylog" / "dist", tmp_path / "venv"
    for folder in (dist, venv / "bin", tmp_path / "bin"):
        folder.mkdir(parents=True)
    made = {"HOME": str(tmp_path), "RAYLOG_VENV": str(venv)}
    called = tmp_path / "called"
    for tool in (tmp_path / "bin" / "python3.11", venv / "bin" / "pip"):
        tool.write_text(f'#!/bin/sh\necho "$@" >> {called}\n')
        tool.chmod(0o755)
    path = f"PATH={tmp_path}/bin:$PATH; "

    def wheels_installed() -> list[str]:
        called.write_text("")
        bash(path + install, **made)
        said = called.read_text().splitlines()
        return [Path(line.split()[-1]).name for line in said if line.startswith("install")]

    for age_s, version in enumerate(("0.10.0", "0.9.0")):
        wheel = f"raylog-{version}-py3-none-any.whl"
        (dist / wheel).write_text(version)
        os.utime(dist / wheel, (age_s, age_s))
        assert wheels_installed() == [f"{wheel}[ray]"]
        assert wheels_installed() == []
    (dist / wheel).write_text("built again")
    assert wheels_installed() == [f"{wheel}[ray]"]
