"""Checks how a client reaches the brokers, for `raylog doctor`."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from raylog.cli.doctor.findings import Finding, failure, ok, warning
from raylog.client.core import Core
from raylog.client.errors import (
    AuthenticationFailed,
    ClientError,
    NotConnected,
    NotKafka,
    NotSupported,
    TlsFailed,
)
from raylog.client.streams import AsyncIo
from raylog.wire.api import ApiKey
from raylog.wire.errors import KafkaError

if TYPE_CHECKING:
    from raylog.client import ClientSettings

SLOW_MS = 200.0
_CONNECT_MS = 5_000
_ASKED = 3
"""Requests per broker; the shortest response time counts."""
_FIRST = -2
"""The client's node id for its first bootstrap server."""
Address = tuple[str, int]

NAME, REFUSED, TIMEOUT, NETWORK, TLS, LOGIN, PROTOCOL = (
    "name",
    "refused",
    "timeout",
    "network",
    "tls",
    "login",
    "protocol",
)
"""Kinds of failures."""


@dataclass(frozen=True, slots=True)
class Reached:
    """The result of connecting to one address and sending it a Metadata request."""

    address: Address
    resolved: tuple[str, ...] = ()
    """Its IP addresses."""
    kind: str = ""
    """Kind of the failure; "" if there was none."""
    why: str = ""
    took_ms: float = 0.0
    versions: Mapping[int, range] = field(default_factory=dict)
    """API key to supported versions."""
    brokers: tuple[tuple[int, Address], ...] = ()
    """Ids and advertised addresses of all brokers."""


@dataclass(frozen=True, slots=True)
class Advertised:
    """The result of connecting to a broker's advertised address."""

    broker: int
    reached: Reached


def text_of(address: Address) -> str:
    """Return HOST:PORT."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# ---- checks ----------------------------------------------------------------------------------

_WHAT_TO_DO = {
    NAME: "correct the name, or make it resolvable on this machine (DNS, /etc/hosts)",
    REFUSED: "is the broker up, and is the port right? On its machine: ss -ltnp",
    TIMEOUT: "is the broker's machine up, and does a firewall block the port?",
    NETWORK: "is there a route from this machine? Check: ip route get ADDRESS",
    TLS: "compare security.protocol and ssl.* with those of the listener",
    LOGIN: "compare sasl.mechanism, sasl.username and sasl.password with those of the broker",
    PROTOCOL: "is it a Kafka listener, with this security.protocol?",
}


def check_bootstrap(found: Sequence[Reached]) -> list[Finding]:
    """Check whether each bootstrap server answers. If any does, failures are only warnings."""
    works = any(not one.kind for one in found)
    findings = []
    for one in found:
        name = f"bootstrap {text_of(one.address)}"
        if not one.kind:
            findings.append(_answers(name, one))
        elif works:
            findings.append(warning(name, _failed(one), _WHAT_TO_DO[one.kind]))
        else:
            findings.append(failure(name, _failed(one), _WHAT_TO_DO[one.kind]))
    return findings


def check_advertised(asked: Sequence[Reached], found: Sequence[Advertised]) -> list[Finding]:
    """Check whether the brokers' advertised addresses work from this machine."""
    local = all(_is_loopback(one) for one in asked if not one.kind)
    brokers = Counter(one.reached.address for one in found)
    findings = []
    for one in found:
        name = f"broker {one.broker} at {text_of(one.reached.address)}"
        fault = _fault(one.reached, local=local, is_shared=brokers[one.reached.address] > 1)
        if fault is not None:
            findings.append(failure(name, *fault))
        else:
            findings.append(_answers(name, one.reached))
    return findings


def _fault(one: Reached, *, local: bool, is_shared: bool) -> tuple[str, str] | None:
    """Return what is wrong with an advertised address and what to do, or None."""
    set_it = (
        "set advertised.listeners (raylog up --advertised-host HOST) to an address that clients "
        "can reach"
    )
    host, _ = one.address
    if host in ("", "0.0.0.0", "::"):  # noqa: S104 - what is refused here
        return f"the broker advertises {host!r}, which is not the address of a machine", set_it
    if is_shared:
        return "several brokers advertise this address: clients reach only one of them", set_it
    if _is_loopback(one) and not local:
        return (
            "the broker advertises a loopback address, which is the client's own machine for "
            "each client: " + ("another broker or nobody" if not one.kind else _failed(one)),
            set_it,
        )
    if one.kind:
        do = set_it if one.kind in (NAME, NETWORK, TIMEOUT) else _WHAT_TO_DO[one.kind]
        return f"the broker advertises an address that fails from this machine: {_failed(one)}", do
    return None


def check_versions(found: Sequence[Advertised]) -> list[Finding]:
    """Check whether all brokers support the same API versions."""
    known = {one.broker: dict(one.reached.versions) for one in found if one.reached.versions}
    if not known:
        return []
    name = "broker versions"
    usual = max(known.values(), key=lambda one: list(known.values()).count(one))
    others = sorted(broker for broker, versions in known.items() if versions != usual)
    if not others:
        return [ok(name, f"all support the same versions of {len(usual)} APIs")]
    differing = {
        ApiKey(key).name if key in set(ApiKey) else f"API {key}"
        for broker in others
        for key in known[broker].keys() | usual.keys()
        if known[broker].get(key) != usual.get(key)
    }
    ids = ", ".join(map(str, others))
    return [
        warning(
            name,
            f"broker {ids} supports other versions than most: {', '.join(sorted(differing)[:4])}",
            "run the same build on all brokers; during a rolling restart this is normal",
        )
    ]


def _answers(name: str, one: Reached) -> Finding:
    found = f"answers in {one.took_ms:.0f} ms"
    resolved = ", ".join(one.resolved)
    if resolved and resolved != one.address[0]:
        found += f" ({resolved})"
    if one.took_ms > SLOW_MS:
        return warning(
            name, found, "the broker is far away or busy: clients wait this long for each answer"
        )
    return ok(name, found)


def _failed(one: Reached) -> str:
    if one.kind == REFUSED:
        return "the connection is refused"
    where = {NAME: "name resolution", TLS: "TLS", LOGIN: "the login (SASL)"}.get(one.kind)
    return f"fails at {where}: {one.why}" if where else one.why


def _is_loopback(one: Reached) -> bool:
    host, _ = one.address
    if host == "localhost":
        return True
    return any(ipaddress.ip_address(ip.partition("%")[0]).is_loopback for ip in one.resolved)


# ---- gathering -------------------------------------------------------------------------------


async def reach(settings: ClientSettings, address: Address) -> Reached:
    """Resolve an address, connect, use TLS, request ApiVersions, log in, and request Metadata."""
    loop = asyncio.get_running_loop()
    try:
        resolutions = await loop.getaddrinfo(*address, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as missing:
        return Reached(address, kind=NAME, why=str(getattr(missing, "strerror", missing)))
    resolved = tuple(dict.fromkeys(str(one[4][0]) for one in resolutions))
    io = AsyncIo()
    core = Core(
        io,
        replace(
            settings,
            bootstrap=(address,),
            connect_timeout_ms=min(settings.connect_timeout_ms, _CONNECT_MS),
        ),
    )
    try:
        versions = await core.api_versions(_FIRST)
        took_ms = min([await _refreshed_ms(core) for _ in range(_ASKED)])
    except (ClientError, KafkaError) as failed:
        return Reached(address, resolved, kind_of(failed), str(failed))
    finally:
        core.close_for_good()
        await io.finish()
    brokers = tuple(
        sorted((one.node_id, (one.host, one.port)) for one in core.cluster.nodes.values())
    )
    return Reached(address, resolved, took_ms=took_ms, versions=versions, brokers=brokers)


async def _refreshed_ms(core: Core) -> float:
    """Return how long a Metadata request takes."""
    began_s = time.monotonic()
    await core.refresh([])
    return (time.monotonic() - began_s) * 1_000


async def reach_all(settings: ClientSettings, addresses: Sequence[Address]) -> list[Reached]:
    """Call `reach` once for each distinct address, several at a time."""
    several = asyncio.Semaphore(16)

    async def one(address: Address) -> Reached:
        async with several:
            return await reach(settings, address)

    distinct = list(dict.fromkeys(addresses))
    found = dict(zip(distinct, await asyncio.gather(*map(one, distinct)), strict=True))
    return [found[address] for address in addresses]


def kind_of(failed: Exception) -> str:
    """Return the kind of a failure to connect."""
    if isinstance(failed, TlsFailed) or "TLS handshake" in str(failed):
        return TLS  # a listener without TLS closes the connection, or waits
    if isinstance(failed, AuthenticationFailed | KafkaError | NotSupported):
        return LOGIN
    if isinstance(failed, NotKafka):
        return PROTOCOL
    return next(_kinds(failed), PROTOCOL)


def _kinds(failed: BaseException | None) -> Iterator[str]:
    """Yield the kinds of a failure and its causes, starting with the failure itself."""
    while failed is not None:
        match failed:
            case socket.gaierror():
                yield NAME
            case OSError() if f"[Errno {errno.ECONNREFUSED}]" in str(failed):
                yield REFUSED  # for several addresses, one failure has all the texts
            case TimeoutError():
                yield TIMEOUT
            case OSError():
                yield NETWORK
            case NotConnected() if "not answer" in str(failed):
                yield TIMEOUT
            case _:
                pass
        failed = failed.__cause__
