"""Pydantic models of the configuration, built from the tables of keys: for files and the CLI.

Imported only where people type settings: pydantic's import and the models take longer than an
embedded broker may take to start.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
)

from raylog.actors.config import (
    BROKER_KEYS,
    TOPIC_KEYS,
    BrokerSettings,
    ResourceType,
    canonical,
    check,
    find_key,
    parse,
    split_list,
)
from raylog.actors.config_keys import INTERCEPTOR_OPTION_PREFIX, ConfigKey, ConfigType
from raylog.wire.errors import InvalidConfig

_PYTHON: dict[ConfigType, Any] = {
    ConfigType.BOOLEAN: bool,
    ConfigType.STRING: str,
    ConfigType.INT: int,
    ConfigType.SHORT: int,
    ConfigType.LONG: int,
    ConfigType.DOUBLE: float,
}


@cache
def broker_settings_model() -> type[BaseModel]:
    """Model of a broker's start-up settings; fields have Kafka's dotted names as aliases."""
    return _model("BrokerSettings", BROKER_KEYS)


@cache
def topic_settings_model() -> type[BaseModel]:
    """Model of a topic's own settings."""
    return _model("TopicSettings", TOPIC_KEYS)


def broker_settings(values: Mapping[str, object]) -> BrokerSettings:
    """Settings as a file has them (text, numbers, booleans, lists), checked.

    Raises InvalidConfig that names the key, and for an unknown key the nearest one.
    """
    return BrokerSettings(_texts(broker_settings_model(), BROKER_KEYS, values))


def topic_settings(values: Mapping[str, object]) -> dict[str, str]:
    """A topic's settings, likewise."""
    options = {
        name: str(value)
        for name, value in values.items()
        if name.startswith(INTERCEPTOR_OPTION_PREFIX)
    }
    known = {name: value for name, value in values.items() if name not in options}
    texts = _texts(topic_settings_model(), TOPIC_KEYS, known) | options
    check(ResourceType.TOPIC, texts)
    return texts


def _texts(
    model: type[BaseModel], keys: Mapping[str, ConfigKey], values: Mapping[str, object]
) -> dict[str, str]:
    read: dict[str, object] = {}
    for name, value in values.items():
        key = find_key(keys, name)
        read[name] = canonical(key, value) if isinstance(value, str) else value
    try:
        checked = model.model_validate(read)
    except ValidationError as wrong:
        first = wrong.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise InvalidConfig(f"Invalid value {first['input']} for {name}: {first['msg']}") from wrong
    dumped = checked.model_dump(by_alias=True, exclude_unset=True)
    return {name: _text(value) for name, value in dumped.items() if value is not None}


def _text(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case list():
            return ",".join(value)
        case _:
            return str(value)


def _model(name: str, keys: Mapping[str, ConfigKey]) -> type[BaseModel]:
    fields: dict[str, Any] = {
        key.name.replace(".", "_"): (_annotation(key), _field(key)) for key in keys.values()
    }
    model: type[BaseModel] = create_model(
        name, __config__=ConfigDict(extra="forbid", frozen=True), **fields
    )
    return model


def _annotation(key: ConfigKey) -> Any:
    if key.type is ConfigType.LIST:
        item: Any = Literal[key.choices] if key.choices else str
        kind: Any = Annotated[list[item], BeforeValidator(_split)]
    elif key.choices:
        kind = Literal[key.choices]
    elif key.also:
        words = tuple([one for one in key.also if one.isalpha()])
        plain = _PYTHON[key.type] | Literal[words] if words else _PYTHON[key.type]
        kind = Annotated[plain, AfterValidator(partial(_parsed, key))]
    elif key.low is not None or key.high is not None:
        kind = Annotated[_PYTHON[key.type], Field(ge=key.low, le=key.high)]
    else:
        kind = _PYTHON[key.type]
    return kind if key.default else kind | None


def _parsed(key: ConfigKey, value: object) -> object:
    """Check by the table where a range has exceptions; pydantic wants a ValueError."""
    try:
        return parse(key, str(value))
    except InvalidConfig as wrong:
        raise ValueError(str(wrong)) from wrong


def _split(value: object) -> object:
    return list(split_list(value)) if isinstance(value, str) else value


def _field(key: ConfigKey) -> Any:
    value = parse(key, key.default) if key.default else None
    default = list(value) if isinstance(value, tuple) else value
    return Field(default=default, alias=key.name, description=key.documentation)
