"""The brokers to compare, started on free loopback ports with temporary directories."""

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from bench import jars
from bench.measure import environment, new_mark
from bench.wireprobe import JOIN_GROUP, api_versions, wait_until_ready

START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 20.0
SAME_FOR_ALL = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "10"}
"""Settings that would otherwise be measured instead of the broker, such as 3 s of initial
rebalance."""
_CLUSTER_ID = "cmF5bG9nLWJlbmNoLWtmaw"


class PeerError(Exception):
    """A broker could not be started. The text has its last output."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One or several running brokers. `mark` finds their processes; empty if they are not ours.

    `data` is Raylog's data directory, for its command line.
    """

    name: str
    address: str
    mark: str = ""
    data: str = ""
    start_s: float | None = None

    def has_groups(self) -> bool:
        """Whether it serves consumer groups."""
        return JOIN_GROUP in api_versions(self.address)


@dataclass(frozen=True, slots=True)
class ApacheKafka:
    """Apache Kafka with KRaft: combined broker and controller nodes with a heap of 1 GiB each."""

    settings: Mapping[str, str] = field(default_factory=dict)
    name: str = f"Apache Kafka {jars.KAFKA_VERSION}"
    brokers: int = 1
    listeners: str = ""
    """More listeners of a single broker besides the plaintext one. `settings` configure them."""

    @contextlib.contextmanager
    def run(self) -> Iterator[Peer]:
        """Start, yield, stop, and remove its data. The start time excludes formatting."""
        found = jars.fetch()
        with ending_on_sigterm(), temporary_directory("kafka") as directory:
            ports = free_ports(2 * self.brokers)
            nodes = _nodes(directory, ports, self.settings, self.listeners)
            for node in nodes:
                _format(found, node.properties)
            mark = new_mark()
            began = monotonic()
            with contextlib.ExitStack() as running:
                for node in nodes:
                    process = _start_node(found, node, mark)
                    running.callback(end, process)
                for node in nodes:
                    _await(node.address, node.log)
                address = ",".join(node.address for node in nodes)
                yield Peer(self.name, address, mark, start_s=monotonic() - began)


@dataclass(frozen=True, slots=True)
class Raylog:
    """Raylog as `raylog up --detach` starts it."""

    settings: Mapping[str, str] = field(default_factory=dict)
    name: str = "Raylog"
    brokers: int = 1

    @contextlib.contextmanager
    def run(self) -> Iterator[Peer]:
        """Start, yield, stop, and remove its data. The start time is that of the command."""
        with ending_on_sigterm(), temporary_directory("raylog") as directory:
            mark = new_mark()
            data = str(directory / "data")
            settings = SAME_FOR_ALL | dict(self.settings)
            chosen = [f"--set={key}={value}" for key, value in settings.items()]
            wanted = ["--brokers", str(self.brokers), "--port", "0"]
            began = monotonic()
            try:
                address = _raylog(mark, "up", "--detach", "--data", data, *wanted, *chosen).strip()
                took = monotonic() - began
                for one in address.split(","):
                    wait_until_ready(one, timeout_s=5)
                yield Peer(self.name, address, mark, data, took)
            finally:
                if any((directory / "data" / "run").glob("*.json")):  # even if `up` was aborted
                    _raylog(mark, "down", "--data", data)


@dataclass(frozen=True, slots=True)
class Reachable:
    """A broker that was started elsewhere."""

    name: str
    address: str

    @contextlib.contextmanager
    def run(self) -> Iterator[Peer]:
        """Yield it once it responds."""
        wait_until_ready(self.address, timeout_s=5)
        yield Peer(self.name, self.address)


Source = ApacheKafka | Raylog | Reachable


def free_ports(count: int) -> list[int]:
    """Different ports of 127.0.0.1 that were free a moment ago."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextlib.contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """Within the context, SIGTERM raises an exception, so that child processes are ended, too.

    A handler that is already installed stays. Signals can be handled in the main thread only.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _end_at_once)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end_at_once(number: int, _frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second one must not stop the cleanup
    sys.exit(128 + number)


@contextlib.contextmanager
def temporary_directory(name: str) -> Iterator[Path]:
    """A directory that is removed even if a dying process still writes to it."""
    directory = Path(tempfile.mkdtemp(prefix=f"raylog-bench-{name}-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def end(process: "subprocess.Popen[bytes]") -> None:
    """Ask a process to stop, then kill it."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@dataclass(frozen=True, slots=True)
class _Node:
    """One node of Apache Kafka: its files and its address for clients."""

    properties: Path
    log: Path
    address: str


def _nodes(
    directory: Path, ports: list[int], settings: Mapping[str, str], listeners: str = ""
) -> list[_Node]:
    """Write the properties of each node. Clients use the first half of the ports."""
    half = len(ports) // 2
    more = f",{listeners}" if listeners else ""
    pairs = list(zip(ports[:half], ports[half:], strict=True))
    voters = ",".join(f"{at}@127.0.0.1:{own}" for at, (_, own) in enumerate(pairs, start=1))
    nodes = []
    for at, (port, controller_port) in enumerate(pairs, start=1):
        node = _Node(
            directory / f"broker-{at}.properties",
            directory / f"broker-{at}.log",
            f"127.0.0.1:{port}",
        )
        own = {
            "node.id": str(at),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://{node.address},CONTROLLER://127.0.0.1:{controller_port}"
            + more,
            "advertised.listeners": f"PLAINTEXT://{node.address}{more}",
            "log.dirs": str(directory / f"data-{at}"),
        }
        node.properties.write_text(_properties(own | dict(settings)))
        nodes.append(node)
    return nodes


def _start_node(found: jars.KafkaJars, node: _Node, mark: str) -> "subprocess.Popen[bytes]":
    with node.log.open("wb") as output:
        return subprocess.Popen(
            found.command("kafka.Kafka", str(node.properties), heap="1G"),
            stdout=output,
            stderr=output,
            env=environment(mark),
            start_new_session=True,
        )


def _properties(settings: Mapping[str, str]) -> str:
    """A broker with Kafka's defaults, but one replica of everything and early deletion of files."""
    values = {
        "process.roles": "broker,controller",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        **SAME_FOR_ALL,
        "log.segment.delete.delay.ms": "1000",
    }
    return "".join(f"{key}={value}\n" for key, value in (values | dict(settings)).items())


def _format(found: jars.KafkaJars, properties: Path) -> None:
    command = found.command(
        "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(properties), heap="256M"
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PeerError(f"formatting Kafka's storage failed:\n{done.stdout}{done.stderr}")


def _await(address: str, log: Path) -> None:
    try:
        wait_until_ready(address, START_TIMEOUT_S)
    except TimeoutError as failure:
        raise PeerError(f"{failure}\n{log.read_text()[-2000:]}") from failure


def _raylog(mark: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "raylog.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        env=environment(mark),
        check=False,
    )
    if done.returncode != 0:
        raise PeerError(f"raylog {arguments[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
