"""Broker keys of listeners and client connections; some can be set for a single listener.

`listener.name.external.max.connections` limits the listener EXTERNAL, whose name is in lower case
there, as in Apache Kafka. A key without the prefix applies to all listeners together.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from raylog.actors.config.keys import INT_MAX, ConfigKey, ConfigType, ResourceType

_T = ConfigType
_broker = partial(ConfigKey, ResourceType.BROKER)
LISTENER_PREFIX = "listener.name."

NETWORK_KEYS = (
    _broker(
        "listeners",
        _T.LIST,
        "PLAINTEXT://:9092",
        "The listeners that clients connect to, each as NAME://host:port. An empty host means all "
        "interfaces, {node.host} the address of the Ray node, and port 0 any free port.",
        reader="broker.listeners",
    ),
    _broker(
        "advertised.listeners",
        _T.LIST,
        None,
        "The addresses that the broker gives to clients, each as NAME://host:port. Unset: those of "
        "listeners. A listener that is missing here is not advertised. {external.host} stands for "
        "the external host of the node: its label raylog-external-host, RAYLOG_EXTERNAL_HOST, or "
        "the output of external.host.command.",
        reader="broker.listeners",
    ),
    _broker(
        "listener.security.protocol.map",
        _T.STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "The security protocol of each listener, as NAME:PROTOCOL. Only PLAINTEXT is supported.",
        reader="broker.listeners",
    ),
    _broker(
        "inter.broker.listener.name",
        _T.STRING,
        None,
        "Name of the listener whose address raylog commands use. Unset: PLAINTEXT. Brokers reach "
        "each other over links, not over listeners.",
        reader="broker.listeners",
    ),
    _broker(
        "external.host.command",
        _T.STRING,
        None,
        "A shell command that prints the host that {external.host} stands for in listeners, "
        "advertised.listeners and link.advertised.host. It runs on the broker's machine, unless "
        "the Ray node has the label raylog-external-host or RAYLOG_EXTERNAL_HOST is set.",
        reader="node_hosts",
    ),
    _broker(
        "link.bind.host",
        _T.STRING,
        None,
        "Address on which a broker's processes accept links from other machines; 0.0.0.0 means all "
        "interfaces. Unset: the address of the Ray node.",
        reader="broker.links",
    ),
    _broker(
        "link.advertised.host",
        _T.STRING,
        None,
        "Host at which processes on other machines reach those of the broker. Unset: the address "
        "of the Ray node. {external.host} stands for the external host of the node.",
        reader="broker.links",
    ),
    _broker(
        "link.port.range",
        _T.STRING,
        None,
        "TCP ports for links between machines, as FIRST-LAST. Each process of a broker uses one of "
        "them, and so does the controller. Unset: any free port.",
        reader="broker.links",
    ),
    _broker(
        "socket.request.max.bytes",
        _T.INT,
        "104857600",
        "Maximum size of a request. The broker closes a connection that sends a larger one.",
        low=1,
        reader="gateway.actor",
    ),
    _broker(
        "socket.send.buffer.bytes",
        _T.INT,
        "-1",
        "Size of the send buffer (SO_SNDBUF) of client connections. -1 uses the operating system's "
        "default.",
        low=-1,
        reader="gateway.actor",
    ),
    _broker(
        "socket.receive.buffer.bytes",
        _T.INT,
        "-1",
        "Size of the receive buffer (SO_RCVBUF) of client connections. -1 uses the operating "
        "system's default.",
        low=-1,
        reader="gateway.actor",
    ),
    _broker(
        "max.connections",
        _T.INT,
        str(INT_MAX),
        "Maximum number of client connections of the broker. Further connections wait. 0 is "
        "refused, because nobody could connect to change it.",
        low=1,
        dynamic=True,
        reader="gateway.connections",
    ),
    _broker(
        "max.connections.per.ip",
        _T.INT,
        str(INT_MAX),
        "Maximum number of client connections from one IP address. Further ones are closed. 0 is "
        "allowed only with max.connections.per.ip.overrides.",
        low=0,
        dynamic=True,
        reader="config",
    ),
    _broker(
        "max.connections.per.ip.overrides",
        _T.STRING,
        "",
        "Limits for single hosts that replace max.connections.per.ip, such as "
        "`127.0.0.1:200,example.org:100`.",
        counts_hosts=True,
        dynamic=True,
        reader="config",
    ),
    _broker(
        "max.connection.creation.rate",
        _T.INT,
        str(INT_MAX),
        "Maximum number of connections that the broker accepts per second. Further ones wait "
        "(KIP-612).",
        low=1,
        dynamic=True,
        reader="gateway.connections",
    ),
    _broker(
        "connections.max.idle.ms",
        _T.LONG,
        "600000",
        "The broker closes client connections that have been idle for this time. -1 disables this.",
        reader="gateway.connections",
    ),
    _broker(
        "queued.max.request.bytes",
        _T.LONG,
        "-1",
        "Maximum memory, per gateway process, of requests in progress and of responses that "
        "clients have not read. At the limit the gateway reads no more requests, except for the "
        "rest of one at a time. -1 means no limit.",
        reader="gateway.actor",
    ),
    _broker(
        "fetch.max.bytes",
        _T.INT,
        "57671680",
        "Maximum size of a fetch response. A first batch that is larger is sent whole.",
        low=1024,
        reader="gateway.actor",
    ),
    _broker(
        "max.incremental.fetch.session.cache.slots",
        _T.INT,
        "1000",
        "Maximum number of incremental fetch sessions that the broker keeps, divided equally among "
        "its gateways.",
        low=0,
        reader="gateway.actor",
    ),
    _broker(
        "max.request.partition.size.limit",
        _T.INT,
        "2000",
        "Maximum number of partitions in one response to DescribeTopicPartitions.",
        low=1,
        reader="gateway.handlers.describe_topic_partitions",
    ),
)

_OF_LISTENERS = ("max.connections", "max.connection.creation.rate")


def of_listener(listener: str, key: str) -> str:
    """Return the name of a key for one listener."""
    return f"{LISTENER_PREFIX}{listener.lower()}.{key}"


def listener_key(name: str) -> ConfigKey | None:
    """Return the key for one listener that has this name, or None."""
    for key in NETWORK_KEYS:
        listener = name.removeprefix(LISTENER_PREFIX).removesuffix(f".{key.name}")
        if (
            key.name in _OF_LISTENERS
            and listener
            and listener == listener.lower()
            and name == of_listener(listener, key.name)
        ):
            what = f"Sets {key.name} for this listener only."
            return replace(key, name=name, default=None, documentation=what)
    return None
