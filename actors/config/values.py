"""Parsing and formatting of setting values, as Apache Kafka's ConfigDef does it.

Blanks around a value are removed (Java's `trim`: characters up to U+0020). Then:

| type              | accepted                                              | written as         |
|-------------------|-------------------------------------------------------|--------------------|
| BOOLEAN           | true and false in any case                            | lower case         |
| INT, SHORT, LONG  | decimal digits of any script, a sign; not 1_000, 0x10 | decimal            |
| DOUBLE            | as Java parses it: .5, 5e-1, 0.5f, 0x1p-1, NaN        | as Java writes it  |
| STRING            | anything, or one of the choices in its case           | unchanged          |
| LIST              | items separated by commas, with blanks around them    | items and commas   |

The written form is stored, described and used, so that every accepted spelling takes effect.
"""

from __future__ import annotations

import math
import re

from raylog.actors.config.keys import INT_MAX, LONG_MAX, ConfigKey, ConfigType
from raylog.wire.errors import InvalidConfig

Value = bool | int | float | str | tuple[str, ...]
_BLANKS = "".join(map(chr, range(33)))
"""The characters that Java's String.trim removes."""
_BOOLEANS = {"true": True, "false": False}
_INTEGER = re.compile(r"[+-]?\d{1,4000}")
"""Python parses at most 4,300 digits."""
_BMP_MAX = "\uffff"
"""Java reads digits one UTF-16 unit at a time, so it accepts no digits beyond this character."""
_DECIMAL = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?", re.ASCII
)
_HEXADECIMAL = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?",
    re.ASCII,
)
"""No part can match where the previous one could continue, as that would take quadratic time."""
_UNWRITTEN = re.compile(r"([+-]?)(NaN|Infinity)[fFdD]?")
_AROUND_ITEMS = " \t\n\x0b\f\r"
_REPLICA = re.compile("([0-9]+:[0-9]+)?")
_HOST = re.compile(r"[0-9a-zA-Z\-%._:\[\]]+")
_COUNT = re.compile("[+-]?[0-9]{1,10}")
_SHOWN_MAX = 100
_RANGES = {
    ConfigType.INT: (-(2**31), INT_MAX),
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.LONG: (-(2**63), LONG_MAX),
}


def parse(key: ConfigKey, text: str) -> Value:
    """Parse a value; InvalidConfig says what was expected."""
    trimmed = text.strip(_BLANKS)
    if trimmed in key.also and (not trimmed or trimmed.isalpha()):
        return trimmed
    value = _typed(key, trimmed)
    if isinstance(value, tuple):
        _check_items(key, value)
        return tuple(dict.fromkeys(value)) if key.choices else value
    if key.choices and isinstance(value, str):
        return _choice(key, value)
    if key.counts_hosts and isinstance(value, str):
        host_counts(key, value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        _check_range(key, value)
    return value


def canonical(key: ConfigKey, text: str) -> str:
    """Return a value as Kafka formats and stores it; raises InvalidConfig as `parse` does."""
    value = parse(key, text)
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return java_double(value)
        case tuple():
            return ",".join(value)
        case _:
            return str(value)


def split_list(text: str) -> tuple[str, ...]:
    """Return the items of a LIST value, without empty ones."""
    return tuple(item for item in _items(text.strip(_BLANKS)) if item)


def java_double(value: float) -> str:
    """Return a number as Java's Double.toString formats it."""
    if math.isnan(value):
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = _shortest(value)
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _shortest(value: float) -> tuple[str, str, int]:
    """Return the sign, the significant digits, and the decimal exponent of the first of them."""
    mantissa, _, exponent = f"{value!r}e0".partition("e")
    power = int(exponent.partition("e")[0])
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, part = mantissa.lstrip("-").partition(".")
    digits = (whole + part).lstrip("0")
    first = len(whole) - 1 - (len(whole + part) - len(digits))
    return sign, digits.rstrip("0") or "0", power + first


def _typed(key: ConfigKey, text: str) -> Value:
    match key.type:
        case ConfigType.BOOLEAN:
            value = _BOOLEANS.get(text.casefold())
            if value is None:
                raise _invalid(key, text, "Expected value to be either true or false")
            return value
        case ConfigType.STRING:
            return text
        case ConfigType.LIST:
            return _items(text)
        case ConfigType.DOUBLE:
            return _double(key, text)
        case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
            return _integer(key, text)


def _integer(key: ConfigKey, text: str) -> int:
    low, high = _RANGES[key.type]
    if _INTEGER.fullmatch(text) is None or max(text) > _BMP_MAX or not low <= int(text) <= high:
        raise _not_a_number(key, text)
    return int(text)


def _double(key: ConfigKey, text: str) -> float:
    if named := _UNWRITTEN.fullmatch(text):
        return float(named[1] + named[2])
    if decimal := _DECIMAL.fullmatch(text):
        return float(decimal[1])
    if hexadecimal := _HEXADECIMAL.fullmatch(text):
        return _from_hexadecimal(hexadecimal[1])
    raise _not_a_number(key, text)


def _from_hexadecimal(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return float("-inf" if text.startswith("-") else "inf")


def _items(text: str) -> tuple[str, ...]:
    return tuple(item.strip(_AROUND_ITEMS) for item in text.split(",")) if text else ()


def _check_items(key: ConfigKey, items: tuple[str, ...]) -> None:
    if key.names_replicas:
        _check_replicas(key, items)
    if key.choices and "" in items:
        raise InvalidConfig(f"Configuration '{key.name}' values must not be empty.")
    for item in items if key.choices else ():
        if item not in key.choices:
            raise _invalid(key, item, f"String must be one of: {', '.join(key.choices)}")


def _check_replicas(key: ConfigKey, items: tuple[str, ...]) -> None:
    """Check a list of throttled replicas by Kafka's rules (KIP-73)."""
    if items != ("*",) and not all(map(_REPLICA.fullmatch, items)):
        raise _invalid(
            key,
            f"[{', '.join(items)}]",
            f"{key.name} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
        )


def host_counts(key: ConfigKey, text: str) -> dict[str, int]:
    """Parse hosts, by name or address, with a count for each: `127.0.0.1:200,example.org:100`.

    The last colon ends the host, which may be an IPv6 address.
    """
    counts = {}
    for item in filter(None, _items(text)):
        host, _, count = item.rpartition(":")
        host, count = host.strip(_BLANKS), count.strip(_BLANKS)
        is_count = _COUNT.fullmatch(count) and -INT_MAX - 1 <= int(count) <= INT_MAX
        if not _HOST.fullmatch(host) or not is_count:
            raise _invalid(key, item, "Expected hosts with a count for each: host:count")
        counts[host] = int(count)
    return counts


def _choice(key: ConfigKey, text: str) -> str:
    """Return the matching choice; case is ignored where Kafka ignores it."""
    if key.any_case:
        text = next((one for one in key.choices if one.casefold() == text.casefold()), text)
    if text not in key.choices:
        raise _invalid(key, text, f"String must be one of: {', '.join(key.choices)}")
    return text


def _check_range(key: ConfigKey, value: float) -> None:
    if str(value) in key.also:
        return
    expected = None
    if key.low is not None and value < key.low:
        expected = f"Value must be at least {key.low}"
    elif key.high is not None and value > key.high:
        expected = f"Value must be no more than {key.high}"
    if expected is None:
        return
    if any(key.also):
        also = " or ".join(key.also)
        expected = f"Value must be between {key.low} and {key.high} or equal to {also}"
    shown = java_double(value) if isinstance(value, float) else str(value)
    raise _invalid(key, shown, expected)


def _not_a_number(key: ConfigKey, text: str) -> InvalidConfig:
    shown = text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
    return _invalid(key, shown, f"Not a number of type {key.type.name}")


def _invalid(key: ConfigKey, text: str, expected: str) -> InvalidConfig:
    return InvalidConfig(f"Invalid value {text} for configuration {key.name}: {expected}")
