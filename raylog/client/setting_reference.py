"""The settings of all clients as one table: the documentation page, and advice on unknown names."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import MISSING, fields
from enum import Enum

from raylog.client.consumer.settings import CONSUMER, ConsumerSettings
from raylog.client.foreign_names import advice_on
from raylog.client.security.settings import SecuritySettings
from raylog.client.setting_definitions import CLIENT, PRODUCER, SECURITY
from raylog.client.setting_types import Setting
from raylog.client.settings import ClientSettings, ProducerSettings

Home = (
    type[ClientSettings] | type[SecuritySettings] | type[ProducerSettings] | type[ConsumerSettings]
)

TABLE: dict[type[object], tuple[Setting, ...]] = {
    ClientSettings: CLIENT,
    SecuritySettings: SECURITY,
    ProducerSettings: PRODUCER,
    ConsumerSettings: CONSUMER,
}

_OBJECT = "give it to the constructor as an object: "
ELSEWHERE = {
    "key.serializer": _OBJECT + "key_serializer=...",
    "value.serializer": _OBJECT + "value_serializer=...",
    "key.deserializer": _OBJECT + "key_deserializer=...",
    "value.deserializer": _OBJECT + "value_deserializer=...",
    "metric.reporters": "read statistics() instead",
    "metrics.num.samples": "read statistics() instead",
    "metrics.recording.level": "read statistics() instead",
    "metrics.sample.window.ms": "read statistics() instead",
    "auto.include.jmx.reporter": "there is no JMX: read statistics() instead",
    "enable.metrics.push": "metrics are not pushed to brokers: read statistics() instead",
    "send.buffer.bytes": "the system sizes socket buffers",
    "receive.buffer.bytes": "the system sizes socket buffers",
    "socket.connection.setup.timeout.max.ms": "set socket.connection.setup.timeout.ms, which "
    "does not grow",
    "metadata.max.idle.ms": "topics that are not used cost nothing: leave it out",
    "transaction.two.phase.commit.enable": "two-phase commit by another system is not supported",
    "sasl.kerberos.service.name": "Kerberos is not supported",
    "sasl.oauthbearer.token.endpoint.url": "OAUTHBEARER is not supported",
    "sasl.login.callback.handler.class": "Java classes cannot be used: set sasl.username and "
    "sasl.password",
    "sasl.client.callback.handler.class": "Java classes cannot be used: set sasl.username and "
    "sasl.password",
    "security.providers": "Java classes cannot be used: OpenSSL does the encryption",
    "ssl.truststore.password": "a PEM file needs none",
    "ssl.keystore.password": "a PEM file needs none: an encrypted key has ssl.key.password",
    "ssl.keystore.key": "write the key to a PEM file and name it by ssl.keystore.location",
    "ssl.keystore.certificate.chain": "write it to a PEM file and name it by ssl.keystore.location",
    "ssl.engine.factory.class": "give an ssl.SSLContext as ssl_context=...",
    "ssl.enabled.protocols": "give an ssl.SSLContext as ssl_context=... to bound TLS versions",
    "ssl.protocol": "give an ssl.SSLContext as ssl_context=... to bound TLS versions",
    "share.acknowledgement.mode": "share groups are not supported",
}
"""Known names that have no effect, with what to do instead."""


_SIMILAR = 0.8
"""Least similarity of a suggested argument; high, since arguments are tried before settings."""


def why_unknown(
    spelled: str, names: Sequence[str], arguments: Sequence[str] = (), *, has_dots: bool = False
) -> str:
    """Return what is wrong with a name that is not in a client's `names`, and what to do.

    `arguments`, which are not settings, may be suggested as well. `has_dots`: other settings in the
    same mapping are spelled with dots, so a name of one word is taken to be dotted, too.
    """
    has_dots = "." in spelled or (has_dots and "_" not in spelled)
    name = spelled.replace("_", ".")
    meant = difflib.get_close_matches(spelled, arguments, 1, _SIMILAR)
    if meant:
        return f"unknown argument {spelled!r}: the nearest is {meant[0]!r}"
    if name in ELSEWHERE:
        return f"{spelled}: {ELSEWHERE[name]}"
    for table, others in ((PRODUCER, "producers"), (CONSUMER, "consumers")):
        if any(setting.name == name for setting in table):
            return f"{spelled} is a setting of {others}, not of this client"
    for setting in (one for table in TABLE.values() for one in table):
        if setting.field == spelled and setting.name in names:
            name = _with(setting.name, has_dots=has_dots)
            return f"unknown setting {spelled!r}: Kafka's name is {name!r}"
    advice = advice_on(name)
    if advice is not None:
        return f"unknown setting {spelled!r}: {advice}"
    nearest = difflib.get_close_matches(name, names, 1, 0.6)
    hint = f": the nearest is {_with(nearest[0], has_dots=has_dots)!r}" if nearest else ""
    return f"unknown setting {spelled!r}{hint}"


def _with(name: str, *, has_dots: bool) -> str:
    """Return a name with dots or with underscores, as the caller writes names."""
    return name if has_dots else name.replace(".", "_")


def default_of(home: Home, setting: Setting) -> object:
    """Return a field's default."""
    for field in fields(home):
        if field.name == setting.field:
            if field.default is not MISSING:
                return field.default
            break
    raise AssertionError(f"{home.__name__}.{setting.field} has no default")


def _shown(value: object) -> str:
    """Format a default for readers."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def _default_text(home: Home, setting: Setting) -> str:
    value = default_of(home, setting)
    special = {"acks": "all", "read_committed": "read_uncommitted"}
    shown = special.get(setting.field) or _shown(value)
    ours = f"`{shown}`" if shown else "none"
    return f"{ours} (Kafka's: {setting.kafka_default})" if setting.kafka_default else ours


_TITLES: tuple[tuple[Home, str], ...] = (
    (ClientSettings, "Producers, consumers and admins"),
    (SecuritySettings, "TLS and SASL: producers, consumers and admins"),
    (ProducerSettings, "Producers"),
    (ConsumerSettings, "Consumers"),
)
_HEAD = """# Settings of the Python client

This page is generated from the client's tables of settings:
`python -m raylog.client.setting_reference`.

Settings have Kafka's names: with dots or underscores in a mapping, with underscores as keyword
arguments. `Producer({"bootstrap.servers": "localhost:9092", "linger.ms": 20})` and
`Producer("localhost:9092", linger_ms=20)` mean the same. Values can be text, as in a properties
file. `InvalidSetting` is raised for an unknown name (it suggests the most similar one), for a wrong
value (it says what is expected), and for settings that contradict each other.

`bootstrap.servers` is required: one or more `host:port`, separated by commas. The default port is
9092. `client.dns.lookup` is always `use_all_dns_ips`.
"""
_TAIL = """
## Settings of Kafka that are rejected

| name | what to do |
| --- | --- |
"""


def render_markdown() -> str:
    """Render the documentation page about settings."""
    parts = [_HEAD]
    for home, title in _TITLES:
        parts.append(
            f"\n## {title}\n\n| name | field of `{home.__name__}` | value | default | meaning |\n"
            "| --- | --- | --- | --- | --- |\n"
        )
        parts.extend(
            f"| `{one.name}` | `{one.field}` | {one.kind.expected} | {_default_text(home, one)} "
            f"| {one.doc} |\n"
            for one in TABLE[home]
        )
    parts.append(_TAIL)
    parts.extend(f"| `{name}` | {advice} |\n" for name, advice in sorted(ELSEWHERE.items()))
    return "".join(parts)


if __name__ == "__main__":
    print(render_markdown(), end="")  # noqa: T201  # the page is this program's output
