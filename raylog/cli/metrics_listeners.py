"""Finds where the brokers of a cluster serve `/metrics`, by their setting `health.listener`.

Brokers of Apache Kafka are not found: they have no such setting.
"""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING

from raylog.client.admin.topics import Resource, ResourceType, TopicAdmin
from raylog.client.core import Core
from raylog.client.errors import ClientError
from raylog.client.io import run_blocking
from raylog.client.settings import bare_host
from raylog.client.sockets import connected
from raylog.wire.errors import KafkaError

if TYPE_CHECKING:
    from raylog.client.settings import ClientSettings

SETTING = "health.listener"
_EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - reported, not listened on
Address = tuple[str, int]
_TIMEOUT_S = 3.0
_BYTES_MAX = 16 * 1024 * 1024


async def metrics_listeners(core: Core) -> dict[int, Address]:
    """Return host and port by broker id, for the brokers in the metadata of `core`.

    Brokers that do not answer, do not serve metrics or do not let this user ask are left out.
    """
    admin = TopicAdmin(core)
    found = {}
    for broker, node in sorted(core.cluster.nodes.items()):
        try:
            entries = await admin.describe_configs(Resource(ResourceType.BROKER, str(broker)))
        except (ClientError, KafkaError):
            continue
        listener = next((one.value for one in entries if one.name == SETTING), None)
        address = address_of(listener or "", node.host)
        if address is not None:
            found[broker] = address
    return found


def find_metrics_listeners(settings: ClientSettings) -> dict[int, Address]:
    """Like `metrics_listeners`, with own connections. Blocks; raises ClientError and KafkaError."""
    with connected(settings) as core:
        run_blocking(core.repeat(lambda: core.refresh([])))
        return run_blocking(metrics_listeners(core))


def address_of(listener: str, broker_host: str) -> Address | None:
    """Return the address at which clients reach a listener; None if it is not HOST:PORT.

    A listener on all interfaces is reached at the host that the broker advertises.
    """
    host, _, port = listener.rpartition(":")
    if not (port.isascii() and port.isdecimal()) or not 0 < int(port) <= 65_535:
        return None
    name = bare_host(host)
    if name is None:
        return None
    return (broker_host if name in _EVERYWHERE else name), int(port)


def metrics_at(address: Address) -> str:
    """Return the text at `/metrics` of an address. Blocking, with a timeout; raises OSError."""
    asking = http.client.HTTPConnection(*address, timeout=_TIMEOUT_S)
    try:
        asking.request("GET", "/metrics")
        with asking.getresponse() as answer:
            if answer.status != http.client.OK:
                raise OSError(f"expected status 200, found {answer.status}")
            return answer.read(_BYTES_MAX).decode("utf-8", "replace")
    except http.client.HTTPException as failed:
        raise OSError(repr(failed)) from failed
    finally:
        asking.close()
