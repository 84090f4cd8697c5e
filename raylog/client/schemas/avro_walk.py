"""Checks whether Avro bytes are safe to decode: how deep they nest, and how many items they claim.

A decoder compiled to C follows a recursive schema as deep as the bytes demand, until the stack
overflows; and an array whose items take no bytes may claim any number of them. These checks find
both before anything is decoded. They are skipped for schemas that allow neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from raylog.client.schemas.errors import DecodingFailed

DEPTH_MAX = 150
"""Most levels of nested records, arrays and maps."""
EMPTY_ITEMS_MAX = 100_000
"""Most items of an array whose items take no bytes."""
_VARINT_BYTES_MAX = 10
_FIXED_WIDTH = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_NAMED = ("record", "error", "enum", "fixed")

Named = Mapping[str, Mapping[str, object]]


def needs_walk(schema: object) -> Callable[[bytes, int], None] | None:
    """Return a function that checks the bytes of a parsed schema, or None if it needs no check."""
    named: dict[str, Mapping[str, object]] = {}
    _collect(schema, named)
    if not (_contains_itself(named) or _has_empty_items(schema, named)):
        return None

    def check(data: bytes, start: int) -> None:
        _Walk(data, start, named).value(schema, 0)

    return check


def _collect(schema: object, named: dict[str, Mapping[str, object]]) -> None:
    """Collect the named types of a schema."""
    for part in _parts(schema):
        _collect(part, named)
    if isinstance(schema, Mapping) and schema.get("type") in _NAMED:
        named[str(schema["name"])] = schema


def _parts(schema: object) -> list[object]:
    """Return the schemas directly inside a schema."""
    if isinstance(schema, list):
        return list(schema)
    if not isinstance(schema, Mapping):
        return []
    kind = schema.get("type")
    if kind in ("record", "error"):
        fields = cast(Sequence[Mapping[str, object]], schema["fields"])
        return [field["type"] for field in fields]
    if kind in ("array", "map"):
        return [schema["items" if kind == "array" else "values"]]
    return [kind] if isinstance(kind, Mapping | list) else []


def _contains_itself(named: Named) -> bool:
    """Whether a named type contains itself, directly or indirectly."""
    inside = {name: _names(schema, named) for name, schema in named.items()}
    for name in named:
        seen: set[str] = set()
        left = list(inside[name])
        while left:
            one = left.pop()
            if one == name:
                return True
            if one not in seen:
                seen.add(one)
                left.extend(inside.get(one, ()))
    return False


def _names(schema: object, named: Named) -> set[str]:
    """Return the names of the types inside a schema."""
    found: set[str] = set()
    for part in _parts(schema):
        name = part if isinstance(part, str) else None
        if isinstance(part, Mapping):
            name = str(part.get("name") or part.get("type"))
        if name is not None and name in named:
            found.add(name)
        found |= _names(part, named)
    return found


def _has_empty_items(schema: object, named: Named) -> bool:
    """Whether the schema has an array whose items may take no bytes."""
    if (
        isinstance(schema, Mapping)
        and schema.get("type") == "array"
        and _is_empty(schema["items"], named, frozenset())
    ):
        return True
    return any(_has_empty_items(part, named) for part in _parts(schema))


def _is_empty(schema: object, named: Named, seen: frozenset[str]) -> bool:
    """Whether a value may take no bytes."""
    if isinstance(schema, list):
        return False  # the index of the branch takes bytes
    if isinstance(schema, str):
        if schema in named:
            return schema not in seen and _is_empty(named[schema], named, seen | {schema})
        return schema == "null"
    assert isinstance(schema, Mapping)
    kind = schema.get("type")
    if kind in ("record", "error"):
        return all(_is_empty(part, named, seen) for part in _parts(schema))
    if kind == "fixed":
        return bool(schema["size"] == 0)
    if kind in ("array", "map", "enum"):
        return False
    return _is_empty(kind, named, seen)


@dataclass(slots=True)
class _Walk:
    """A position in the bytes of one value."""

    data: bytes
    at: int
    named: Named

    def value(self, schema: object, depth: int) -> None:
        """Skip one value of `schema`."""
        if depth > DEPTH_MAX:
            raise DecodingFailed(f"expected a value nested at most {DEPTH_MAX} deep, found more")
        if isinstance(schema, list):
            index = self.number()
            if not 0 <= index < len(schema):
                raise DecodingFailed(
                    f"expected a branch of a union from 0 to {len(schema) - 1}, found {index}"
                )
            self.value(schema[index], depth)
        elif isinstance(schema, str):
            if schema in self.named:
                self.value(self.named[schema], depth)
            else:
                self.primitive(schema)
        else:
            assert isinstance(schema, Mapping)
            self.complex(schema, depth)

    def complex(self, schema: Mapping[str, object], depth: int) -> None:
        """Skip one value of a schema that is a JSON object."""
        kind = schema["type"]
        if kind in ("record", "error"):
            for part in _parts(schema):
                self.value(part, depth + 1)
        elif kind == "array":
            self.blocks(schema["items"], depth, keyed=False)
        elif kind == "map":
            self.blocks(schema["values"], depth, keyed=True)
        elif kind == "fixed":
            self.skip(cast(int, schema["size"]))
        elif kind == "enum":
            self.number()
        else:
            self.value(kind, depth)

    def blocks(self, items: object, depth: int, *, keyed: bool) -> None:
        """Skip the blocks of an array or a map."""
        while (count := self.number()) != 0:
            if count < 0:  # the block's size in bytes follows
                self.number()
                count = -count
            empty = not keyed and _is_empty(items, self.named, frozenset())
            most = EMPTY_ITEMS_MAX if empty else len(self.data) - self.at
            if count > most:
                raise DecodingFailed(f"expected at most {most} items in the rest, found {count}")
            for _ in range(count):
                if keyed:
                    self.skip(self.number())
                self.value(items, depth + 1)

    def primitive(self, name: str) -> None:
        """Skip a value of a primitive type."""
        if name in _FIXED_WIDTH:
            self.skip(_FIXED_WIDTH[name])
        elif name in ("string", "bytes"):
            self.skip(self.number())
        else:
            self.number()

    def skip(self, count: int) -> None:
        """Skip bytes; raises DecodingFailed past the end."""
        left = len(self.data) - self.at
        if not 0 <= count <= left:
            raise DecodingFailed(f"expected a value of 0 to {left} bytes, found {count}")
        self.at += count

    def number(self) -> int:
        """Read a zigzag varint."""
        value = 0
        for place, byte in enumerate(self.data[self.at : self.at + _VARINT_BYTES_MAX]):
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                self.at += place + 1
                return (value >> 1) ^ -(value & 1)
        raise DecodingFailed(f"expected a number at byte {self.at}, found none")
