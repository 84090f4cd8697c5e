"""Settings under Kafka's names: from constructor arguments to the clients' dataclasses.

`X(config=None, /, **settings)`: `config` is bootstrap servers, or a mapping with Kafka's names,
dotted or underscored; keyword arguments are the same names with underscores. A setting that is
given twice, is unknown, has a wrong value or contradicts another is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from raylog.client.errors import InvalidSetting
from raylog.client.security.settings import SecuritySettings
from raylog.client.setting_definitions import CLIENT, PRODUCER, SECURITY
from raylog.client.setting_types import NAMES, Setting, read
from raylog.client.settings import ClientSettings, ProducerSettings, parse_bootstrap
from raylog.wire.compression import LEVELS

if TYPE_CHECKING:
    from raylog.client.consumer.settings import ConsumerSettings

Config = str | Mapping[str, object] | Iterable[str] | None
"""A client's first argument: bootstrap servers, or settings under Kafka's names."""
S = TypeVar("S")
Table = tuple[Setting, ...]

_CODEC_LEVELS = {f"compression.{codec.label}.level": codec.label for codec in LEVELS}
_JAAS = r"""(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s;"']+))"""
_STORE_TYPES = ("ssl.truststore.type", "ssl.keystore.type")
_DNS = "client.dns.lookup"
_PARTITIONER = "partitioner.class"
_NOT_WITH_PARTITIONER = (_PARTITIONER, "partitioner.ignore.keys")
_SERVERS = "bootstrap.servers"
_SPECIAL = (
    _SERVERS,
    _DNS,
    "sasl.jaas.config",
    *_STORE_TYPES,
)
_NOT_WITH_NEW_PROTOCOL = (
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "partition.assignment.strategy",
)


def client_and_producer(
    config: Config, settings: Mapping[str, object], partitioner: object = None
) -> tuple[ClientSettings, ProducerSettings]:
    """Return a producer's settings; raises InvalidSetting.

    `partitioner` is a name or a function; a function excludes all other partitioner settings.
    """
    given = _Given.collect(config, settings, PRODUCER)
    if isinstance(partitioner, str):
        given.add({_PARTITIONER: partitioner})
    elif partitioner is not None:
        _check_partitioner(partitioner, given)
    client, producer = given.client(), given.producer()
    least_ms = producer.linger_ms + client.request_timeout_ms
    if "delivery.timeout.ms" in given.values and producer.delivery_timeout_ms < least_ms:
        raise InvalidSetting(
            f"delivery.timeout.ms={producer.delivery_timeout_ms} must be at least linger.ms="
            f"{producer.linger_ms} + request.timeout.ms={client.request_timeout_ms}"
        )
    return client, producer


def client_and_consumer(
    config: Config, settings: Mapping[str, object], arguments: Sequence[str] = ()
) -> tuple[ClientSettings, ConsumerSettings]:
    """Return a consumer's settings; raises InvalidSetting.

    `arguments` names the caller's other arguments, so that an error about a typo can suggest them.
    """
    from raylog.client.consumer.settings import CONSUMER, ConsumerSettings  # not for producers

    given = _Given.collect(config, settings, CONSUMER, arguments)
    client, consumer = given.client(), given.build(ConsumerSettings, CONSUMER)
    if consumer.max_wait_ms >= client.request_timeout_ms:
        raise InvalidSetting(
            f"fetch.max.wait.ms={consumer.max_wait_ms} must be less than request.timeout.ms="
            f"{client.request_timeout_ms}: no fetch would be answered in time"
        )
    if given.says("enable.auto.commit") and consumer.enable_auto_commit and not consumer.group_id:
        raise InvalidSetting("enable.auto.commit=true needs a group.id, found none")
    if consumer.group_protocol == "consumer":
        for name in _NOT_WITH_NEW_PROTOCOL:
            if given.says(name):
                raise InvalidSetting(
                    f"{name} needs group.protocol=classic, found consumer: there the coordinator "
                    "sets it"
                )
    return client, consumer


def client_only(config: Config, settings: Mapping[str, object]) -> ClientSettings:
    """Return an admin client's settings; raises InvalidSetting."""
    return _Given.collect(config, settings, ()).client()


def settings_of(
    config: Config, client: ClientSettings | None, settings: Mapping[str, object]
) -> ClientSettings:
    """Return an admin client's settings; `client`, if given, excludes all others."""
    if client is None:
        return client_only(config, settings)
    if not isinstance(client, ClientSettings):
        raise InvalidSetting(f"expected ClientSettings, found {client!r}")
    if settings:
        raise InvalidSetting(f"ClientSettings take the place of {next(iter(settings))}: found both")
    return client


def _check_partitioner(partitioner: object, given: _Given) -> None:
    """Raise InvalidSetting unless it is a function, and no other partitioner setting is given."""
    if not callable(partitioner):
        raise InvalidSetting(
            f"partitioner: expected a function or a name, found {type(partitioner).__name__}"
        )
    for name in _NOT_WITH_PARTITIONER:
        if given.says(name):
            raise InvalidSetting(
                f"partitioner= is a function, which {name} contradicts: found both"
            )


class _Given:
    """Settings given by the user, each once, under Kafka's dotted names."""

    def __init__(self, own: Table, arguments: Sequence[str]) -> None:
        """`own` is the table beside that of all clients: the producer's, the consumer's or ()."""
        self.own = own
        self.arguments = arguments
        """Names that are not settings, but may be suggested for an unknown name."""
        self.values: dict[str, object] = {}

    @classmethod
    def collect(
        cls,
        config: Config,
        settings: Mapping[str, object],
        own: Table,
        arguments: Sequence[str] = (),
    ) -> _Given:
        """Combine the first argument and the keyword arguments."""
        given = cls(own, arguments)
        if isinstance(config, Mapping):
            given.add(config)
        elif config is not None:
            given.add({_SERVERS: config})
        given.add(settings)
        return given

    def add(self, settings: Mapping[str, object]) -> None:
        """Add settings; raises InvalidSetting if one is unknown or repeated."""
        has_dots = any("." in spelled for spelled in settings if isinstance(spelled, str))
        for spelled, value in settings.items():
            name = self._known(spelled, has_dots=has_dots)
            if name in self.values:
                where = ": as the first argument and by its name" if name == _SERVERS else ""
                raise InvalidSetting(f"{name} was given twice{where}")
            self.values[name] = value

    def says(self, name: str) -> bool:
        """Whether a setting was given."""
        return name in self.values

    def client(self) -> ClientSettings:
        """Return the settings that all clients share."""
        servers = self.values.get(_SERVERS)
        if servers is None:
            raise InvalidSetting("bootstrap.servers is required: expected host:port, found none")
        names = read(NAMES, _SERVERS, servers)
        assert isinstance(names, tuple), "NAMES reads a tuple"
        self._check_dns()
        return self.build(
            ClientSettings, CLIENT, bootstrap=parse_bootstrap(names), security=self._security()
        )

    def producer(self) -> ProducerSettings:
        """Return the settings that only producers have."""
        values = self._read(PRODUCER)
        self._add_codec_level(values)
        return _built(ProducerSettings, PRODUCER, values)

    def build(self, home: type[S], table: Table, **fixed: object) -> S:
        """Return one settings dataclass, built by its table."""
        return _built(home, table, fixed | self._read(table))

    def _read(self, table: Table) -> dict[str, object]:
        """Return the given values by dataclass field."""
        return {
            one.field: read(one.kind, one.name, self.values[one.name], secret=one.secret)
            for one in table
            if one.name in self.values
        }

    def _security(self) -> SecuritySettings:
        """Return the TLS and SASL settings; `sasl.jaas.config` is understood as well."""
        for name in _STORE_TYPES:
            kind = self.values.get(name, "PEM")
            if kind != "PEM":
                raise InvalidSetting(
                    f"{name}: expected 'PEM', found {kind!r}: convert it, by keytool and openssl"
                )
        jaas = self.values.get("sasl.jaas.config")
        if jaas is not None:
            self.add(_from_jaas(jaas))
        return self.build(SecuritySettings, SECURITY)

    def _check_dns(self) -> None:
        lookup = self.values.get(_DNS, "use_all_dns_ips")
        if lookup != "use_all_dns_ips":
            raise InvalidSetting(f"{_DNS}: expected 'use_all_dns_ips', found {lookup!r}")

    def _add_codec_level(self, values: dict[str, object]) -> None:
        """Set the level of the chosen codec; levels of other codecs have no effect, as in Kafka."""
        codec = values.get("codec")
        for name, codec_name in _CODEC_LEVELS.items():
            if name in self.values:
                level = next(one for one in PRODUCER if one.field == "codec_level")
                value = read(level.kind, name, self.values[name])
                if codec is not None and getattr(codec, "name", "").lower() == codec_name:
                    if "codec_level" in values:
                        raise InvalidSetting(f"compression.level and {name}: found both")
                    values["codec_level"] = value

    def _names(self) -> list[str]:
        tables = (CLIENT, SECURITY, self.own)
        names = [*_SPECIAL, *(setting.name for table in tables for setting in table)]
        if self.own is PRODUCER:
            names.extend(_CODEC_LEVELS)
        return names

    def _known(self, spelled: object, *, has_dots: bool) -> str:
        """Return a setting's dotted name; an error about an unknown name suggests a similar one."""
        if not isinstance(spelled, str):
            raise InvalidSetting(f"expected a setting's name, found {spelled!r}")
        name = spelled.replace("_", ".")
        names = self._names()
        if name in names:
            return name
        from raylog.client.setting_reference import why_unknown  # only errors need all tables

        raise InvalidSetting(why_unknown(spelled, names, self.arguments, has_dots=has_dots))


def _built(home: type[S], table: Table, values: dict[str, object]) -> S:
    """Build one settings dataclass; errors use Kafka's names instead of its fields'."""
    try:
        return home(**values)
    except InvalidSetting as error:
        raise InvalidSetting(_dotted(str(error), table)) from None


def _dotted(message: str, table: Table) -> str:
    """Replace field names in a message by Kafka's names."""
    names = {setting.field: setting.name for setting in table}
    names["security_protocol"] = "security.protocol"
    return re.sub(
        r"[a-z]+(?:_[a-z]+)+|idempotent(?==)", lambda word: names.get(word[0], word[0]), message
    )


def _from_jaas(text: object) -> dict[str, object]:
    """Return user name and password from Java's JAAS configuration for PLAIN or SCRAM."""
    if not isinstance(text, str) or "LoginModule" not in text:
        raise InvalidSetting("sasl.jaas.config: expected '…LoginModule required username=…;'")
    if "PlainLoginModule" not in text and "ScramLoginModule" not in text:
        raise InvalidSetting(
            "sasl.jaas.config: expected PlainLoginModule or ScramLoginModule, found "
            f"{text.split()[0]!r}"
        )
    found = {
        match[1]: match[3] or match[4] or re.sub(r"\\(.)", r"\1", match[2] or "")
        for match in re.finditer(_JAAS, text)
    }
    if set(found) != {"username", "password"}:
        raise InvalidSetting("sasl.jaas.config: expected username and password")
    return {f"sasl.{name}": value for name, value in found.items()}
