"""`raylog up`, `status` and `down` as users run them."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from raylog.actors.runtime.processes import is_running
from raylog.actors.runtime.ray_node import missing_for_metrics, running_nodes, stop_nodes
from raylog.client import EARLIEST, BlockingClient, NewTopic, TopicPartition

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
BROKERS = 2


class Shell:
    """Runs `raylog` on a data directory."""

    def __init__(self, data: Path, port: int) -> None:
        self.data = data
        self.port = port
        self.environment = dict(os.environ)

    def run(self, command: str, *arguments: str, code: int = 0) -> str:
        """Run a command to its end; returns its standard output."""
        process = self.start(command, *arguments)
        output, errors = process.communicate(timeout=180)
        assert process.returncode == code, errors.decode()
        assert b"Traceback" not in errors
        return output.decode()

    def start(self, command: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a command."""
        ours = [sys.executable, "-m", "raylog.cli", command, "--data", str(self.data)]
        return subprocess.Popen(
            [*ours, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
        )

    def up(self, *arguments: str) -> str:
        """Start the cluster and return its bootstrap servers."""
        return self.run("up", "--detach", "--port", str(self.port), *arguments).strip()


def free_ports(count: int) -> int:
    """The first of some ports in a row that nobody has."""
    for start in range(21_000, 30_000, count):
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            for port in range(start, start + count):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
            return start
    raise AssertionError("no free ports")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path / "data", free_ports(BROKERS))
    yield shell
    assert stop_nodes(shell.data / "run") == []


def write(bootstrap: str, start: int, count: int) -> None:
    with BlockingClient(bootstrap) as client, client.producer() as producer:
        for number in range(start, start + count):
            producer.send("kept", b"%d" % number, partition=number % BROKERS)


def read(bootstrap: str, count: int) -> list[int]:
    """All records, sorted."""
    numbers: list[int] = []
    with BlockingClient(bootstrap) as client:
        consumer = client.consumer()
        consumer.assign({TopicPartition("kept", index): EARLIEST for index in range(BROKERS)})
        for _ in range(100):
            numbers += (int(r.value or b"") for group in consumer.poll(200) for r in group.records)
            if len(numbers) >= count:
                break
    return sorted(numbers)


def test_a_cluster_is_started_asked_stopped_and_started_again(shell: Shell) -> None:
    together = ("--set", "gateway.in.replica.process=true")
    many = ("--set", f"num.partitions={BROKERS}")
    bootstrap = shell.up("--brokers", str(BROKERS), *many, *together)
    assert bootstrap == f"127.0.0.1:{shell.port},127.0.0.1:{shell.port + 1}"
    shell.run("up", "--detach", code=1)
    write(bootstrap, 0, 1_000)

    status = json.loads(shell.run("status", "--json"))
    assert status["failures"] == []
    roles = [(actor["role"], actor["broker"]) for actor in status["actors"]]
    assert sorted(set(roles), key=str) == sorted(
        [("controller", None)]
        + [(role, broker) for role in ("broker", "gateway", "replica") for broker in (0, 1)],
        key=str,
    )
    assert all(actor["pid"] for actor in status["actors"])
    replicas = {actor["pid"] for actor in status["actors"] if actor["role"] == "replica"}
    assert {one["pid"] for one in status["actors"] if one["role"] == "gateway"} <= replicas
    partitions = {at["partition"]: at for at in status["partitions"]}
    assert {at["leader"] for at in partitions.values()} == {0, 1}
    assert sum(at["high_watermark"] for at in partitions.values()) == 1_000
    assert "kept" in shell.run("status")
    checked = {one["check"]: one for one in findings(shell)}
    assert {one["status"] for one in checked.values()} <= {"ok", "warning", "unknown"}
    assert checked["builds"]["status"] == "ok"
    assert checked["health"]["status"] == checked["broker 1"]["status"] == "ok"

    processes = [
        process for node in running_nodes(shell.data / "run") for process in node.processes
    ]
    pids = [actor["pid"] for actor in status["actors"]]
    shell.run("down")
    assert not any(is_running(process) for process in processes)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    shell.run("down", code=3)
    shell.run("status", code=3)

    assert shell.up() == bootstrap, "as many brokers as have data"
    assert read(bootstrap, 1_000) == list(range(1_000))
    write(bootstrap, 1_000, 10)
    assert read(bootstrap, 1_010) == list(range(1_010))
    shell.run("down")


def findings(shell: Shell, *arguments: str) -> list[dict[str, str]]:
    """What `raylog doctor` says."""
    found: list[dict[str, str]] = json.loads(shell.run("doctor", "--json", *arguments))["findings"]
    return found


def pids_of(shell: Shell) -> list[int]:
    """Every process of a cluster: Ray's own, and those of the actors."""
    from raylog.actors.runtime.processes import descendants

    own = [process for node in running_nodes(shell.data / "run") for process in node.processes]
    return [process.pid for process in (*own, *descendants(own)) if is_running(process)]


@pytest.mark.long
def test_in_the_foreground_a_signal_stops_everything(shell: Shell) -> None:
    process = shell.start("up", "--port", str(shell.port))
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    assert line == f"bootstrap servers: 127.0.0.1:{shell.port}\n"
    with BlockingClient(f"127.0.0.1:{shell.port}") as client:
        assert list(client.metadata([]).nodes) == [0]
    pids = pids_of(shell)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors.decode()
    assert output == b"", "no words of Ray's about processes that end"
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.mark.long
def test_logs_outlive_the_cluster_however_long_its_path_is(shell: Shell) -> None:
    shell.data = shell.data / ("deep" * 15)
    shell.up()
    pids = {actor["pid"] for actor in json.loads(shell.run("status", "--json"))["actors"]}
    links = [Path(node.directory) for node in running_nodes(shell.data / "run")]
    shell.run("down")
    logs = shell.data / "run" / "ray" / "session_latest" / "logs"
    logged = {int(path.stem.rpartition("-")[2]) for path in logs.glob("worker-*.err")}
    assert pids <= logged
    assert not any(link.parent.exists() for link in links)


@pytest.mark.long
def test_a_failed_start_leaves_nothing_running(shell: Shell) -> None:
    shell.data.mkdir()
    (shell.data / "broker-0").mkdir()
    (shell.data / "broker-0" / "meta.json").write_text("{damaged")
    process = shell.start("up", "--detach", "--port", str(shell.port))
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b"meta.json is damaged" in errors
    assert running_nodes(shell.data / "run") == []


@pytest.mark.long
def test_a_ray_that_runs_already_is_joined_and_left_running(shell: Shell) -> None:
    """Each of its nodes has a broker; every machine finds the cluster by Ray's address."""
    run = shell.data.parent / "ray"
    address = _start_labelled(run, 0, None)
    try:
        _start_labelled(run, 1, address)
        nodes = running_nodes(run)
        shell.environment |= {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": nodes[0].token_path,
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        }
        bootstrap = shell.run("up", "--address", address, "--port", str(shell.port)).strip()
        assert bootstrap == f"127.0.0.1:{shell.port},127.0.0.1:{shell.port + 1}"
        with BlockingClient(bootstrap) as client:
            client.create_topics([NewTopic("t", replication_factor=2)])
        status = json.loads(shell.run("status", "--address", address, "--json"))
        where = {
            (actor["broker"], actor["node"]) for actor in status["actors"] if actor["partitions"]
        }
        assert where == {(0, nodes[0].node_id[:8]), (1, nodes[1].node_id[:8])}
        assert not (shell.data / "run").exists(), "nothing of it is in a file of this machine"
        checked = {one["check"]: one for one in findings(shell, "--address", address)}
        assert checked["ray nodes"]["found"] == "2 nodes, all alive"
        assert checked["broker 1"]["status"] == "ok"
        shell.run("down", "--address", address)
        assert all(node.is_running for node in nodes)
        status = json.loads(shell.run("status", "--address", address, "--json"))
        assert status["actors"] == []
    finally:
        assert stop_nodes(run) == []


def _start_labelled(run: Path, number: int, address: str | None) -> str:
    """Start a Ray node for the broker of a number; returns the address of its head."""
    script = (
        "from pathlib import Path; from raylog.actors.runtime.ray_node import start_node; "
        f"print(start_node(Path({str(run)!r}), index={number}, join={address!r}, cpus=1, "
        f"labels={{'raylog-broker': '{number}'}}).address)"
    )
    started = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    return started.stdout.strip()


@pytest.mark.long
def test_a_ray_that_hangs_does_not_hold_up_those_who_stop_it(shell: Shell) -> None:
    shell.up()
    (node,) = running_nodes(shell.data / "run")
    (server,) = (process for process in node.processes if process.name == "gcs_server")
    os.kill(server.pid, signal.SIGSTOP)
    before = time.monotonic()
    process = shell.start("down", "--timeout", "6")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert time.monotonic() - before < 20
    assert b"shutting down brokers: 5 s of at most 6 s" in errors
    assert b"not shut down within 6 s" in errors
    assert not any(is_running(process) for process in node.processes)
    shell.up()
    shell.run("down")


@pytest.mark.skipif(bool(missing_for_metrics()), reason="needs ray[default]")
def test_metrics_can_be_scraped(shell: Shell) -> None:
    shell.up("--metrics")
    (node,) = running_nodes(shell.data / "run")
    (listed,) = json.loads(
        (Path(node.directory) / "prom_metrics_service_discovery.json").read_text()
    )
    scraped = ""
    for target in listed["targets"]:
        with contextlib.suppress(OSError), urlopen(f"http://{target}/metrics", timeout=10) as page:
            scraped += page.read().decode()
    assert "ray_" in scraped
    shell.run("down")


@pytest.mark.skipif(not missing_for_metrics(), reason="needs a Ray without its dashboard")
def test_metrics_that_cannot_be_collected_are_refused_before_anything_starts(shell: Shell) -> None:
    process = shell.start("up", "--metrics")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b'pip install "ray[default]"' in errors
    assert b"aiohttp" in errors
    assert not shell.data.exists()
