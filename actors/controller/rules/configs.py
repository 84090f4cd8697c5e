"""Changes the settings of topics, brokers and groups (KIP-226, KIP-339)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from raylog.actors.config import (
    GROUP_KEYS,
    KEYS_OF,
    BrokerConfigs,
    BrokerSettings,
    ConfigType,
    ResourceType,
    canonical,
    canonical_all,
    check_topic,
    find_key,
    node_id_of,
    split_list,
)
from raylog.actors.config.agreement import check_agreement
from raylog.actors.config.client_metrics import check_client_metrics
from raylog.actors.controller.messages import (
    AlterConfigs,
    AlterOp,
    ConfigAlteration,
    ConfigOp,
    ConfigOutcome,
)
from raylog.actors.controller.rules.decision import Decision
from raylog.actors.metadata.configs import broker_configs
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import ConfigChanged, Record
from raylog.wire.codegen.primitives import STRING_BYTES_MAX
from raylog.wire.errors import (
    BrokerIdNotRegistered,
    InvalidConfig,
    InvalidRequest,
    KafkaError,
    UnknownTopicOrPartition,
)


class ConfigControl:
    """Decides about settings from the image."""

    def __init__(self, image: MetadataImage, settings: BrokerSettings) -> None:
        self._image = image
        self._settings = settings

    def alter(self, request: AlterConfigs) -> Decision[list[ConfigOutcome]]:
        """Change settings; each resource succeeds or fails independently."""
        records: list[Record] = []
        outcomes = []
        resources = Counter((one.resource_type, one.resource_name) for one in request.alterations)
        for one in request.alterations:
            resource = (one.resource_type, one.resource_name)
            try:
                if resources[resource] > 1:
                    raise InvalidRequest("Each resource must appear at most once.")
                changes = self._altered(one)
            except KafkaError as refused:
                outcomes.append(ConfigOutcome(*resource, refused.code, refused.message))
                continue
            records.extend(changes)
            end = self._image.offset + len(records)
            is_change = bool(changes) and not request.validate_only
            outcomes.append(ConfigOutcome(*resource, offset=end if is_change else -1))
        return Decision([] if request.validate_only else records, outcomes)

    def after(self, alteration: ConfigAlteration) -> dict[str, str]:
        """Return a resource's own settings as they would be after a change.

        Raises an error if they would be invalid.
        """
        kind = self._checked_resource(alteration)
        new = (
            {}
            if alteration.replaces
            else dict(self._image.configs_of(kind, alteration.resource_name))
        )
        twice = [name for name, n in Counter(op.name for op in alteration.ops).items() if n > 1]
        if twice:
            raise InvalidRequest(f"Error due to duplicate config keys: {', '.join(twice)}")
        refused = self._refused(alteration)
        for op in alteration.ops:
            if op.op is not AlterOp.DELETE or op.name not in refused:
                self._apply(kind, op, new)
        return new

    def _altered(self, alteration: ConfigAlteration) -> list[Record]:
        new = self.after(alteration)
        kind = ResourceType(alteration.resource_type)
        old = self._image.configs_of(kind, alteration.resource_name)
        changed = {name: new.get(name) for name in sorted({*old, *new})}
        changed = {name: value for name, value in changed.items() if old.get(name) != value}
        refused = self._refused(alteration).keys() - new.keys()
        named = refused if alteration.replaces else refused & {op.name for op in alteration.ops}
        taken_back = dict.fromkeys(sorted(named))
        self._check_new(kind, alteration.resource_name, new, changed)
        keys = KEYS_OF[kind]
        values = {
            name: None if text is None else canonical(find_key(keys, name), text)
            for name, text in changed.items()
        }
        for value in values.values():
            _check_size(value)
        return [
            ConfigChanged(kind, alteration.resource_name, name, value)
            for name, value in (values | taken_back).items()
            if old.get(name) != value or name in taken_back
        ]

    def _refused(self, alteration: ConfigAlteration) -> dict[str, str]:
        """Return settings that another build has stored and that this build ignores."""
        return self._image.refused.get((alteration.resource_type, alteration.resource_name), {})

    def _checked_resource(self, alteration: ConfigAlteration) -> ResourceType:
        name = alteration.resource_name
        match alteration.resource_type:
            case ResourceType.TOPIC:
                if name not in self._image.topic_ids:
                    raise UnknownTopicOrPartition(f"The topic '{name}' does not exist.")
                return ResourceType.TOPIC
            case ResourceType.BROKER:
                self._check_broker(name)
                return ResourceType.BROKER
            case ResourceType.GROUP:
                if not name:
                    raise InvalidRequest("Default group resources are not allowed.")
                return ResourceType.GROUP
            case ResourceType.CLIENT_METRICS:
                if not name:
                    raise InvalidRequest("Subscription name can't be empty")
                return ResourceType.CLIENT_METRICS
            case other:
                raise InvalidRequest(f"Unknown resource type {int(other)}")

    def _check_broker(self, name: str) -> None:
        if not name:
            return
        node_id = node_id_of(name)
        if node_id is None:
            raise InvalidRequest("Unable to parse broker name as a base 10 number.")
        if node_id not in self._image.brokers:
            raise BrokerIdNotRegistered(f"No node with id {name} found.")

    def _apply(self, kind: ResourceType, op: ConfigOp, configs: dict[str, str]) -> None:
        if kind is ResourceType.CLIENT_METRICS and op.name not in KEYS_OF[kind]:
            raise InvalidRequest(f"Unknown client metrics configuration: {op.name}")
        key = find_key(KEYS_OF[kind], op.name)
        if op.op is AlterOp.DELETE:
            configs.pop(op.name, None)
            return
        if op.value is None:
            raise InvalidRequest(f"Null value not supported for : {op.name}")
        if op.op is AlterOp.SET:
            configs[op.name] = op.value
            return
        # Apache Kafka does not treat the list settings of metrics subscriptions as lists.
        if key.type is not ConfigType.LIST or kind is ResourceType.CLIENT_METRICS:
            raise InvalidConfig(
                f"Can't {op.op.name} to key {op.name} because its type is not LIST."
            )
        items = split_list(configs.get(op.name, self._inherited(kind, op.name)))
        named = split_list(op.value)
        changed = _appended if op.op is AlterOp.APPEND else _subtracted
        configs[op.name] = ",".join(changed(items, named))

    def _inherited(self, kind: ResourceType, name: str) -> str:
        """Return the inherited value of an unset list setting, to which items are appended."""
        broker = broker_configs(self._image, self._settings)
        key = find_key(KEYS_OF[kind], name)
        if kind is ResourceType.TOPIC:
            for synonym in key.synonyms:
                return broker.effective(synonym) or ""
        return key.default or ""

    def _check_brokers(
        self, name: str, configs: dict[str, str], changed: dict[str, str | None]
    ) -> None:
        """Check that the resulting settings agree, for one broker or, for a default, for all."""
        if name:
            default = self._image.configs_of(ResourceType.BROKER, "")
            check_agreement(BrokerConfigs(self._settings, configs, default).effective, changed)
            return
        own = [self._image.configs_of(ResourceType.BROKER, str(one)) for one in self._image.brokers]
        for dynamic in [{}, *filter(None, own)]:
            check_agreement(BrokerConfigs(self._settings, dynamic, configs).effective, changed)

    def _check_new(
        self,
        kind: ResourceType,
        name: str,
        configs: dict[str, str],
        changed: dict[str, str | None],
    ) -> None:
        match kind:
            case ResourceType.TOPIC:
                check_topic(configs, broker_configs(self._image, self._settings))
            case ResourceType.GROUP:
                canonical_all(kind, configs)
                self._check_group(configs)
            case ResourceType.CLIENT_METRICS:
                canonical_all(kind, configs)
                check_client_metrics(configs)
            case _:
                try:
                    canonical_all(kind, configs)
                    self._check_brokers(name, configs, changed)
                except InvalidConfig as wrong:
                    raise InvalidRequest(wrong.message) from wrong  # for brokers, as in Kafka
                fixed = [name for name in changed if not find_key(KEYS_OF[kind], name).dynamic]
                if fixed:
                    raise InvalidRequest(
                        f"Cannot update these configs dynamically: {', '.join(fixed)}"
                    )

    def _check_group(self, configs: dict[str, str]) -> None:
        """Check that a group's timeouts are within the broker's limits."""
        for name, value in configs.items():
            protocol, _, rest = GROUP_KEYS[name].name.partition(".")
            low = self._settings.number(f"group.{protocol}.min.{rest}")
            high = self._settings.number(f"group.{protocol}.max.{rest}")
            if not low <= int(value) <= high:
                raise InvalidConfig(f"{name} must lie between {low} and {high}, not {value}")


def _check_size(value: str | None) -> None:
    """Refuse a value that is too long for DescribeConfigs: a list grows with each APPEND."""
    if value is not None and len(value.encode()) > STRING_BYTES_MAX:
        raise InvalidConfig(
            "The configuration value cannot be added because it exceeds the maximum value size "
            f"of {STRING_BYTES_MAX} bytes."
        )


def _appended(items: Sequence[str], named: Sequence[str]) -> list[str]:
    """Return the items, followed by those named ones that are missing."""
    there = frozenset(items)
    return [*items, *(item for item in dict.fromkeys(named) if item not in there)]


def _subtracted(items: Sequence[str], named: Sequence[str]) -> list[str]:
    """Return the items without the first occurrence of each named one."""
    left = []
    gone = Counter(named)
    for item in items:
        if gone[item]:
            gone[item] -= 1
        else:
            left.append(item)
    return left
