"""What a setting consists of: its name, the values it accepts, and how they are read from text."""

import ssl
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from raylog.client.errors import InvalidSetting

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class Kind(NamedTuple):
    """A kind of value: which values are accepted, and how they are read."""

    expected: str
    """The accepted values, for messages and documentation."""
    read: Callable[[object], object]
    """Returns the value; raises ValueError for one that is not accepted."""


class Setting(NamedTuple):
    """One of Kafka's settings."""

    name: str
    """In Kafka's spelling; users may write underscores instead of dots."""
    field: str
    kind: Kind
    doc: str
    kafka_default: str = ""
    """Kafka's default, if it differs."""
    secret: bool = False


def integer(low: int = 0, high: int = INT32_MAX) -> Kind:
    """Accept a whole number within bounds, both inclusive."""
    bounds = f"{low:,} or more" if high in (INT32_MAX, INT64_MAX) else f"{low:,} to {high:,}"
    return Kind(f"integer, {bounds}", lambda value: _bounded(_int(value), low, high))


def milliseconds(low: int = 0, high: int = INT32_MAX) -> Kind:
    """Accept a duration in ms, within inclusive bounds."""
    bounds = f"{low:,} or more" if high in (INT32_MAX, INT64_MAX) else f"{low:,} to {high:,}"
    return Kind(f"ms, {bounds}", lambda value: _bounded(_int(value), low, high))


def size(low: int = 0) -> Kind:
    """Accept a number of bytes."""
    return Kind(f"bytes, {low:,} or more", lambda value: _bounded(_int(value), low, INT64_MAX))


def choice(words: Mapping[str, object]) -> Kind:
    """Accept one of some words, ignoring case, or the value that it stands for."""
    by_name = {word.lower(): value for word, value in words.items()}

    def read(value: object) -> object:
        if isinstance(value, Enum):
            if value in by_name.values():
                return value
        elif isinstance(value, str | int) and not isinstance(value, bool):
            text = str(value).strip().lower()
            if text in by_name:
                return by_name[text]
        raise ValueError

    return Kind(" or ".join(f"{word!r}" for word in words), read)


def _read_bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise ValueError


def _read_text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise ValueError


def _read_optional_text(value: object) -> str | None:
    return None if value is None or value == "" else _read_text(value)


def _read_names(value: object) -> tuple[str, ...]:
    parts: Iterable[object] = value.split(",") if isinstance(value, str) else _iterable(value)
    return tuple(name for name in (_read_text(part).strip() for part in parts) if name)


def _read_context(value: object) -> ssl.SSLContext:
    if isinstance(value, ssl.SSLContext):
        return value
    raise ValueError


def _read_reset(value: object) -> str:
    text = _read_text(value).strip()
    name, colon, duration = text.partition(":")
    if text.lower() in ("earliest", "latest", "none"):
        return text.lower()
    if name.lower() == "by_duration" and colon:
        return f"by_duration:{duration}"
    raise ValueError


BOOLEAN = Kind("true or false", _read_bool)
TEXT = Kind("text", _read_text)
OPTIONAL_TEXT = Kind("text", _read_optional_text)
NAMES = Kind("names separated by commas, or a list of names", _read_names)
RESET = Kind("'earliest', 'latest', 'by_duration:PT1H' or 'none'", _read_reset)
SSL_CONTEXT = Kind("ssl.SSLContext", _read_context)


def mapped(kind: Kind, change: Callable[[object], object]) -> Kind:
    """Return a kind whose value is converted after it was read."""
    return Kind(kind.expected, lambda value: change(kind.read(value)))


def read(kind: Kind, name: str, value: object, *, secret: bool = False) -> object:
    """Return a setting's value; InvalidSetting names what was expected and what was found."""
    try:
        return kind.read(value)
    except ValueError as error:
        found = f"{type(value).__name__} (kept secret)" if secret else repr(value)
        why = f" ({error})" if error.args else ""
        raise InvalidSetting(f"{name}: expected {kind.expected}, found {found}{why}") from None


def _int(value: object) -> int:
    if isinstance(value, bool):
        raise ValueError  # noqa: TRY004  # the same for a wrong type as for a value out of range
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        try:
            return int(value.strip().replace("_", " "))
        except ValueError:
            raise ValueError from None
    raise ValueError


def _bounded(value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise ValueError
    return value


def _iterable(value: object) -> Iterable[object]:
    if isinstance(value, list | tuple | set | frozenset):
        return value
    raise ValueError
