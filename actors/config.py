"""Configuration: reading values by the tables of keys, resolving them, describing them.

A topic's value comes from the first of: the topic's own setting, then for each broker synonym of
the key the broker's dynamic setting, the cluster-wide dynamic setting and the broker's start-up
setting, then the default (KIP-226). Values are text, as on the wire; `BrokerSettings` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise

from raylog.actors.config_broker_keys import BROKER_KEYS as BROKER_KEYS
from raylog.actors.config_broker_keys import GROUP_KEYS as GROUP_KEYS
from raylog.actors.config_client_metrics import CLIENT_METRICS_KEYS
from raylog.actors.config_keys import INT_MAX, INTERCEPTOR_OPTION_PREFIX, interceptor_option
from raylog.actors.config_keys import TOPIC_KEYS as TOPIC_KEYS
from raylog.actors.config_keys import ConfigKey as ConfigKey
from raylog.actors.config_keys import ConfigType as ConfigType
from raylog.actors.config_network_keys import LISTENER_PREFIX, listener_key, of_listener
from raylog.actors.config_values import Value as Value
from raylog.actors.config_values import canonical as canonical
from raylog.actors.config_values import parse as parse
from raylog.actors.config_values import split_list as split_list
from raylog.actors.plain import message
from raylog.wire.errors import InvalidConfig

Configs = Mapping[str, str]
PER_IP = "max.connections.per.ip"
PER_IP_OVERRIDES = "max.connections.per.ip.overrides"
INTERCEPTOR_KEYS_PREFIX = "raylog.interceptor"
"""Of the key that names interceptors and of their options."""


class ConfigSource(IntEnum):
    """Where a described value comes from, numbered as in DescribeConfigs."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ResourceType(IntEnum):
    """What a configuration belongs to, numbered as in DescribeConfigs."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


KEYS_OF: dict[ResourceType, dict[str, ConfigKey]] = {
    ResourceType.TOPIC: TOPIC_KEYS,
    ResourceType.BROKER: BROKER_KEYS,
    ResourceType.GROUP: GROUP_KEYS,
    ResourceType.CLIENT_METRICS: CLIENT_METRICS_KEYS,
}


_INSTEAD = {
    "log.retention.ms": ("log.retention.minutes", "log.retention.hours"),
    "log.roll.ms": ("log.roll.hours",),
    "log.roll.jitter.ms": ("log.roll.jitter.hours",),
}
"""Broker keys that stand for one that is not set, by precedence."""


@message
@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One place that gives, or would give, a key its value."""

    name: str
    value: str | None
    source: ConfigSource


@message
@dataclass(frozen=True, slots=True)
class DescribedConfig:
    """A key's value and origin, as DescribeConfigs answers them."""

    name: str
    value: str | None
    source: ConfigSource
    type: ConfigType
    read_only: bool
    documentation: str
    synonyms: tuple[ConfigSynonym, ...]
    """By precedence; the first is in force."""


def node_id_of(name: str) -> int | None:
    """The broker that the name of a BROKER resource means; None if it is no 32-bit number."""
    try:
        node_id = int(name) if name.isdecimal() else INT_MAX + 1
    except ValueError:
        return None  # more digits than Python reads
    return node_id if node_id <= INT_MAX else None


_NAME_CHARS_MAX = 100
"""No key has as many."""
_LIKENESS_MIN = 0.6
_PAIR_BITS = 1024


def find_key(keys: Mapping[str, ConfigKey], name: str) -> ConfigKey:
    """The key of that name; InvalidConfig names the nearest if there is none."""
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
    """The key that has most pairs of letters in common with a name; None if that is not much.

    A client may ask for thousands of unknown names, so each must not take long.
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
    """A bit for each pair of letters that are side by side; a few share one."""
    bits = 0
    for first, second in pairwise(name):
        bits |= 1 << (31 * ord(first) + ord(second)) % _PAIR_BITS
    return bits


_pairs_of_key = lru_cache(None)(_pairs)


def canonical_all(resource_type: ResourceType, configs: Configs) -> dict[str, str]:
    """Settings as they are stored; InvalidConfig unless every key is known and every value fits."""
    keys = KEYS_OF[resource_type]
    return {name: canonical(find_key(keys, name), text) for name, text in configs.items()}


def refusal(resource_type: int, name: str, text: str) -> str | None:
    """Why a stored setting is not in force; None if it is."""
    try:
        canonical(find_key(KEYS_OF[ResourceType(resource_type)], name), text)
    except InvalidConfig as wrong:
        return wrong.message
    except (KeyError, ValueError):
        return None
    return None


def stored(resource_type: int, name: str, text: str) -> str | None:
    """A stored value in the form that is acted on: older builds stored any spelling they took.

    None if this build refuses it: an older one had weaker rules, or a newer one knows more keys.
    As in Apache Kafka it is then ignored. Of kinds of resources without a table nothing is refused.
    """
    try:
        return canonical(find_key(KEYS_OF[ResourceType(resource_type)], name), text)
    except InvalidConfig:
        return None
    except (KeyError, ValueError):
        return text


def usable(settings: Configs) -> tuple[dict[str, str], list[str]]:
    """Start-up settings that were noted and that this build takes, and why it refuses others."""
    why = {name: refusal(ResourceType.BROKER, name, text) for name, text in settings.items()}
    taken = {name: text for name, text in settings.items() if why[name] is None}
    return taken, [text for text in why.values() if text is not None]


def check(resource_type: ResourceType, configs: Configs) -> None:
    """Raise InvalidConfig unless every key is known and every value is in its range."""
    keys = KEYS_OF[resource_type]
    for name, text in configs.items():
        parse(find_key(keys, name), text)


def check_topic(configs: Configs, broker: BrokerConfigs) -> None:
    """Raise InvalidConfig unless a topic may be given these settings of its own."""
    check(ResourceType.TOPIC, configs)
    resolved = resolve_topic(configs, broker)
    least, most = int(resolved["min.compaction.lag.ms"]), int(resolved["max.compaction.lag.ms"])
    if least > most:
        raise InvalidConfig(
            f"conflict topic config setting min.compaction.lag.ms ({least}) > "
            f"max.compaction.lag.ms ({most})"
        )
    check_interceptors(configs)


def check_interceptors(configs: Configs) -> None:
    """Raise InvalidConfig, naming the nearest, unless what these settings name is installed."""
    names = split_list(configs.get("raylog.interceptors", ""))
    options = [name for name in configs if name.startswith(INTERCEPTOR_OPTION_PREFIX)]
    if not names and not options:
        return
    # Looking for installed packages takes longer than importing all this.
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
    """The settings that are options of interceptors, keys without their prefix."""
    return {
        name.removeprefix(INTERCEPTOR_OPTION_PREFIX): text
        for name, text in configs.items()
        if name.startswith(INTERCEPTOR_OPTION_PREFIX)
    }


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """A broker's start-up settings, checked; what is not given has its default."""

    given: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "given", canonical_all(ResourceType.BROKER, self.given))

    def raw(self, name: str) -> str | None:
        """The text in force; None when unset."""
        return self.given.get(name, BROKER_KEYS[name].default)

    def number(self, name: str) -> int:
        """The value of an INT, SHORT or LONG key."""
        value = parse(BROKER_KEYS[name], self._required(name))
        assert isinstance(value, int), f"{name} is no number"
        return value

    def flag(self, name: str) -> bool:
        """The value of a BOOLEAN key."""
        return self._required(name) == "true"

    def items(self, name: str) -> tuple[str, ...]:
        """The value of a LIST key; empty when unset."""
        return split_list(self.raw(name) or "")

    def _required(self, name: str) -> str:
        text = self.raw(name)
        assert text is not None, f"{name} has no default"
        return text


@dataclass(frozen=True, slots=True)
class BrokerConfigs:
    """The layers under a topic's own settings, as one broker sees them."""

    settings: BrokerSettings = field(default_factory=BrokerSettings)
    dynamic: Configs = field(default_factory=dict)
    """Set for this broker while it runs."""
    dynamic_default: Configs = field(default_factory=dict)
    """Set for all brokers while they run."""

    def layers(self, name: str) -> Iterator[ConfigSynonym]:
        """Where a broker key is set, by precedence; the default is not among them."""
        if name in self.dynamic:
            yield ConfigSynonym(name, self.dynamic[name], ConfigSource.DYNAMIC_BROKER)
        if name in self.dynamic_default:
            text = self.dynamic_default[name]
            yield ConfigSynonym(name, text, ConfigSource.DYNAMIC_DEFAULT_BROKER)
        if name in self.settings.given:
            yield ConfigSynonym(name, self.settings.given[name], ConfigSource.STATIC_BROKER)

    def effective(self, name: str) -> str | None:
        """A broker key's value in force; None when unset."""
        return next((layer.value for layer in self.layers(name)), BROKER_KEYS[name].default)

    def flag(self, name: str) -> bool:
        """A BOOLEAN broker key's value in force."""
        return self.effective(name) == "true"

    def listener_limit(self, listener: str, name: str) -> int | None:
        """The value of an INT broker key for one listener; None if it has none of its own."""
        layer = next(self.layers(of_listener(listener, name)), None)
        return None if layer is None else int(layer.value or 0)

    def connections_per_ip(self) -> int:
        """How many connections one host may have.

        0 without overrides, which older builds took, counts as unset: nobody could take it back.
        """
        text = self.effective(PER_IP)
        if text == "0" and not split_list(self.effective(PER_IP_OVERRIDES) or ""):
            text = BROKER_KEYS[PER_IP].default
        return int(text or 0)


def resolve_topic(configs: Configs, broker: BrokerConfigs) -> dict[str, str]:
    """Every topic key with the value in force for a topic with these settings of its own.

    Interceptors' options are there only where the topic has them.
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
    """The set synonyms of a topic key, each with the value in the topic key's unit."""
    for synonym in key.synonyms:
        for layer in broker.layers(synonym.name):
            assert layer.value is not None
            yield layer, _converted(layer.value, synonym.factor)


def _converted(text: str, factor: int) -> str:
    number = text if factor == 1 else str(int(text) * factor)
    return "-1" if factor != 1 and number.startswith("-") else number


def describe_topic(
    configs: Configs, broker: BrokerConfigs, names: Iterable[str] | None = None
) -> list[DescribedConfig]:
    """A topic's settings as DescribeConfigs answers them; `names` None asks for all."""
    options = {
        name: interceptor_option(name)
        for name in sorted(configs)
        if name.startswith(INTERCEPTOR_OPTION_PREFIX)
    }
    keys = [*_asked(TOPIC_KEYS, names), *_asked(options, names)]
    return [_describe_topic_key(key, configs, broker) for key in keys]


def _describe_topic_key(key: ConfigKey, configs: Configs, broker: BrokerConfigs) -> DescribedConfig:
    synonyms = []
    value = key.default
    if key.name in configs:
        value = configs[key.name]
        synonyms.append(ConfigSynonym(key.name, value, ConfigSource.DYNAMIC_TOPIC))
    inherited = list(_inherited(key, broker))
    for layer, converted in inherited:
        if not synonyms:
            value = converted
        synonyms.append(layer)
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    synonyms.extend(_default_synonyms(key, inherits=bool(inherited)))
    return DescribedConfig(
        key.name, value, source, key.type, False, key.documentation, tuple(synonyms)
    )


def _default_synonyms(key: ConfigKey, *, inherits: bool) -> Iterator[ConfigSynonym]:
    """The defaults that end the chain; where nothing is set only the nearest, as in Kafka."""
    for synonym in key.synonyms if inherits else key.synonyms[:1]:
        default = BROKER_KEYS[synonym.name].default
        if default is not None:
            yield ConfigSynonym(synonym.name, default, ConfigSource.DEFAULT)


def describe_broker(
    broker: BrokerConfigs, names: Iterable[str] | None = None
) -> list[DescribedConfig]:
    """A broker's settings as DescribeConfigs answers them."""
    described = []
    keys = _asked(BROKER_KEYS, names) + _asked(_listener_keys(broker), names)
    for key in keys:
        synonyms = list(_broker_synonyms(key, broker))
        value = synonyms[0].value if synonyms else None
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        described.append(
            DescribedConfig(
                key.name,
                value,
                source,
                key.type,
                not key.dynamic,
                key.documentation,
                tuple(synonyms),
            )
        )
    return described


def _listener_keys(broker: BrokerConfigs) -> dict[str, ConfigKey]:
    """Keys of single listeners, which are described where they are set, as in Kafka."""
    given = {*broker.dynamic, *broker.dynamic_default, *broker.settings.given}
    names = sorted(name for name in given if name.startswith(LISTENER_PREFIX))
    return {name: find_key(BROKER_KEYS, name) for name in names}


def _broker_synonyms(key: ConfigKey, broker: BrokerConfigs) -> Iterator[ConfigSynonym]:
    """Where a broker key is set, and its default; as in Kafka other keys only behind one set."""
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
    """The cluster-wide dynamic settings: what DescribeConfigs answers for the broker ""."""
    return [
        DescribedConfig(
            name,
            text,
            ConfigSource.DYNAMIC_DEFAULT_BROKER,
            find_key(BROKER_KEYS, name).type,
            False,
            find_key(BROKER_KEYS, name).documentation,
            (ConfigSynonym(name, text, ConfigSource.DYNAMIC_DEFAULT_BROKER),),
        )
        for name, text in sorted(configs.items())
    ]


def describe_group(
    configs: Configs, broker: BrokerConfigs, names: Iterable[str] | None = None
) -> list[DescribedConfig]:
    """A consumer group's settings as DescribeConfigs answers them."""
    described = []
    for key in _asked(GROUP_KEYS, names):
        broker_name = f"group.{key.name}"
        synonyms = [*broker.layers(broker_name)]
        synonyms.append(ConfigSynonym(broker_name, key.default, ConfigSource.DEFAULT))
        if key.name in configs:
            synonyms.insert(0, ConfigSynonym(key.name, configs[key.name], ConfigSource.GROUP))
        first = synonyms[0]
        described.append(
            DescribedConfig(
                key.name,
                first.value,
                first.source,
                key.type,
                False,
                key.documentation,
                tuple(synonyms),
            )
        )
    return described


def describe_client_metrics(
    configs: Configs, names: Iterable[str] | None = None
) -> list[DescribedConfig]:
    """A metrics subscription's settings as DescribeConfigs answers them; it need not exist."""
    return [
        DescribedConfig(
            key.name,
            configs.get(key.name, key.default),
            ConfigSource.CLIENT_METRICS if key.name in configs else ConfigSource.DEFAULT,
            key.type,
            False,
            key.documentation,
            (),
        )
        for key in _asked(CLIENT_METRICS_KEYS, names)
    ]


def _asked(keys: Mapping[str, ConfigKey], names: Iterable[str] | None) -> list[ConfigKey]:
    """The keys asked for; unknown names are passed over, as in Kafka."""
    wanted = None if names is None else set(names)
    return [
        key for key in keys.values() if not key.internal and (wanted is None or key.name in wanted)
    ]
