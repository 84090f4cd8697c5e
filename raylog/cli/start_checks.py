"""Checks that `raylog up` makes before it starts anything, so that it reports problems at once."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

from raylog.cli.failures import EXIT_UNREACHABLE, EXIT_USAGE, CommandFailed, Failure

if TYPE_CHECKING:
    from raylog.cli.local_cluster import Wanted

PORT_MAX = 65_535
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""What a client sends first: the preface and an empty SETTINGS frame (RFC 9113, 3.4)."""
_HTTP2_FRAME_HEADER = 9
_HTTP2_SETTINGS = 4
"""The type of a SETTINGS frame: the fourth byte of its header."""
_PROBE_S = 5.0
"""Timeout for connecting to Ray's port, and then for its answer."""
CONNECT_S = 30.0
"""How long a Ray whose port is open may take to answer; Ray's driver itself retries for minutes."""


def check_metrics(wanted: Wanted) -> None:
    """Raise CommandFailed if Ray cannot collect metrics here."""
    from raylog.actors.runtime.ray_node import missing_for_metrics

    missing = missing_for_metrics() if wanted.metrics else []
    if missing:
        raise CommandFailed(
            f"--metrics needs Python packages that are not installed: {', '.join(missing)}",
            'Install them: pip install "ray[default]"',
        )


def check_reach(wanted: Wanted) -> None:
    """Raise CommandFailed if clients could not reach the advertised addresses.

    Also raises it if other machines could reach the brokers and `insecure` is not set, and
    InvalidConfig for invalid settings of listeners or links.
    """
    from raylog.actors.broker.links import read_links
    from raylog.actors.broker.listeners import is_beyond_loopback, read_listeners
    from raylog.actors.cluster import listeners_of
    from raylog.actors.config import BrokerSettings
    from raylog.wire.errors import InvalidConfig

    listeners = listeners_of(wanted.host, wanted.port, wanted.advertised_host)
    settings = BrokerSettings({**listeners, **wanted.settings})
    try:
        listening = read_listeners(settings).listening
        read_links(settings)
    except InvalidConfig as refused:
        if wanted.settings.keys() & {"listeners", "link.port.range"}:
            raise  # its text says what is expected
        needs = "" if wanted.insecure else " --insecure"
        raise CommandFailed(
            str(refused),
            f"Give the name under which clients reach this machine: --advertised-host HOST{needs}",
        ) from refused
    open_to_others = [one for one in listening if is_beyond_loopback(one.host)]
    if open_to_others and not wanted.insecure:
        raise CommandFailed(
            f"other machines can reach {open_to_others[0].host or 'every address'}, and brokers "
            "have neither encryption nor logins",
            "Omit --host, or pass --insecure if you trust everyone in that network",
        )


def check_listening(host: str, first_port: int, brokers: int) -> None:
    """Raise CommandFailed if brokers cannot listen on ports from `first_port` on (0: free ones)."""
    last_port = first_port + brokers - 1 if first_port else 0
    if last_port > PORT_MAX:
        raise CommandFailed(
            f"{brokers} brokers from port {first_port} on need ports up to {last_port}, and the "
            f"last one is {PORT_MAX}",
            "Choose a lower --port",
            EXIT_USAGE,
        )
    for port in range(first_port, last_port + 1):
        _check_port(host, port)


def check_listeners(settings: Mapping[str, str], brokers: int) -> None:
    """Raise CommandFailed if brokers on this machine cannot have the listeners in `settings`."""
    from raylog.actors.broker.listeners import for_broker, read_listeners
    from raylog.actors.config import BrokerSettings

    wanted = [
        (at, one)
        for at in range(brokers)
        for one in read_listeners(BrokerSettings(for_broker(settings, at))).listening
    ]
    taken: dict[int, str] = {}
    for at, one in wanted:
        named = f"{one.listener} of broker {at + 1}"
        if one.port and one.port in taken:
            raise CommandFailed(
                f"{taken[one.port]} and {named} would listen on the same port {one.port}: each "
                "broker on a machine has the next ports",
                f"Leave a gap of {brokers} between the ports of the listeners",
                EXIT_USAGE,
            )
        taken[one.port] = named
    for _, one in wanted:
        _check_port(one.host, one.port)


def _check_port(host: str, port: int) -> None:
    from raylog.actors.node_hosts import has_placeholder

    if has_placeholder(host):
        return  # only known on the broker's machine
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.closing(socket.socket(family)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise CommandFailed(
                f"cannot listen on {host}:{port}: {error.strerror}", _listening_hint(error)
            ) from error


def _listening_hint(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "Choose other ports with --port, or find the process that has it: ss -ltnp"
    if error.errno == errno.EACCES:
        return "Choose other ports with --port"
    return "Give --host an address or a name of this machine"


def check_ray_answers(address: str) -> None:
    """Raise CommandFailed unless a server that may be Ray listens on an address (HOST:PORT)."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > PORT_MAX:
        raise CommandFailed(
            f"--address: expected HOST:PORT or auto, found {address!r}", exit_code=EXIT_USAGE
        )
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_S) as probe:
            uses_tls = os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")
            is_ray = uses_tls or _speaks_grpc(probe)
    except OSError as failure:
        raise CommandFailed(
            f"cannot reach Ray at {address}: {failure.strerror or failure}",
            "Give the address that `ray start --head` printed, or omit --address: raylog up then "
            "starts its own Ray",
            EXIT_UNREACHABLE,
        ) from failure
    if not is_ray:
        problem = no_answer(address)
        raise CommandFailed(problem.message, problem.hint, problem.exit_code)


def _speaks_grpc(probe: socket.socket) -> bool:
    """Whether the server answers as gRPC does: with an HTTP/2 SETTINGS frame."""
    answer = b""
    try:
        probe.sendall(_HTTP2_PREFACE)
        while len(answer) < _HTTP2_FRAME_HEADER and (part := probe.recv(_HTTP2_FRAME_HEADER)):
            answer += part
    except OSError:
        return False
    return len(answer) >= _HTTP2_FRAME_HEADER and answer[3] == _HTTP2_SETTINGS


def no_answer(address: str) -> Failure:
    """Return the failure to report if no Ray answers in time although the port is open."""
    return Failure(
        f"no Ray cluster answers at {address}",
        "Check that it is the address of Ray's head (port 6379 by default), and that Ray is "
        "healthy: ray status",
        EXIT_UNREACHABLE,
    )
