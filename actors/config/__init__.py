"""Configuration: parses values by the tables of keys, resolves them and describes them.

The value of a topic key comes from the first of these that has one (KIP-226): the topic; for each
broker synonym of the key, the broker's dynamic settings, the cluster-wide dynamic settings and the
broker's start-up settings; the default. Values are text, as in the protocol; `BrokerSettings`
parses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeVar

from raylog.actors.config.broker_keys import BROKER_KEYS as BROKER_KEYS
from raylog.actors.config.broker_keys import GROUP_KEYS as GROUP_KEYS
from raylog.actors.config.client_metrics import CLIENT_METRICS_KEYS
from raylog.actors.config.keys import INT_MAX
from raylog.actors.config.keys import ConfigKey as ConfigKey
from raylog.actors.config.keys import ConfigType as ConfigType
from raylog.actors.config.keys import ResourceType as ResourceType
from raylog.actors.config.network_keys import LISTENER_PREFIX, listener_key, of_listener
from raylog.actors.config.topic_keys import INTERCEPTOR_OPTION_PREFIX, interceptor_option
from raylog.actors.config.topic_keys import TOPIC_KEYS as TOPIC_KEYS
from raylog.actors.config.values import Value as Value
from raylog.actors.config.values import canonical as canonical
from raylog.actors.config.values import parse as parse
from raylog.actors.config.values import split_list as split_list
from raylog.actors.message import message
from raylog.wire.errors import InvalidConfig

T = TypeVar("T")
Configs = Mapping[str, str]
PER_IP = "max.connections.per.ip"
PER_IP_OVERRIDES = "max.connections.per.ip.overrides"
INTERCEPTOR_KEYS_PREFIX = "raylog.interceptor"
"""Prefix of the key that names interceptors and of their options."""


class ConfigSource(IntEnum):
    """The source of a described value; the numbers are those of DescribeConfigs."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


KEYS_OF: dict[ResourceType, dict[str, ConfigKey]] = {
    ResourceType.TOPIC: TOPIC_KEYS,
    ResourceType.BROKER: BROKER_KEYS,
    ResourceType.GROUP: GROUP_KEYS,
    ResourceType.CLIENT_METRICS: CLIENT_METRICS_KEYS,
}
"""All keys."""

_INSTEAD = {
    "log.retention.ms": ("log.retention.minutes", "log.retention.hours"),
    "log.roll.ms": ("log.roll.hours",),
    "log.roll.jitter.ms": ("log.roll.jitter.hours",),
}
"""Broker keys used in place of one that is not set, in order of precedence."""


@message
@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A place that sets, or would set, the value of a key."""

    name: str
    value: str | None
    source: ConfigSource


@message
@dataclass(frozen=True, slots=True)
class DescribedConfig:
    """The value and origin of a key, as in DescribeConfigs responses."""

    name: str
    value: str | None
    source: ConfigSource
    type: ConfigType
    read_only: bool
    documentation: str
    synonyms: tuple[ConfigSynonym, ...]
    """In order of precedence; the first one is in effect."""


def node_id_of(name: str) -> int | None:
    """Return the broker id that names a BROKER resource, or None if it is not a 32-bit number."""
    try:
        node_id = int(name) if name.isdecimal() else INT_MAX + 1
    except ValueError:
        return None  # more digits than Python parses
    return node_id if node_id <= INT_MAX else None


_NAME_CHARS_MAX = 100
"""Longer than the name of any key."""
_LIKENESS_MIN = 0.6
_PAIR_BITS = 1024


def find_key(keys: Mapping[str, ConfigKey], name: str) -> ConfigKey:
    """Return the key of that name. The InvalidConfig for an unknown one suggests the nearest."""
    key = keys.get(name)
    if key is None and keys is BROKER_KEYS:
        key = listener_key(name)
    if key is None:
        if keys is TOPIC_KEYS and name.startswith(INTERCEPTOR_OPTION_PREFIX):
            return interceptor_option(name)
        near = _nearest(keys, name)
        hint = f"; did you mean {near}?" if near else ""
        raise InvalidConfig(f"Unknown configuration key {name!r}{hint}")
    return key


def _nearest(keys: Mapping[str, ConfigKey], name: str) -> str | None:
    """Return the key that shares most letter pairs with a name; None if none is similar enough.

    A client may ask for thousands of unknown names, so this must be fast.
    """
    if not 1 < len(name) <= _NAME_CHARS_MAX:
        return None
    pairs = _pairs(name)

    def likeness(key: str) -> float:
        own = _pairs_of_key(key)
        return 2 * (pairs & own).bit_count() / (pairs.bit_count() + own.bit_count())

    best = max(keys, key=likeness)
    return best if likeness(best) >= _LIKENESS_MIN else None


def _pairs(name: str) -> int:
    """Return a bit set with a bit for each pair of adjacent letters; some pairs share a bit."""
    bits = 0
    for first, second in pairwise(name):
        bits |= 1 << (31 * ord(first) + ord(second)) % _PAIR_BITS
    return bits


_pairs_of_key = lru_cache(None)(_pairs)


def canonical_all(resource_type: ResourceType, configs: Configs) -> dict[str, str]:
    """Return settings as stored; raises InvalidConfig for an unknown key or an invalid value."""
    keys = KEYS_OF[resource_type]
    return {name: canonical(find_key(keys, name), text) for name, text in configs.items()}


def judged(resource_type: int, name: str, text: str) -> tuple[str | None, str | None]:
    """Return a stored setting's value in canonical form, and why this build refuses it.

    One of the two is None. Older builds stored any spelling they accepted and had weaker rules, and
    newer ones have more keys. A refused setting is ignored, as in Apache Kafka. Settings of an
    unknown resource type are accepted unchanged.
    """
    try:
        return canonical(find_key(KEYS_OF[ResourceType(resource_type)], name), text), None
    except InvalidConfig as wrong:
        return None, wrong.message
    except (KeyError, ValueError):
        return text, None


def usable(settings: Configs) -> tuple[dict[str, str], list[str]]:
    """Return the recorded start-up settings that this build accepts, and why not the others."""
    why = {name: judged(ResourceType.BROKER, name, text)[1] for name, text in settings.items()}
    taken = {name: text for name, text in settings.items() if why[name] is None}
    return taken, [text for text in why.values() if text is not None]


def check_topic(configs: Configs, broker: BrokerConfigs) -> None:
    """Raise InvalidConfig unless a topic may have these settings."""
    canonical_all(ResourceType.TOPIC, configs)
    resolved = resolve_topic(configs, broker)
    least, most = int(resolved["min.compaction.lag.ms"]), int(resolved["max.compaction.lag.ms"])
    if least > most:
        raise InvalidConfig(
            f"conflict topic config setting min.compaction.lag.ms ({least}) > "
            f"max.compaction.lag.ms ({most})"
        )
    check_interceptors(configs)


def check_interceptors(configs: Configs) -> None:
    """Raise InvalidConfig unless all interceptors that these settings name are installed."""
    names = split_list(configs.get("raylog.interceptors", ""))
    options = [name for name in configs if name.startswith(INTERCEPTOR_OPTION_PREFIX)]
    if not names and not options:
        return
    # Imported only here, because searching installed packages is slow.
    from raylog.actors.interceptors import loading

    try:
        loading.require(names)
        for option in options:
            loading.option_of(option.removeprefix(INTERCEPTOR_OPTION_PREFIX))
    except loading.PluginError as unknown:
        raise InvalidConfig(str(unknown)) from unknown
    if len(set(names)) < len(names):
        raise InvalidConfig(f"raylog.interceptors names one twice: {', '.join(names)}")


def interceptor_options(configs: Configs) -> dict[str, str]:
    """Return the options of interceptors, by key without the prefix."""
    return {
        name.removeprefix(INTERCEPTOR_OPTION_PREFIX): text
        for name, text in configs.items()
        if name.startswith(INTERCEPTOR_OPTION_PREFIX)
    }


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """A broker's start-up settings, validated; keys that are not given have their defaults."""

    given: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "given", canonical_all(ResourceType.BROKER, self.given))

    def raw(self, name: str) -> str | None:
        """Return the text of the value, or None if unset."""
        return self.given.get(name, BROKER_KEYS[name].default)

    def number(self, name: str) -> int:
        """Return the value of an INT, SHORT or LONG key."""
        value = parse(BROKER_KEYS[name], self._required(name))
        assert isinstance(value, int), f"{name} is no number"
        return value

    def flag(self, name: str) -> bool:
        """Return the value of a BOOLEAN key."""
        return self._required(name) == "true"

    def items(self, name: str) -> tuple[str, ...]:
        """Return the value of a LIST key; empty if unset."""
        return split_list(self.raw(name) or "")

    def value(self, name: str) -> Any:
        """Return the value of a key of any type. It must be set or have a default."""
        key = BROKER_KEYS[name]
        if key.type is ConfigType.LIST:
            return self.items(name)
        return parse(key, self._required(name))

    def _required(self, name: str) -> str:
        text = self.raw(name)
        assert text is not None, f"{name} has no default"
        return text


def setting(name: str, unit: int = 1) -> Any:
    """Declare a dataclass field that holds the value of a broker key, multiplied by `unit`.

    The field's default is that of the key.
    """
    return field(default=_in_unit(BrokerSettings(), name, unit), metadata={"setting": (name, unit)})


def settings_of(kind: type[T], broker: BrokerSettings) -> T:
    """Return a broker's settings as a dataclass whose fields were all declared by `setting`."""
    read = [one.metadata["setting"] for one in fields(kind)]  # type: ignore[arg-type]  # a dataclass
    return kind(*(_in_unit(broker, name, unit) for name, unit in read))


def _in_unit(broker: BrokerSettings, name: str, unit: int) -> Any:
    value = broker.value(name)
    return value if unit == 1 else value * unit


@dataclass(frozen=True, slots=True)
class BrokerConfigs:
    """The layers below a topic's own settings, as one broker sees them."""

    settings: BrokerSettings = field(default_factory=BrokerSettings)
    dynamic: Configs = field(default_factory=dict)
    """Dynamic settings of this broker."""
    dynamic_default: Configs = field(default_factory=dict)
    """Dynamic settings of all brokers."""

    def layers(self, name: str) -> Iterator[ConfigSynonym]:
        """Yield the places that set a broker key, in order of precedence, without the default."""
        if name in self.dynamic:
            yield ConfigSynonym(name, self.dynamic[name], ConfigSource.DYNAMIC_BROKER)
        if name in self.dynamic_default:
            text = self.dynamic_default[name]
            yield ConfigSynonym(name, text, ConfigSource.DYNAMIC_DEFAULT_BROKER)
        if name in self.settings.given:
            yield ConfigSynonym(name, self.settings.given[name], ConfigSource.STATIC_BROKER)

    def effective(self, name: str) -> str | None:
        """Return the value of a broker key in effect, or None if unset."""
        return next((layer.value for layer in self.layers(name)), BROKER_KEYS[name].default)

    def flag(self, name: str) -> bool:
        """Return the value of a BOOLEAN broker key in effect."""
        return self.effective(name) == "true"

    def listener_limit(self, listener: str, name: str) -> int | None:
        """Return an INT broker key's value for one listener, or None if the listener has none."""
        layer = next(self.layers(of_listener(listener, name)), None)
        return None if layer is None else int(layer.value or 0)

    def connections_per_ip(self) -> int:
        """Return the maximum number of connections from one host.

        0 without overrides, which older builds accepted, counts as unset, because nobody could
        connect.
        """
        text = self.effective(PER_IP)
        if text == "0" and not split_list(self.effective(PER_IP_OVERRIDES) or ""):
            text = BROKER_KEYS[PER_IP].default
        return int(text or 0)


def resolve_topic(configs: Configs, broker: BrokerConfigs) -> dict[str, str]:
    """Return the value of every topic key in effect for a topic with these settings.

    Interceptor options are included only if the topic sets them.
    """
    resolved = {
        name: text for name, text in configs.items() if name.startswith(INTERCEPTOR_OPTION_PREFIX)
    }
    for key in TOPIC_KEYS.values():
        if key.name in configs:
            resolved[key.name] = configs[key.name]
        else:
            inherited = next(_inherited(key, broker), None)
            resolved[key.name] = (key.default or "") if inherited is None else inherited[1]
    override = resolved.pop("internal.segment.bytes")
    if override:
        resolved["segment.bytes"] = override
    return resolved


def _inherited(key: ConfigKey, broker: BrokerConfigs) -> Iterator[tuple[ConfigSynonym, str]]:
    """Yield the synonyms of a topic key that are set, with their values in the topic key's unit."""
    for name, factor in key.synonyms.items():
        for layer in broker.layers(name):
            assert layer.value is not None
            yield layer, _converted(layer.value, factor)


def _converted(text: str, factor: int) -> str:
    number = text if factor == 1 else str(int(text) * factor)
    return "-1" if factor != 1 and number.startswith("-") else number


def describe_topic(
    configs: Configs, broker: BrokerConfigs, names: Iterable[str] | None = None
) -> list[DescribedConfig]:
    """Return a topic's settings as in DescribeConfigs responses.

    With `names` None, return all of them.
    """
    options = {
        name: interceptor_option(name)
        for name in sorted(configs)
        if name.startswith(INTERCEPTOR_OPTION_PREFIX)
    }
    keys = [*_asked(TOPIC_KEYS, names), *_asked(options, names)]
    return [_describe_topic_key(key, configs, broker) for key in keys]


def _describe_topic_key(key: ConfigKey, configs: Configs, broker: BrokerConfigs) -> DescribedConfig:
    inherited = list(_inherited(key, broker))
    chain = list(inherited)
    if key.name in configs:
        text = configs[key.name]
        chain.insert(0, (ConfigSynonym(key.name, text, ConfigSource.DYNAMIC_TOPIC), text))
    value = chain[0][1] if chain else key.default
    defaults = _default_synonyms(key, inherits=bool(inherited))
    return _described(key, [*(layer for layer, _ in chain), *defaults], value)


def _default_synonyms(key: ConfigKey, *, inherits: bool) -> Iterator[ConfigSynonym]:
    """Yield the defaults that end the chain; if nothing is set, only the nearest, as in Kafka."""
    for name in [*key.synonyms][: None if inherits else 1]:
        default = BROKER_KEYS[name].default
        if default is not None:
            yield ConfigSynonym(name, default, ConfigSource.DEFAULT)


def _described(
    key: ConfigKey,
    synonyms: Iterable[ConfigSynonym],
    value: str | None = None,
    *,
    read_only: bool = False,
) -> DescribedConfig:
    """Return the key with these synonyms and `value`, by default that of the first synonym."""
    chain = tuple(synonyms)
    first = chain[0] if chain else ConfigSynonym(key.name, key.default, ConfigSource.DEFAULT)
    value = first.value if value is None else value
    return DescribedConfig(
        key.name, value, first.source, key.type, read_only, key.documentation, chain
    )


def describe_broker(
    broker: BrokerConfigs, names: Iterable[str] | None = None
) -> list[DescribedConfig]:
    """Return a broker's settings as in DescribeConfigs responses."""
    return [
        _described(key, _broker_synonyms(key, broker), read_only=not key.dynamic)
        for key in _asked(BROKER_KEYS, names) + _asked(_listener_keys(broker), names)
    ]


def _listener_keys(broker: BrokerConfigs) -> dict[str, ConfigKey]:
    """Return the keys for single listeners that are set; Kafka describes no others, either."""
    given = {*broker.dynamic, *broker.dynamic_default, *broker.settings.given}
    names = sorted(name for name in given if name.startswith(LISTENER_PREFIX))
    return {name: find_key(BROKER_KEYS, name) for name in names}


def _broker_synonyms(key: ConfigKey, broker: BrokerConfigs) -> Iterator[ConfigSynonym]:
    """Yield the places that set a broker key, and its default.

    Keys used in its place are included only if it is set, as in Kafka.
    """
    own = list(broker.layers(key.name))
    yield from own
    if key.default is not None:
        yield ConfigSynonym(key.name, key.default, ConfigSource.DEFAULT)
    for name in _INSTEAD.get(key.name, ()) if own else ():
        yield from broker.layers(name)
        default = BROKER_KEYS[name].default
        if default is not None:
            yield ConfigSynonym(name, default, ConfigSource.DEFAULT)


def describe_dynamic_default(configs: Configs) -> list[DescribedConfig]:
    """Return the cluster-wide dynamic settings: the DescribeConfigs response for the broker ""."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    return [
        _described(find_key(BROKER_KEYS, name), [ConfigSynonym(name, text, source)])
        for name, text in sorted(configs.items())
    ]


def describe_group(
    configs: Configs, broker: BrokerConfigs, names: Iterable[str] | None = None
) -> list[DescribedConfig]:
    """Return a consumer group's settings as in DescribeConfigs responses."""

    def synonyms(key: ConfigKey) -> Iterator[ConfigSynonym]:
        if key.name in configs:
            yield ConfigSynonym(key.name, configs[key.name], ConfigSource.GROUP)
        yield from broker.layers(f"group.{key.name}")
        yield ConfigSynonym(f"group.{key.name}", key.default, ConfigSource.DEFAULT)

    return [_described(key, synonyms(key)) for key in _asked(GROUP_KEYS, names)]


def describe_client_metrics(
    configs: Configs, names: Iterable[str] | None = None
) -> list[DescribedConfig]:
    """Return a metrics subscription's settings as DescribeConfigs does; it need not exist."""

    def own(key: ConfigKey) -> list[ConfigSynonym]:
        text = configs.get(key.name)
        return [] if text is None else [ConfigSynonym(key.name, text, ConfigSource.CLIENT_METRICS)]

    return [
        replace(_described(key, own(key)), synonyms=())
        for key in _asked(CLIENT_METRICS_KEYS, names)
    ]


def _asked(keys: Mapping[str, ConfigKey], names: Iterable[str] | None) -> list[ConfigKey]:
    """Return the requested keys; unknown names are ignored, as in Kafka."""
    wanted = None if names is None else set(names)
    return [
        key for key in keys.values() if not key.internal and (wanted is None or key.name in wanted)
    ]
