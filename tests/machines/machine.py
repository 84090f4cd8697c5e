"""One machine: its own namespaces, disk, address and sshd."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.cluster.faults_network import Network, address_of
from tests.machines import contents, namespaces
from tests.support.ray_clusters import wait_until

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("machine.sh")
START_S = 120.0
COMMAND_S = 300.0
RAY_OPTIONS = ("--memory=1500000000", "--object-store-memory=80000000")


class CommandError(Exception):
    """A command on a machine failed. The text has its last output."""


class Machine:
    """A machine that can be switched on and off, and can lose its disk."""

    def __init__(
        self, index: int, folder: Path, network: Network, key: Path, addresses: dict[str, str]
    ) -> None:
        """`folder` is for the disk, `key` for logins. `addresses` has all machines."""
        self.index = index
        self.name = f"m{index}"
        self.address = address_of(index)
        self.broker_id: int | None = None
        """The broker id in its label."""
        self.cpus = 1
        """Its CPUs in Ray, whatever the processor has. A broker takes half of one."""
        self._disk = folder / self.name
        self._network = network
        self._key = key
        self._addresses = addresses
        self._holder: subprocess.Popen[bytes] | None = None

    # ---- the disk ------------------------------------------------------------------------

    def new_disk(self) -> None:
        """Replace its disk by that of a fresh installation."""
        assert self._holder is None, f"{self.name} is on"
        shutil.rmtree(self._disk, ignore_errors=True)
        for folder in ("etc/ssh", "etc/raylog", "root"):
            (self._upper / folder).mkdir(parents=True)
        (self._upper / "root").chmod(0o755)  # an interpreter may be there
        self._write_system_files()
        for folder in (f"{contents.HOME}/.ssh", contents.STATE):
            made = self._upper / folder[1:]
            made.mkdir(parents=True)
            for one in (made, made.parent):
                if one.name in (contents.USER, ".ssh"):
                    os.chown(one, contents.USER_ID, contents.USER_ID)
        (self._upper / contents.HOME[1:] / ".ssh").chmod(0o700)
        self._write(f"{contents.HOME}/.ssh/authorized_keys", self._public_key())
        self._write_label()

    def _write_system_files(self) -> None:
        for name, changed in (
            ("passwd", contents.with_user),
            ("group", contents.with_group),
            ("shadow", contents.with_shadow),
        ):
            source = Path("/etc", name)
            self._write(f"/etc/{name}", changed(source.read_text()), source.stat().st_mode & 0o777)
        self._write("/etc/hosts", contents.hosts(self._addresses))
        self._write("/etc/hostname", f"{self.name}\n")
        self._write("/etc/ssh/machine_config", contents.SSHD)
        options = (*RAY_OPTIONS, f"--num-cpus={self.cpus}")
        self._write("/etc/raylog/node.env", contents.node_env(sys.prefix, options))
        host_key = self._upper / "etc/ssh/machine_key"
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(host_key)], check=True
        )

    def give_label(self, broker_id: int | None) -> None:
        """Label it for a broker, or for none, from the next start of Ray on."""
        self.broker_id = broker_id
        if self._holder is None:
            self._write_label()
        elif broker_id is None:
            self.run("rm -f /etc/raylog/labels.yaml")
        else:
            self.run(f"echo '{contents.labels(broker_id).strip()}' > /etc/raylog/labels.yaml")

    def _write_label(self) -> None:
        if self.broker_id is not None:
            self._write("/etc/raylog/labels.yaml", contents.labels(self.broker_id))
        os.chown(self._upper / "etc/raylog", contents.USER_ID, contents.USER_ID)

    def file(self, path: str) -> Path:
        """The path of a file that the machine has written, also while it is off."""
        return self._upper / path[1:]

    @property
    def _upper(self) -> Path:
        return self._disk / "upper"

    def _write(self, path: str, text: str, mode: int = 0o644) -> None:
        target = self._upper / path[1:]
        target.write_text(text)
        target.chmod(mode)

    def _public_key(self) -> str:
        return self._key.with_name(f"{self._key.name}.pub").read_text()

    def pretend_installed(self) -> None:
        """Mark on a new disk that what `ray up` installs is there: it is our environment."""
        wheel = f"raylog/dist/{contents.WHEEL}"
        self.run(f"mkdir -p raylog/dist && touch {wheel} && sha256sum ~/{wheel} > raylog/installed")

    # ---- power ---------------------------------------------------------------------------

    def switch_on(self) -> None:
        """Start it on its disk, and wait until logins work."""
        assert self._holder is None, f"{self.name} is on"
        self.plug(connected=True)
        shared = dict.fromkeys((sys.base_prefix, sys.prefix, str(ROOT)))
        script = ["sh", str(SCRIPT), self.name, str(self._disk), *shared]
        network = self._network.within(self.index)
        self._holder = namespaces.start_namespaces(script, os.environ, network)
        wait_until(self._answers, f"sshd of {self.name}", START_S)

    def switch_off(self) -> None:
        """Cut its power: others get nothing more from it, not even the end of connections."""
        assert self._holder is not None, f"{self.name} is off"
        self.plug(connected=False)
        namespaces.end_namespaces(self._holder)
        self._holder = None

    def plug(self, *, connected: bool) -> None:
        """Connect it to the network, or disconnect it."""
        self._network.plug(self.index, connected=connected)

    @property
    def is_on(self) -> bool:
        """Whether its power is on."""
        return self._holder is not None

    def _answers(self) -> bool:
        assert self._holder is not None
        ended = self._holder.poll()
        assert ended is None, f"{self.name} ended with {ended}"
        try:
            return self._ssh("true", timeout_s=10.0).returncode == 0
        except subprocess.TimeoutExpired:
            return False  # it is busy, or not ready yet

    # ---- commands ------------------------------------------------------------------------

    def raylet(self) -> str:
        """The process id of its Ray node; "" if there is none."""
        return self.run("pgrep -o -x raylet || true").strip()

    def run(self, command: str, timeout_s: float = COMMAND_S) -> str:
        """Run a command on it by ssh, in the cluster's environment. Returns the output.

        Raises CommandError if it fails.
        """
        began = time.monotonic()
        done = self._ssh(f". ~/raylog/node.sh 2>/dev/null; {command}", timeout_s)
        if done.returncode != 0:
            took = f"{time.monotonic() - began:.0f} s"
            said = f"{done.stdout}{done.stderr}"[-2000:]
            raise CommandError(f"{self.name}: {command}: {done.returncode} after {took}: {said}")
        return done.stdout

    def command(self, command: str) -> list[str]:
        """The command line that runs a command on it by ssh, in the cluster's environment."""
        return self._by_ssh(f". ~/raylog/node.sh 2>/dev/null; {command}")

    def _ssh(self, command: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._by_ssh(command),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
            check=False,
        )

    def _by_ssh(self, command: str) -> list[str]:
        given = (
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "LogLevel=ERROR",
            "BatchMode=yes",
            "ConnectTimeout=5",
            "ServerAliveInterval=5",
        )
        options = [part for one in given for part in ("-o", one)]
        where = f"{contents.USER}@{self.address}"
        return ["ssh", "-i", str(self._key), *options, where, command]
