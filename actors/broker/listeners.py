"""Where clients connect: reading `listeners`, and holding the port for the gateways."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from raylog.actors.config import BrokerSettings
from raylog.wire.errors import InvalidConfig


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A host and a port; an empty host is every interface, port 0 a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host or '*'}:{self.port}"


def endpoints(settings: BrokerSettings) -> tuple[Endpoint, Endpoint]:
    """Where to listen, and what clients are told; raises InvalidConfig.

    As in Kafka an empty host is advertised as this machine's name, and the address that stands for
    all of a machine's is never advertised: a client would connect to itself.
    """
    listening = _only_endpoint(settings, "listeners")
    if settings.raw("advertised.listeners") is None:
        advertised = Endpoint(listening.host or socket.gethostname(), listening.port)
    else:
        advertised = _only_endpoint(settings, "advertised.listeners")
    if not advertised.host:
        raise InvalidConfig("advertised.listeners must name a host that clients can reach")
    if _is_wildcard(advertised.host):
        raise InvalidConfig(
            "advertised.listeners cannot use the nonroutable meta-address "
            f"{advertised.host}. Use a routable IP address."
        )
    return listening, advertised


def _is_wildcard(host: str) -> bool:
    """Whether a host is every address of a machine, in any spelling: 0.0.0.0, 0, ::, 0:0::0."""
    address = _address_of(host)
    return address is not None and int(address) == 0


def _address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a host is, rather than names; also in the short forms that sockets take."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except OSError:
            return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def is_beyond_loopback(host: str) -> bool:
    """Whether other machines may reach what listens on a host; true of a name nobody knows."""
    address = _address_of(host)
    if address is not None:
        return not address.is_loopback
    try:
        found = socket.getaddrinfo(host or None, None, flags=socket.AI_PASSIVE)
    except OSError:
        return True
    return not all(ipaddress.ip_address(str(one[4][0])).is_loopback for one in found)


def check_reach(settings: BrokerSettings, *, insecure: bool) -> None:
    """Raise InvalidConfig if other machines would reach the listeners and that was not asked for.

    Whoever reaches them may do everything, and reads what others send.
    """
    listening, _ = endpoints(settings)
    if not insecure and is_beyond_loopback(listening.host):
        raise InvalidConfig(
            f"other machines can reach {listening}, where nothing is encrypted and nobody has to "
            "say who he is"
        )


def _only_endpoint(settings: BrokerSettings, name: str) -> Endpoint:
    items = settings.items(name)
    if len(items) != 1:
        raise InvalidConfig(f"{name} must name one listener, not {len(items)}")
    protocol, separator, address = items[0].partition("://")
    host, colon, port = address.rpartition(":")
    if not separator or not colon or not port.isdecimal() or int(port) > 65_535:
        raise InvalidConfig(f"{name} must look like PLAINTEXT://host:port, not {items[0]}")
    if protocol.upper() != "PLAINTEXT":
        raise InvalidConfig(f"{name} names the protocol {protocol}; only PLAINTEXT is served")
    return Endpoint(host.strip("[]"), int(port))


def reserve_again(endpoint: Endpoint, last_port: int, *, adopting: bool) -> socket.socket:
    """Hold a port; where any will do, the one that a crashed process had, if it is free.

    Its clients still look for it there, and its gateways (`adopting`) still listen there.
    """
    if endpoint.port or not last_port:
        return reserve(endpoint, adopting=adopting)
    try:
        return reserve(Endpoint(endpoint.host, last_port), adopting=adopting)
    except InvalidConfig:
        if adopting:
            raise
        return reserve(endpoint, adopting=False)


def reserve(endpoint: Endpoint, *, adopting: bool) -> socket.socket:
    """Hold a port without serving it, so that only gateways of this user can listen on it.

    Gateways share the port by SO_REUSEPORT, which alone would also let a second cluster in
    silently. So the port is first bound exclusively; sharing is switched on behind that. Where
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
