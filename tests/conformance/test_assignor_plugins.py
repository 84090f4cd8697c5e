"""Third-party assignors, installed into a fresh environment and used there by a real group."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "weighted-assignors"
NAMES = ["broadcast", "capacity"]
DEADLINE_S = 90


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment that sees this one's packages and has the example."""
    directory = tmp_path_factory.mktemp("environment")
    venv.create(directory, with_pip=False, symlinks=True)
    here = sysconfig.get_paths()["purelib"]
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = directory / "lib" / version / "site-packages"
    (site / "parent.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    source = tmp_path_factory.mktemp("source") / "example"
    shutil.copytree(EXAMPLE, source)  # building leaves files behind
    offline = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    run(sys.executable, "-m", "pip", "install", *offline, "--target", str(site), str(source))
    return directory / "bin" / "python"


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """What a command prints; its failure is the test's."""
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        cwd=cwd,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_example_is_found_where_it_is_installed(environment: Path) -> None:
    listed = json.loads(run(environment, "-m", "raylog.cli", "plugins", "list", "--json"))
    theirs = [each for each in listed if each["package"] == "raylog-example-weighted"]
    assert [(each["name"], each["version"], each["state"]) for each in theirs] == [
        (name, "1.0", "ready") for name in NAMES
    ]


def test_the_examples_own_tests_pass(environment: Path, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE / "tests", tmp_path / "tests")
    out = run(environment, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", cwd=tmp_path)
    assert "4 passed" in out


GROUP = """
import sys, time, json
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from raylog.testing import EmbeddedBroker

SETTINGS = {
    "group.consumer.assignors": "uniform,range,capacity,broadcast",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
}

def settle(bootstrap, assignor, instances, wanted):
    consumers = [
        Consumer({
            "bootstrap.servers": bootstrap,
            "group.id": assignor,
            "group.protocol": "consumer",
            "group.remote.assignor": assignor,
            "group.instance.id": instance,
            "auto.offset.reset": "earliest",
        })
        for instance in instances
    ]
    for consumer in consumers:
        consumer.subscribe(["t"])
    deadline = time.monotonic() + 40
    shares = []
    while shares != wanted and time.monotonic() < deadline:
        for consumer in consumers:
            consumer.poll(0.1)
        shares = [len(consumer.assignment()) for consumer in consumers]
    for consumer in consumers:
        consumer.close()
    return shares

with EmbeddedBroker(settings=SETTINGS) as broker:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("t", 6, 1)])["t"].result(10)
    print(json.dumps([
        settle(broker.bootstrap, "capacity", ["big@2", "small@1"], [4, 2]),
        settle(broker.bootstrap, "broadcast", ["one", "two"], [6, 6]),
    ]))
"""


def test_a_group_of_real_consumers_uses_the_example(environment: Path) -> None:
    """Two members with capacities 2 and 1 share 6 partitions; two get all of them broadcast."""
    pytest.importorskip("confluent_kafka")
    assert json.loads(run(environment, "-c", GROUP).splitlines()[-1]) == [[4, 2], [6, 6]]
