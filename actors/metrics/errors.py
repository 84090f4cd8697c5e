"""Counts error codes in responses to clients, wherever a message contains them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any

from raylog.actors.metrics.families.gateway import ERRORS
from raylog.actors.metrics.samples import Samples
from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode
from raylog.wire.schema import Array, is_struct, layout_of

Collect = Callable[[Any, list[int]], None]
"""Appends the nonzero codes of a message, or of a part of one."""


class ErrorCounts:
    """Error codes returned, by API."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: Counter[tuple[int, int]] = Counter()

    def answered(self, api_key: int, response: object) -> None:
        """Count the error codes of a response."""
        self.add(api_key, codes_in(response))

    def add(self, api_key: int, codes: Iterable[int]) -> None:
        """Count error codes of a response."""
        for code in codes:
            self._counts[api_key, code] += 1

    def sample(self, samples: Samples) -> None:
        """Add samples of all counts."""
        for (api_key, code), count in self._counts.items():
            samples.add(ERRORS, count, api_name(api_key), error_name(code))


def api_name(api_key: int) -> str:
    """Return the name of an API as Kafka spells it, such as "ListOffsets"."""
    return "".join(part.capitalize() for part in ApiKey(api_key).name.split("_"))


def error_name(code: int) -> str:
    """Return the name of an error code as Kafka spells it."""
    return ErrorCode(code).name


def codes_in(response: Any) -> list[int]:
    """Return the nonzero error codes in a response, one per failed item."""
    found: list[int] = []
    kind: type = type(response)
    collect = _collector(kind)
    if collect is not None:
        collect(response, found)
    return found


@cache
def _collector(kind: type) -> Collect | None:
    """Return the function that finds the codes in a message class, or None if it has none."""
    has_code = False
    inner: list[tuple[str, Collect]] = []
    for one in layout_of(kind).fields:
        if one.name == "error_code":
            has_code = True
        elif isinstance(one.kind, Array) and is_struct(one.kind.element):
            collect = _collector(one.kind.element)
            if collect is not None:
                inner.append((one.name, partial(_collect_each, collect)))
        elif is_struct(one.kind):
            collect = _collector(one.kind)
            if collect is not None:
                inner.append((one.name, partial(_collect_one, collect)))
    if not has_code and not inner:
        return None
    return partial(_collect, has_code, tuple(inner))


def _collect(
    has_code: bool, inner: tuple[tuple[str, Collect], ...], message: Any, found: list[int]
) -> None:
    if has_code and message.error_code:
        found.append(message.error_code)
    for name, collect in inner:
        collect(getattr(message, name), found)


def _collect_each(collect: Collect, messages: list[Any] | None, found: list[int]) -> None:
    for one in messages or ():
        collect(one, found)


def _collect_one(collect: Collect, message: Any, found: list[int]) -> None:
    if message is not None:
        collect(message, found)
