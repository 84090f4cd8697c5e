"""All machines and their operator: `ray up` and its effects."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml

from tests.cluster.faults_network import Network, address_of
from tests.machines import contents
from tests.machines.machine import COMMAND_S, ROOT, Machine
from tests.support.ray_clusters import wait_until

CLUSTER_FILE = ROOT / "deploy" / "local.yaml"
GCS_PORT = 6379
NODES_S = 300.0
"""The time for machines to become Ray nodes, and for Ray to miss one."""
LOOK_S = 0.25
STARTS_MAX = 3
_GAVE_UP = "The current node timed out during startup"
"""Printed by Ray if its node has not started within 30 s, a limit that cannot be set."""


class OperatorError(Exception):
    """A command of the operator failed. The text has its last output."""


@dataclass(frozen=True, slots=True)
class RayNode:
    """A node in Ray's view."""

    node_id: str
    address: str
    is_alive: bool
    labels: dict[str, str]


@dataclass(slots=True)
class MachineCluster:
    """Machines, the first of which is the head, and the operator's files."""

    folder: Path
    machines: list[Machine]
    network: Network
    spare: Sequence[int] = ()
    """Machines to add later."""
    workers: list[int] = field(default_factory=list)
    """The machines in the cluster file besides the head."""
    _changes: dict[str, Any] = field(default_factory=dict)
    """Changes of the cluster file to the shipped one."""

    @property
    def head(self) -> Machine:
        """The machine of Ray's head."""
        return self.machines[0]

    @property
    def key(self) -> Path:
        """The operator's ssh key."""
        return self.folder / "operator" / ".ssh" / "id_ed25519"

    @property
    def file(self) -> Path:
        """The current cluster file."""
        return self.folder / "operator" / "local.yaml"

    # ---- the operator --------------------------------------------------------------------

    def operate(self, *command: str, timeout_s: float = COMMAND_S) -> str:
        """Run a command as the operator. Returns the output. Raises OperatorError."""
        log = self.folder / "operator" / "said"
        with log.open("wb") as output:  # not a pipe: ssh stays for the next connection
            try:
                done = subprocess.run(
                    command,
                    cwd=log.parent,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=timeout_s,
                    check=False,
                )
            except subprocess.TimeoutExpired as failure:
                raise OperatorError(f"{failure}: {log.read_text()[-3000:]}") from None
        said = log.read_text()
        if done.returncode != 0:
            raise OperatorError(f"{' '.join(command)}: {done.returncode}: {said[-3000:]}")
        return said

    def write_file(self, workers: Sequence[int]) -> None:
        """Write the cluster file for the head and these machines."""
        self.workers = list(workers)
        shipped: dict[str, Any] = yaml.safe_load(CLUSTER_FILE.read_text())
        addresses = [self.machines[index].address for index in workers]
        made = contents.cluster_file(shipped, self.head.address, addresses, str(self.key))
        made |= self._changes
        self.file.write_text(yaml.safe_dump(made, sort_keys=False))

    def change_file(self, *keys: str) -> None:
        """Change the commands under these keys of the cluster file without any effect."""
        shipped: dict[str, Any] = yaml.safe_load(CLUSTER_FILE.read_text())
        self._changes = {key: ["true", *shipped[key]] for key in keys}
        self.write_file(self.workers)

    def pretend_built(self) -> None:
        """Provide an empty wheel to copy, because all machines share our environment."""
        (self.folder / "operator" / "dist" / contents.WHEEL).write_bytes(b"")

    def forget_cluster(self) -> None:
        """Remove what the operator's Ray has stored about the cluster, which is gone."""
        (Path("/tmp/ray") / f"cluster-{self._name}.state").unlink()

    @property
    def _name(self) -> str:
        """The cluster's name in the file."""
        return str(yaml.safe_load(self.file.read_text())["cluster_name"])

    def ray_up(self, *options: str) -> float:
        """Run `ray up`, again if Ray gives up for lack of time. Returns the seconds."""
        began = time.monotonic()
        command = ("ray", "up", str(self.file), "--yes", "--no-config-cache", *options)
        for tries in range(1, STARTS_MAX + 1):
            try:
                self.operate(*command)
                break
            except OperatorError as failure:
                if tries == STARTS_MAX or _GAVE_UP not in str(failure):
                    raise
        return time.monotonic() - began

    def ray_down(self) -> float:
        """Stop Ray on all machines as in docs/deploy.md. Returns the seconds."""
        began = time.monotonic()
        self.operate("ray", "down", str(self.file), "--yes")
        for index in self.workers:
            if self.machines[index].is_on:
                self.machines[index].run("ray stop")
        return time.monotonic() - began

    # ---- Ray's view ----------------------------------------------------------------------

    def nodes(self) -> list[RayNode]:
        """Ray's nodes, including dead ones; empty if the head does not answer."""
        from ray._raylet import GcsClient  # type: ignore[attr-defined]  # not in its stub

        try:
            client = GcsClient(address=f"{self.head.address}:{GCS_PORT}")
            found = client.get_all_node_info(timeout=5).values()
        except Exception as failure:  # noqa: BLE001  # Ray raises its own of several kinds
            _require_rpc(failure)
            return []
        return [
            RayNode(one.node_id.hex(), one.node_manager_address, one.state == 0, dict(one.labels))
            for one in found
        ]

    def live(self) -> dict[str, RayNode]:
        """Live nodes by address."""
        return {node.address: node for node in self.nodes() if node.is_alive}

    def until_live(self, machines: Sequence[Machine]) -> float:
        """Wait until exactly these machines are live nodes. Returns the seconds."""
        began = time.monotonic()
        wanted = {machine.address for machine in machines}

        def look() -> bool:
            time.sleep(LOOK_S)
            return set(self.live()) == wanted

        wait_until(look, f"Ray nodes {sorted(wanted)}", NODES_S)
        return time.monotonic() - began

    def until_labelled(self, machine: Machine) -> float:
        """Wait until a machine is a live node with its label. Returns the seconds."""
        began = time.monotonic()
        wanted = str(machine.broker_id)

        def look() -> bool:
            time.sleep(LOOK_S)
            node = self.live().get(machine.address)
            return node is not None and node.labels.get("raylog-broker") == wanted

        wait_until(look, f"{machine.name} with the label of broker {wanted}", NODES_S)
        return time.monotonic() - began

    def members(self) -> list[Machine]:
        """The machines in the cluster file."""
        return [self.head, *(self.machines[index] for index in self.workers)]

    def memory_bytes(self) -> int:
        """The private memory of all processes, with shared parts divided (PSS)."""
        total = 0
        for process in psutil.process_iter():
            try:
                total += process.memory_full_info().pss
            except (psutil.NoSuchProcess, psutil.ZombieProcess):
                continue
        return total


def _require_rpc(failure: Exception) -> None:
    """Raise the failure again unless the head did not answer."""
    from ray.exceptions import RayError, RpcError

    if not isinstance(failure, RpcError | RayError | TimeoutError | ConnectionError):
        raise failure


@contextmanager
def machine_cluster(folder: Path, machines: int, spare: int) -> Iterator[MachineCluster]:
    """Machines in their namespaces, some of them to be added later. They end with the context."""
    operator = folder / "operator"
    (operator / ".ssh").mkdir(parents=True)
    os.environ |= {
        "HOME": str(operator),
        "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}",
        "RAY_AUTH_MODE": "token",
        "RAY_UP_enable_autoscaler_v2": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    key = operator / ".ssh" / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    _hide_tmp(folder)
    (operator / "deploy").symlink_to(ROOT / "deploy")
    (operator / "dist").mkdir()
    total = machines + spare
    with Network(total) as network:
        addresses = {f"m{index}": address_of(index) for index in range(total)}
        made = [Machine(index, folder, network, key, addresses) for index in range(total)]
        yield MachineCluster(folder, made, network, range(machines, total))


def _hide_tmp(folder: Path) -> None:
    """Give the namespaces their own /tmp, where Ray keeps the state of clusters."""
    own = folder / "operator" / "tmp"
    own.mkdir()
    own.chmod(0o1777)
    subprocess.run(["mount", "--bind", str(own), "/tmp"], check=True)
