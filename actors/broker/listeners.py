"""Parses `listeners`, and holds the listeners' ports for the gateways.

Names, addresses, refusals and error messages are Apache Kafka's (KafkaConfig, CoreUtils). Three
rules are stricter: no spelling of a wildcard address may be advertised, a port must be between 0
and 65535, and only the protocol PLAINTEXT is served.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from raylog.actors.config import BrokerSettings
from raylog.actors.endpoints import DEFAULT_LISTENER, Endpoint, endpoint_of
from raylog.actors.node_hosts import COMMAND, EXTERNAL_HOST, NODE_HOST, fill, has_placeholder
from raylog.actors.runtime.base import Runtime
from raylog.wire.errors import InvalidConfig

LISTENERS = "listeners"
ADVERTISED = "advertised.listeners"
PROTOCOLS = "listener.security.protocol.map"
INTER_BROKER = "inter.broker.listener.name"
_SERVED = "PLAINTEXT"
_KNOWN_PROTOCOLS = (_SERVED, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ENDPOINT = re.compile(r"(.*)://(\{[a-z.]*\}|\[?[0-9a-zA-Z\-%._:]*\]?):(-?[0-9]+)", re.ASCII)
_PORT_MAX = 65_535
_PORT_DIGITS_MAX = 10
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Listeners:
    """The listeners of a broker."""

    listening: tuple[Endpoint, ...]
    """An empty host means every interface, port 0 any free port."""
    advertised: tuple[Endpoint, ...]
    """Endpoints told to clients, the inter-broker one first. Port 0 means the listening port."""

    def __str__(self) -> str:
        """The advertised endpoints."""
        return ", ".join(map(str, self.advertised))

    def bound_to(self, held: Mapping[str, socket.socket]) -> Listeners:
        """Return a copy with the port that is held for each listener."""
        ports = {listener: holder.getsockname()[1] for listener, holder in held.items()}
        listening = tuple(one._replace(port=ports[one.listener]) for one in self.listening)
        advertised = tuple(
            one._replace(port=one.port or ports[one.listener]) for one in self.advertised
        )
        return Listeners(listening, advertised)


# ---- reading -------------------------------------------------------------------------------


def read_listeners(settings: BrokerSettings) -> Listeners:
    """Parse where to listen and what to advertise; raises InvalidConfig.

    As in Kafka, an empty host is advertised as this machine's name.
    """
    protocols = _protocols(settings.raw(PROTOCOLS) or "")
    listening = _endpoints(settings, LISTENERS, protocols)
    _check_ports(settings, listening)
    inter_broker = _inter_broker(settings, protocols)
    advertised = listening
    if settings.raw(ADVERTISED) is not None:
        advertised = _endpoints(settings, ADVERTISED, protocols)
    _check_names(inter_broker, listening, advertised)
    _check_routable(advertised)
    for one in listening:
        if protocols[one.listener] != _SERVED:
            raise InvalidConfig(
                f"listener {one.listener} has the security protocol {protocols[one.listener]}; "
                f"only {_SERVED} is served"
            )
    first = sorted(advertised, key=lambda one: one.listener != inter_broker)
    named = tuple(one._replace(host=one.host or socket.gethostname()) for one in first)
    return Listeners(listening, named)


async def on_this_node(
    runtime: Runtime, listeners: Listeners, settings: BrokerSettings
) -> Listeners:
    """Return a copy with this node's hosts in place of placeholders; raises InvalidConfig."""
    hosts = {one.host for one in (*listeners.listening, *listeners.advertised)}
    hosts = {host for host in hosts if has_placeholder(host)}
    if not hosts:
        return listeners
    node, command = await runtime.this_node(), settings.raw(COMMAND)
    filled = {host: await runtime.run_blocking(fill, host, node, command) for host in hosts}
    listening, advertised = (
        tuple(one._replace(host=filled.get(one.host, one.host)) for one in endpoints)
        for endpoints in (listeners.listening, listeners.advertised)
    )
    _check_routable(advertised)
    return Listeners(listening, advertised)


def _check_routable(advertised: Sequence[Endpoint]) -> None:
    for one in advertised:
        if is_wildcard(one.host):
            raise InvalidConfig(
                f"{ADVERTISED} cannot use the nonroutable meta-address {one.host}. Use a routable "
                "IP address."
            )


def _protocols(text: str) -> dict[str, str]:
    """Parse `listener.security.protocol.map` into listener names to security protocols."""
    texts: dict[str, str] = {}
    text = text.rstrip(", ")
    for item in text.split(",") if text else ():
        name, colon, protocol = item.rpartition(":")
        if not colon:
            raise InvalidConfig(
                f"Error parsing configuration property '{PROTOCOLS}': expected NAME:PROTOCOL, "
                f"found {item.strip()!r}"
            )
        texts[name.strip()] = protocol.strip()
    found: dict[str, str] = {}
    for name, written in texts.items():
        listener, protocol = _normalised(name), written.upper()
        if protocol not in _KNOWN_PROTOCOLS:
            raise InvalidConfig(f"Invalid security protocol `{written}` defined in {PROTOCOLS}")
        if listener in found:
            raise InvalidConfig(f"{PROTOCOLS} has listener {listener} twice")
        found[listener] = protocol
    return found


def _inter_broker(settings: BrokerSettings, protocols: Mapping[str, str]) -> str:
    name = settings.raw(INTER_BROKER)
    if name is None:
        return DEFAULT_LISTENER
    listener = _normalised(name)
    if listener not in protocols:
        raise InvalidConfig(
            f"Listener with name {listener} defined in {INTER_BROKER} not found in {PROTOCOLS}."
        )
    return listener


def _normalised(name: str) -> str:
    """Return a listener's name in upper case, as Kafka compares and reports it."""
    if not name.strip():
        raise InvalidConfig("The provided listener name is null or empty string")
    return name.upper()


def _endpoints(
    settings: BrokerSettings, key: str, protocols: Mapping[str, str]
) -> tuple[Endpoint, ...]:
    """Parse the endpoints of a setting, in order; repeated texts count once."""
    items = _items(settings, key)
    try:
        found = tuple(_endpoint(item, protocols) for item in items)
    except InvalidConfig as refused:
        raise _not_created(items, str(refused)) from refused
    if len({one.listener for one in found}) < len(found):
        raise _not_created(
            items, f"Each listener must have a different name, listeners: {_listed(items)}"
        )
    return found


def _items(settings: BrokerSettings, key: str) -> list[str]:
    items = [item.strip() for item in (settings.raw(key) or "").split(",")]
    if items == [""]:
        raise InvalidConfig(f"Configuration '{key}' must not be empty.")
    if "" in items:
        raise InvalidConfig(f"Configuration '{key}' values must not be empty.")
    return list(dict.fromkeys(items))


def _not_created(items: Sequence[str], why: str) -> InvalidConfig:
    return InvalidConfig(f"Error creating broker listeners from '{_listed(items)}': {why}")


def _listed(items: Sequence[str]) -> str:
    return f"[{', '.join(items)}]"


def _endpoint(text: str, protocols: Mapping[str, str]) -> Endpoint:
    matched = _ENDPOINT.fullmatch(text)
    if matched is None:
        raise InvalidConfig(f"Unable to parse {text} to a broker endpoint")
    name, host, port = matched.groups()
    listener = _normalised(name)
    if len(port) > _PORT_DIGITS_MAX or not 0 <= int(port) <= _PORT_MAX:
        raise InvalidConfig(f"expected a port from 0 to {_PORT_MAX}, found {port}")
    if host.startswith("{") and not has_placeholder(host):
        raise InvalidConfig(f"expected {NODE_HOST} or {EXTERNAL_HOST}, found {host}")
    if listener not in protocols:
        raise InvalidConfig(f"No security protocol defined for listener {listener}")
    return Endpoint(listener, host.strip("[]"), int(port))


def _check_ports(settings: BrokerSettings, listening: Sequence[Endpoint]) -> None:
    """Check that each listener has its own port. An IPv4 and an IPv6 address may share one."""
    items = _items(settings, LISTENERS)
    sharing: dict[int, list[Endpoint]] = defaultdict(list)
    for one in listening:
        sharing[one.port].append(one)
    for port, found in sharing.items():
        why = _why_not_shared(found, _listed(items)) if port and len(found) > 1 else None
        if why is not None:
            raise _not_created(items, why)


def _why_not_shared(sharing: Sequence[Endpoint], listed: str) -> str | None:
    """Return why these listeners may not share a port; None if they may."""
    port = sharing[0].port
    versions = [address.version for one in sharing if (address := _ip_address(one.host))]
    named = len(sharing) - len(versions)
    if named > 1:
        return f"Each listener must have a different port, listeners: {listed}"
    if len(versions) != 2:
        return (
            "Each listener must have a different port unless exactly one listener has an IPv4 "
            f"address and the other IPv6 address, listeners: {listed}, port: {port}"
        )
    if named or sorted(versions) != [4, 6]:
        return (
            "If you have two listeners on the same port then one needs to be IPv4 and the other "
            f"IPv6, listeners: {listed}, port: {port}"
        )
    return None


def _check_names(
    inter_broker: str, listening: Sequence[Endpoint], advertised: Sequence[Endpoint]
) -> None:
    """Check that the inter-broker listener is advertised and every advertised one listens."""
    names = ",".join(one.listener for one in advertised)
    if endpoint_of(advertised, inter_broker) is None:
        raise InvalidConfig(
            f"{INTER_BROKER} must be a listener name defined in {ADVERTISED}. The valid options "
            f"based on currently configured listeners are {names}"
        )
    if any(endpoint_of(listening, one.listener) is None for one in advertised):
        raise InvalidConfig(
            f"{ADVERTISED} listener names must be equal to or a subset of the ones defined in "
            f"{LISTENERS}. Found {names}. The valid options based on the current configuration "
            f"are {','.join(one.listener for one in listening)}"
        )


# ---- reach ---------------------------------------------------------------------------------


def is_wildcard(host: str) -> bool:
    """Whether a host is the wildcard address, in any spelling: 0.0.0.0, 0, ::, 0:0::0."""
    address = _address_of(host)
    return address is not None and int(address) == 0


def _ip_address(host: str) -> _Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _address_of(host: str) -> _Address | None:
    """Parse a host that is an address, not a name; also the short forms that sockets accept."""
    address = _ip_address(host)
    if address is None:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except OSError:
            return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def is_beyond_loopback(host: str) -> bool:
    """Whether other machines may reach a listener on this host. True for an unknown name."""
    address = _address_of(host)
    if address is not None:
        return not address.is_loopback
    try:
        found = socket.getaddrinfo(host or None, None, flags=socket.AI_PASSIVE)
    except OSError:
        return True
    return not all(ipaddress.ip_address(str(one[4][0])).is_loopback for one in found)


def for_broker(settings: Mapping[str, str], at: int) -> dict[str, str]:
    """Return the settings of the `at`-th broker on one machine, with ports higher by `at`.

    Port 0 stays 0.
    """
    return {
        key: ",".join(_with_next_port(item, at) for item in text.split(","))
        if key in (LISTENERS, ADVERTISED)
        else text
        for key, text in settings.items()
    }


def _with_next_port(text: str, at: int) -> str:
    start, colon, port = text.rpartition(":")
    if not port.strip().isdecimal() or not int(port):
        return text
    return f"{start}{colon}{int(port) + at}"


def check_reach(settings: BrokerSettings, *, insecure: bool) -> None:
    """Raise InvalidConfig if other machines can reach a listener and `insecure` is false.

    Every client may do anything there and can read others' traffic.
    """
    for one in read_listeners(settings).listening:
        if not insecure and is_beyond_loopback(one.host):
            raise InvalidConfig(
                f"other machines can reach {one}, where nothing is encrypted and nobody has to "
                "say who he is"
            )


# ---- ports ---------------------------------------------------------------------------------


def reserve_all(
    listening: Sequence[Endpoint], last_ports: Mapping[str, int], *, adopting: bool
) -> dict[str, socket.socket]:
    """Hold the port of each listener, as `reserve_again` does; all of them or none."""
    held: dict[str, socket.socket] = {}
    try:
        for one in listening:
            last_port = last_ports.get(one.listener, 0)
            held[one.listener] = reserve_again(one, last_port, adopting=adopting)
    except InvalidConfig:
        release(held)
        raise
    return held


def release(held: Mapping[str, socket.socket]) -> None:
    """Release ports."""
    for holder in held.values():
        holder.close()


def reserve_again(endpoint: Endpoint, last_port: int, *, adopting: bool) -> socket.socket:
    """Hold a port. For port 0, prefer the port of a crashed process, if it is free.

    Clients still connect to that port, and surviving gateways (`adopting`) still listen on it.
    """
    if endpoint.port or not last_port:
        return reserve(endpoint, adopting=adopting)
    try:
        return reserve(endpoint._replace(port=last_port), adopting=adopting)
    except InvalidConfig:
        if adopting:
            raise
        return reserve(endpoint, adopting=False)


def reserve(endpoint: Endpoint, *, adopting: bool) -> socket.socket:
    """Hold a port without serving it, so that only this user's gateways can listen on it.

    Gateways share the port by SO_REUSEPORT, which alone would let a second cluster share it
    unnoticed. So the port is first bound exclusively, and sharing is enabled afterwards. While
    gateways of the last broker process still listen (`adopting`) it is shared from the start.
    Raises InvalidConfig if the port is taken.
    """
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    holder = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Connections of an earlier broker in TIME_WAIT must not keep the port.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if adopting:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind((endpoint.host, endpoint.port))
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError as taken:
        holder.close()
        raise InvalidConfig(f"cannot listen on {endpoint}: {taken.strerror}") from taken
    return holder
