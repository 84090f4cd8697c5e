"""Where the brokers of a cluster serve `/metrics`: each reports its `health.listener`.

Apache Kafka has no such setting: its brokers are not found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.client.admin.topics import Resource, ResourceType, TopicAdmin
from raylog.client.core import Core
from raylog.client.errors import ClientError
from raylog.client.io import run_blocking
from raylog.client.settings import bare_host
from raylog.client.sockets import BlockingIo
from raylog.wire.errors import KafkaError

if TYPE_CHECKING:
    from raylog.client.settings import ClientSettings

SETTING = "health.listener"
_EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - reported, not listened on
Address = tuple[str, int]


async def metrics_listeners(core: Core) -> dict[int, Address]:
    """Host and port by broker id, of the brokers in the metadata that `core` has.

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
    """The same with connections of its own, and blocking; raises ClientError and KafkaError."""
    io = BlockingIo()
    core = Core(io, settings)

    async def find() -> dict[int, Address]:
        await core.repeat(lambda: core.refresh([]))
        return await metrics_listeners(core)

    try:
        return run_blocking(find())
    finally:
        core.close()
        io.close()


def address_of(listener: str, broker_host: str) -> Address | None:
    """Where a client reaches a listener; None if it is not HOST:PORT.

    A listener on all interfaces is reached at the host that the broker advertises.
    """
    host, _, port = listener.rpartition(":")
    if not (port.isascii() and port.isdecimal()) or not 0 < int(port) <= 65_535:
        return None
    name = bare_host(host)
    if name is None:
        return None
    return (broker_host if name in _EVERYWHERE else name), int(port)
