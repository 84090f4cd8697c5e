"""Settings under Kafka's names: from a constructor's arguments to the clients' dataclasses.

`X(config=None, /, **settings)`: `config` is bootstrap servers or a mapping of Kafka's names, dotted
or underscored; keyword arguments are the same names with underscores. What is given twice, is
unknown, has a wrong value or contradicts another setting is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from raylog.client.errors import InvalidSetting
from raylog.client.security.settings import SecuritySettings
from raylog.client.setting_kinds import NAMES, Setting, read
from raylog.client.setting_table import CLIENT, PRODUCER, SECURITY
from raylog.client.settings import ClientSettings, ProducerSettings, parse_bootstrap

if TYPE_CHECKING:
    from raylog.client.consumer.settings import ConsumerSettings

Config = str | Mapping[str, object] | Iterable[str] | None
"""What a client's first argument may be: bootstrap servers, or settings by Kafka's names."""
S = TypeVar("S")
Table = tuple[Setting, ...]

_CODEC_LEVELS = {f"compression.{codec}.level": codec for codec in ("gzip", "lz4", "zstd")}
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
    """A producer's settings; raises InvalidSetting.

    A partitioner is the name of one, or a function, which leaves nothing to be set about it.
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
    """A consumer's settings; raises InvalidSetting.

    `arguments` are names that the caller knows beside settings: one of them may have been meant.
    """
    from raylog.client.consumer.settings import CONSUMER, ConsumerSettings  # producers need none

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
    """An admin's settings; raises InvalidSetting."""
    return _Given.collect(config, settings, ()).client()


def settings_of(
    config: Config, client: ClientSettings | None, settings: Mapping[str, object]
) -> ClientSettings:
    """An admin's settings: ready ones take the place of all others."""
    if client is None:
        return client_only(config, settings)
    if not isinstance(client, ClientSettings):
        raise InvalidSetting(f"expected ClientSettings, found {client!r}")
    if settings:
        raise InvalidSetting(f"ClientSettings take the place of {next(iter(settings))}: found both")
    return client


def _check_partitioner(partitioner: object, given: _Given) -> None:
    """Raise InvalidSetting unless it is a function, and the only one to place records."""
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
    """Settings by Kafka's dotted names, each given once."""

    def __init__(self, own: Table, arguments: Sequence[str]) -> None:
        """`own` are those beside all clients': the producer's, the consumer's or none."""
        self.own = own
        self.arguments = arguments
        """Names that are no settings, but may have been meant."""
        self.values: dict[str, object] = {}

    @classmethod
    def collect(
        cls,
        config: Config,
        settings: Mapping[str, object],
        own: Table,
        arguments: Sequence[str] = (),
    ) -> _Given:
        """Bring both ways to give settings together."""
        given = cls(own, arguments)
        if isinstance(config, Mapping):
            given.add(config)
        elif config is not None:
            given.add({_SERVERS: config})
        given.add(settings)
        return given

    def add(self, settings: Mapping[str, object]) -> None:
        """Take settings; unknown and repeated ones are refused."""
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
        """What all clients have."""
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
        """What producers have beside."""
        values = self._read(PRODUCER)
        self._add_codec_level(values)
        return _built(ProducerSettings, PRODUCER, values)

    def build(self, home: type[S], table: Table, **fixed: object) -> S:
        """One dataclass of settings, by its table."""
        return _built(home, table, fixed | self._read(table))

    def _read(self, table: Table) -> dict[str, object]:
        """The given values by the fields that they set."""
        return {
            one.field: read(one.kind, one.name, self.values[one.name], secret=one.secret)
            for one in table
            if one.name in self.values
        }

    def _security(self) -> SecuritySettings:
        """TLS and SASL; Java's way to give a password is known."""
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
        """The level of the codec in use; those of others have no effect, as in Kafka."""
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
        """A setting's dotted name; raises with the nearest one, spelled as its neighbours are."""
        if not isinstance(spelled, str):
            raise InvalidSetting(f"expected a setting's name, found {spelled!r}")
        name = spelled.replace("_", ".")
        names = self._names()
        if name in names:
            return name
        from raylog.client.setting_page import why_unknown  # only what is refused needs all tables

        raise InvalidSetting(why_unknown(spelled, names, self.arguments, has_dots=has_dots))


def _built(home: type[S], table: Table, values: dict[str, object]) -> S:
    """One dataclass of settings; what it refuses is told by Kafka's names."""
    try:
        return home(**values)
    except InvalidSetting as error:
        raise InvalidSetting(_dotted(str(error), table)) from None


def _dotted(message: str, table: Table) -> str:
    """A message about fields, with Kafka's names."""
    names = {setting.field: setting.name for setting in table}
    names["security_protocol"] = "security.protocol"
    return re.sub(
        r"[a-z]+(?:_[a-z]+)+|idempotent(?==)", lambda word: names.get(word[0], word[0]), message
    )


def _from_jaas(text: object) -> dict[str, object]:
    """User name and password of Java's login modules for PLAIN and SCRAM."""
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
