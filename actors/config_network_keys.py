"""Broker keys about listeners and client connections; some can be given for one listener alone.

`listener.name.external.max.connections` is the limit of the listener EXTERNAL: the name is written
in lower case there, as in Apache Kafka. Of a key without it the value holds for all listeners
together.
"""

from __future__ import annotations

from dataclasses import replace

from raylog.actors.config_keys import INT_MAX, ConfigKey, ConfigType

_T = ConfigType
MAX_CONNECTIONS = "max.connections"
CREATION_RATE = "max.connection.creation.rate"
LISTENER_PREFIX = "listener.name."

NETWORK_KEYS = (
    ConfigKey(
        "listeners",
        _T.LIST,
        "PLAINTEXT://:9092",
        "Where clients connect: NAME://host:port of each listener. An empty host is every "
        "interface, {node.host} the address of the Ray node, port 0 a free one.",
    ),
    ConfigKey(
        "advertised.listeners",
        _T.LIST,
        None,
        "What clients of each listener are told to connect to; unset means the listeners. Clients "
        "are not told of listeners that are missing here. {external.host} is the node's external "
        "host: its label raylog-external-host, RAYLOG_EXTERNAL_HOST, or external.host.command.",
    ),
    ConfigKey(
        "listener.security.protocol.map",
        _T.STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "The security protocol of each listener, NAME:PROTOCOL. Only PLAINTEXT is served.",
    ),
    ConfigKey(
        "inter.broker.listener.name",
        _T.STRING,
        None,
        "The listener whose address the raylog commands are told; unset means PLAINTEXT. Brokers "
        "reach each other over links, not over listeners.",
    ),
    ConfigKey(
        "external.host.command",
        _T.STRING,
        None,
        "A shell command that prints the host that {external.host} stands for in listeners, "
        "advertised.listeners and link.advertised.host. It runs where the broker runs, if neither "
        "the label raylog-external-host of the Ray node nor RAYLOG_EXTERNAL_HOST says it.",
    ),
    ConfigKey(
        "link.bind.host",
        _T.STRING,
        None,
        "Where the processes of a broker accept links from those on other machines: an address of "
        "the machine, or 0.0.0.0; unset means the address of the Ray node.",
    ),
    ConfigKey(
        "link.advertised.host",
        _T.STRING,
        None,
        "Where processes on other machines reach those of a broker; unset means the address of the "
        "Ray node. {external.host} stands for the node's external host.",
    ),
    ConfigKey(
        "link.port.range",
        _T.STRING,
        None,
        "The TCP ports of links between machines, FIRST-LAST; each process of a broker takes one, "
        "and so does the controller. Unset means any free port.",
    ),
    ConfigKey(
        "socket.request.max.bytes",
        _T.INT,
        "104857600",
        "Largest request; a longer one closes its connection.",
        low=1,
    ),
    ConfigKey(
        "socket.send.buffer.bytes",
        _T.INT,
        "-1",
        "The kernel's send buffer of a client connection; -1 is the system's default.",
        low=-1,
    ),
    ConfigKey(
        "socket.receive.buffer.bytes",
        _T.INT,
        "-1",
        "The kernel's receive buffer of a client connection; -1 is the system's default.",
        low=-1,
    ),
    ConfigKey(
        "max.connections",
        _T.INT,
        str(INT_MAX),
        "Client connections a broker holds at a time; further ones wait. With 0 nobody could "
        "connect, to change it either.",
        low=1,
        dynamic=True,
    ),
    ConfigKey(
        "max.connections.per.ip",
        _T.INT,
        str(INT_MAX),
        "Client connections from one address; further ones are closed. 0 only with overrides.",
        low=0,
        dynamic=True,
    ),
    ConfigKey(
        "max.connections.per.ip.overrides",
        _T.STRING,
        "",
        "Limits of single hosts instead of max.connections.per.ip: "
        "`127.0.0.1:200,example.org:100`.",
        counts_hosts=True,
        dynamic=True,
    ),
    ConfigKey(
        "max.connection.creation.rate",
        _T.INT,
        str(INT_MAX),
        "Connections accepted in a second; further ones wait (KIP-612).",
        low=1,
        dynamic=True,
    ),
    ConfigKey(
        "connections.max.idle.ms",
        _T.LONG,
        "600000",
        "Idle time after which a connection is closed; -1 never.",
    ),
    ConfigKey(
        "queued.max.request.bytes",
        _T.LONG,
        "-1",
        "Most bytes that requests in progress and answers that clients have not read yet may take "
        "in a gateway process, over all its connections. At the limit it reads no more, except "
        "the rest of one request at a time. -1 is no limit.",
    ),
    ConfigKey(
        "fetch.max.bytes",
        _T.INT,
        "57671680",
        "Most bytes of one fetch answer, beside a first batch that is larger.",
        low=1024,
    ),
    ConfigKey(
        "max.incremental.fetch.session.cache.slots",
        _T.INT,
        "1000",
        "Fetch sessions a broker remembers; each of its gateways has an equal share.",
        low=0,
    ),
    ConfigKey(
        "max.request.partition.size.limit",
        _T.INT,
        "2000",
        "Most partitions in one answer of DescribeTopicPartitions.",
        low=1,
    ),
)

_OF_LISTENERS = {
    key.name: key for key in NETWORK_KEYS if key.name in (MAX_CONNECTIONS, CREATION_RATE)
}


def of_listener(listener: str, key: str) -> str:
    """The name of a key for one listener."""
    return f"{LISTENER_PREFIX}{listener.lower()}.{key}"


def listener_key(name: str) -> ConfigKey | None:
    """The key of that name for one listener; None if it is none."""
    for key in _OF_LISTENERS.values():
        listener = name.removeprefix(LISTENER_PREFIX).removesuffix(f".{key.name}")
        if listener and listener == listener.lower() and name == of_listener(listener, key.name):
            return replace(
                key,
                name=name,
                default=None,
                documentation=f"The same as {key.name}, of one listener.",
            )
    return None
