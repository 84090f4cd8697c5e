"""Machines on one machine: network namespaces joined by a bridge, and cuts between them.

All namespaces are unnamed, so they end with the last process in them: nothing is left behind,
whatever happens. The campaign runs in one of them (the *hub*, with the bridge, the clients and
Ray's head); each node has another. Packets are dropped on arrival, so one direction can be cut.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from types import TracebackType
from typing import Self

HUB = -1
"""The place of clients and of Ray's head, as a node's index."""
CLIENT_PORTS = range(21000, 21100)
_INSIDE = "RAYLOG_FAULTS_HUB"
_PROBE = (
    "ip link set lo up && ip link add raylog0 type bridge && ip link add raylog1 type veth "
    "peer name raylog2 && nft add table ip cuts"
)
_TABLE = """\
table ip cuts {
 set sources { type ipv4_addr; }
 set strangers { type ipv4_addr; }
 chain input {
  type filter hook input priority 0; policy accept;
  ip saddr @sources drop
  ip saddr @strangers tcp dport %d-%d drop
 }
}
"""


class NoNamespacesError(Exception):
    """Network namespaces are not available; the message says why."""


def address_of(node: int) -> str:
    """The address of a node, or of the hub."""
    return f"10.213.7.{11 + node}"


def is_hub() -> bool:
    """Whether this process runs in a hub's namespace."""
    return os.environ.get(_INSIDE) == "1"


def enter_hub() -> None:
    """Run this program anew within a hub's namespace; raises NoNamespacesError."""
    missing = [tool for tool in ("ip", "nft", "unshare", "nsenter") if shutil.which(tool) is None]
    if missing:
        raise NoNamespacesError(f"{', '.join(missing)} not found (packages iproute2, nftables)")
    tried = subprocess.run(
        ["unshare", "--net", "sh", "-c", _PROBE], capture_output=True, text=True, check=False
    )
    if tried.returncode != 0:
        raise NoNamespacesError(tried.stderr.strip() or "network namespaces are not permitted")
    os.environ[_INSIDE] = "1"
    sys.stdout.flush()
    os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.orig_argv[1:]])


class Network:
    """The nodes' namespaces; used within a hub."""

    def __init__(self, nodes: int) -> None:
        self._nodes = range(nodes)
        self._holders: list[subprocess.Popen[bytes]] = []
        """Each holds the namespace of one node."""

    def __enter__(self) -> Self:
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", "bridge0", "type", "bridge")
        _run("ip", "address", "add", f"{address_of(HUB)}/24", "dev", "bridge0")
        _run("ip", "link", "set", "bridge0", "up")
        self._add_table(HUB)
        for node in self._nodes:
            self._add(node)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for holder in self._holders:
            holder.kill()
            holder.wait()

    def _add(self, node: int) -> None:
        holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"], stdout=subprocess.PIPE
        )
        self._holders.append(holder)
        assert holder.stdout is not None
        holder.stdout.readline()  # it is in its namespace now
        link = _link(node)
        ends = ("type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        _run("ip", "link", "add", link, *ends)
        _run("ip", "link", "set", link, "master", "bridge0", "up")
        within = self.within(node)
        _run(*within, "ip", "link", "set", "lo", "up")
        _run(*within, "ip", "address", "add", f"{address_of(node)}/24", "dev", "eth0")
        _run(*within, "ip", "link", "set", "eth0", "up")
        self._add_table(node)

    def _add_table(self, node: int) -> None:
        ports = CLIENT_PORTS[0], CLIENT_PORTS[-1]
        _run(*self.within(node), "nft", "-f", "-", given=_TABLE % ports)

    def within(self, node: int) -> list[str]:
        """What a command begins with to run at a node, or in the hub, where we are."""
        if node == HUB:
            return []
        return ["nsenter", f"--net=/proc/{self._holders[node].pid}/ns/net"]

    def cut(self, source: int, target: int) -> None:
        """Lose all that `source` sends to `target`; one of them may be the hub."""
        self._add_to("sources", target, source)

    def cut_clients(self, node: int) -> None:
        """Lose what clients send to a node."""
        self._add_to("strangers", node, HUB)

    def plug(self, node: int, *, connected: bool) -> None:
        """Connect a node to the bridge, or pull its plug: nothing comes in or goes out."""
        _run("ip", "link", "set", _link(node), "up" if connected else "down")

    def heal(self) -> None:
        """Lose nothing any more."""
        for node in (HUB, *self._nodes):
            for name in ("sources", "strangers"):
                _run(*self.within(node), "nft", "flush", "set", "ip", "cuts", name)

    def _add_to(self, name: str, node: int, source: int) -> None:
        elements = f"{{ {address_of(source)} }}"
        _run(*self.within(node), "nft", "add", "element", "ip", "cuts", name, elements)


def _link(node: int) -> str:
    """The bridge's end of a node's cable."""
    return f"node{node}"


def _run(*command: str, given: str | None = None) -> None:
    subprocess.run(command, check=True, input=given, text=True, stdout=subprocess.DEVNULL)


def pairs(node: int, others: Iterable[int]) -> list[tuple[int, int]]:
    """Both directions between a node and others."""
    return [way for other in others for way in ((node, other), (other, node))]
