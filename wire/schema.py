"""Declares the fields of messages: wire type, versions and default, for the codec generator.

A message is a slotted dataclass with keyword-only fields for all its versions:

    @message(ApiKey.LIST_OFFSETS, versions="1-11", flexible="6+")
    class ListOffsetsRequest:
        replica_id: int = wire(INT32, default=-1)
        isolation_level: int = wire(INT8, "2+")  # KIP-98

Version ranges are "3", "2-5" or "4+". A field that a version lacks is not encoded and has its
default after decoding. Encoding such a field with another value is an error unless it is
`ignorable`. A tagged field (KIP-482) is written only if it differs from its default.
"""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, dataclass_transform

from raylog.wire.api import ApiKey

T = TypeVar("T")
_VERSION_END = 0x8000  # versions are int16; this is the exclusive end of "4+"
_UNSET: Any = object()

INT32_MIN = -0x80000000
INT32_MAX = 0x7FFFFFFF
INT64_MAX = 0x7FFFFFFFFFFFFFFF

Buffer = bytes | bytearray | memoryview
RecordData = Buffer | list[Buffer]  # one piece or several; a memoryview when decoded


class Kind(NamedTuple):
    """A wire type. `code` is its `struct` format if its width is fixed, else empty."""

    name: str
    code: str
    default: Any


INT8 = Kind("int8", "b", 0)
INT16 = Kind("int16", "h", 0)
INT32 = Kind("int32", "i", 0)
INT64 = Kind("int64", "q", 0)
UINT16 = Kind("uint16", "H", 0)
UINT32 = Kind("uint32", "I", 0)
FLOAT64 = Kind("float64", "d", 0.0)
BOOL = Kind("bool", "?", False)  # any byte but 0 is true
UUID = Kind("uuid", "16s", bytes(16))  # 16 bytes, big-endian; all zero means none
STRING = Kind("string", "", "")  # UTF-8, at most 32,767 bytes
BYTES = Kind("bytes", "", b"")
RECORDS = Kind("records", "", b"")  # decoded as a view of the input, encoded by reference


class Array(NamedTuple):
    """A counted sequence of one kind or struct; a list in Python."""

    element: Kind | type


def array(element: Kind | type) -> Array:
    """The kind of a list of `element`."""
    return Array(element)


class Field(NamedTuple):
    """A field of a message, as the codec generator sees it."""

    name: str
    kind: Kind | Array | type
    versions: range
    default: Any  # None of a struct: absent
    nullable: range
    tag: int | None
    ignorable: bool


class Layout(NamedTuple):
    """The layout of a message class. `versions` is None for nested structs."""

    fields: tuple[Field, ...]
    api_key: ApiKey | None = None
    versions: range | None = None
    flexible: range = range(0)


def versions_of(text: str) -> range:
    """Parse "3", "2-5" or "4+" to a range; "none" is empty."""
    if text == "none":
        return range(0)
    if text.endswith("+"):
        return range(int(text[:-1]), _VERSION_END)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def wire(
    kind: Kind | Array | type,
    versions: str = "0+",
    *,
    default: Any = _UNSET,
    nullable: str = "none",
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Declare a field. The default default is Kafka's: 0, "", empty, or an all-default struct.

    `nullable` names the versions with a form for None. `tag` makes the field a tagged one in all
    its versions. The default of a tagged struct should be None, which means absent.
    """
    return Field("", kind, versions_of(versions), default, versions_of(nullable), tag, ignorable)


@dataclass_transform(kw_only_default=True)
def message(api_key: ApiKey, *, versions: str, flexible: str) -> Callable[[type[T]], type[T]]:
    """Make a request or response of `api_key` out of a class of `wire` fields."""
    stated, flexible_range = versions_of(versions), versions_of(flexible)
    if stated != range(api_key.first_version, api_key.last_version + 1):
        raise TypeError(f"{api_key.name}: versions {versions} are not those of the API table")
    if (flexible_range.start if flexible_range else None) != api_key.flexible_from:
        raise TypeError(f"{api_key.name}: flexible {flexible} is not that of the API table")

    def decorate(cls: type[T]) -> type[T]:
        return _build(cls, api_key, stated, flexible_range)

    return decorate


@dataclass_transform(kw_only_default=True)
def versioned(*, versions: str, flexible: str = "none") -> Callable[[type[T]], type[T]]:
    """Turn a class into a versioned blob without an API, such as a record of an internal topic."""

    def decorate(cls: type[T]) -> type[T]:
        return _build(cls, None, versions_of(versions), versions_of(flexible))

    return decorate


@dataclass_transform(kw_only_default=True)
def struct(cls: type[T]) -> type[T]:
    """Turn a class into a nested struct, which has the version and flexibility of its message."""
    return _build(cls, None, None, range(0))


def layout_of(cls: type) -> Layout:
    """The layout of a class made by `message`, `versioned` or `struct`."""
    layout = cls.__dict__.get("__layout__")
    if not isinstance(layout, Layout):
        raise TypeError(f"{cls.__name__} is not a wire message")
    return layout


def is_struct(kind: object) -> bool:
    """Whether `kind` is a class made by `struct`."""
    return isinstance(kind, type) and "__layout__" in kind.__dict__


def _build(
    cls: type[T], api_key: ApiKey | None, versions: range | None, flexible: range
) -> type[T]:
    fields = []
    for name in inspect.get_annotations(cls):
        declared = cls.__dict__[name]
        assert isinstance(declared, Field), f"{cls.__name__}.{name} is not declared by wire()"
        default, dataclass_field = _defaults(declared)
        fields.append(declared._replace(name=name, default=default))
        setattr(cls, name, dataclass_field)
    methods: Any = cls
    methods.__init__, methods.__eq__, methods.__repr__ = _first_init, _equal, _represent
    methods.__hash__ = None
    methods.__layout__ = Layout(tuple(fields), api_key, versions, flexible)
    # Dataclass would take 0.4 ms per class to compile the methods, which would slow down a start.
    make = dataclasses.dataclass(slots=True, kw_only=True, init=False, repr=False, eq=False)
    return make(cls)


def _defaults(declared: Field) -> tuple[Any, Any]:
    """The default for comparisons, and the one for the dataclass."""
    if declared.default is not _UNSET:
        return declared.default, dataclasses.field(default=declared.default)
    if isinstance(declared.kind, Array):
        return [], dataclasses.field(default_factory=list)
    if isinstance(declared.kind, Kind):
        return declared.kind.default, dataclasses.field(default=declared.kind.default)
    return declared.kind(), dataclasses.field(default_factory=declared.kind)


def _first_init(self: Any, **values: Any) -> None:
    """Compile the constructor at the first instance, then call it."""
    cls = type(self)
    cls.__init__ = _make_init(cls)
    cls.__init__(self, **values)


def _make_init(cls: Any) -> Callable[..., None]:
    names: dict[str, Any] = {"unset": _UNSET}
    arguments, body = ["self"], []
    for field in dataclasses.fields(cls):
        name = field.name
        if field.default_factory is dataclasses.MISSING:
            names[f"default_{name}"] = field.default
            arguments.append(f"{name}=default_{name}")
            body.append(f"self.{name} = {name}")
        else:
            names[f"make_{name}"] = field.default_factory
            arguments.append(f"{name}=unset")
            body.append(f"self.{name} = make_{name}() if {name} is unset else {name}")
    arguments.insert(1, "*")
    head = f"def __init__({', '.join(arguments if body else ['self'])}):"
    exec("\n    ".join([head, *(body or ["pass"])]), names)  # noqa: S102  # our own field names
    init: Callable[..., None] = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _equal(self: Any, other: Any) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)


def _represent(self: Any) -> str:
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
    return f"{type(self).__name__}({values})"
