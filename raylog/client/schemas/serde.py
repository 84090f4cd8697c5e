"""What serializers of all formats share: subject, schema, wire format and caching.

What records need from the registry is requested once and cached as a plan: per topic for a
serializer, per topic and schema for a deserializer. With a plan, no call suspends or blocks.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, MutableSequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from raylog.client.errors import InvalidSetting
from raylog.client.io import run_blocking
from raylog.client.schemas.errors import DecodingFailed, EncodingFailed, SchemaError, SchemaNotFound
from raylog.client.schemas.framing import (
    Frame,
    guid_header,
    header_name,
    id_prefix,
    read_frame,
)
from raylog.client.schemas.model import Registered, Schema
from raylog.client.schemas.registry import Kept, RegistryCore, SchemaRegistry
from raylog.client.schemas.subjects import SubjectNameStrategy, known_subject, strategy
from raylog.client.serializers import Headers

T = TypeVar("T")
R = TypeVar("R")

Place = Literal["prefix", "header"]
AnyRegistry = SchemaRegistry | RegistryCore

_FOREVER = float("inf")


@dataclass(frozen=True, slots=True)
class _WritePlan(Generic[T]):
    """How to write the values of a topic."""

    write: Callable[[T], bytes]
    prefix: bytes
    header: tuple[str, bytes] | None
    until: float


@dataclass(frozen=True, slots=True)
class _ReadPlan(Generic[R]):
    """How to read values of a schema, given a record's bytes and where the value starts."""

    read: Callable[[bytes, int], R]
    until: float


class _Serde:
    """Base of serializers and deserializers: the registry, and whether it blocks."""

    format_name: str
    """The format's name in the registry."""
    layout: str | None = None
    """The form in which schemas are requested."""

    def __init__(
        self, registry: AnyRegistry, key: bool, subject_name_strategy: str | SubjectNameStrategy
    ) -> None:
        self._core = registry.core if isinstance(registry, SchemaRegistry) else registry
        self._blocks = isinstance(registry, SchemaRegistry)
        self._is_key = key
        self._strategy = strategy(subject_name_strategy)
        self._planning = threading.Lock()

    def _must_block(self, then: str) -> None:
        if not self._blocks:
            raise SchemaError(
                f"this {type(self).__name__} has an AsyncSchemaRegistry: expected `await {then}`, "
                "found a call that cannot wait"
            )


class SchemaSerializer(_Serde, ABC, Generic[T]):
    """Writes values with a schema from the registry.

    Call it (as a `value_serializer`), or `await encode(...)` with an AsyncSchemaRegistry. Safe for
    use by several threads.

    - `key`: whether it serializes keys; decides the subject's name and the header.
    - `auto_register_schemas`: register the schema if the subject does not have it; otherwise it
      must be registered.
    - `normalize_schemas`: the registry compares schemas in normalized form.
    - `use_latest_version`: write with the subject's latest schema, even if `schema` differs.
    - `use_schema_id`: write with the schema of this id.
    - `subject_name_strategy`: `topic`, `record`, `topic-record`, or a callable.
    - `schema_id_place`: `prefix` writes the id before the value, `header` the GUID into a header;
      the headers passed to `send` must then be a list.
    """

    def __init__(
        self,
        registry: AnyRegistry,
        *,
        key: bool = False,
        auto_register_schemas: bool = True,
        normalize_schemas: bool = False,
        use_latest_version: bool = False,
        use_schema_id: int | None = None,
        subject_name_strategy: str | SubjectNameStrategy = "topic",
        schema_id_place: Place = "prefix",
    ) -> None:
        super().__init__(registry, key, subject_name_strategy)
        if auto_register_schemas and (use_latest_version or use_schema_id is not None):
            other = "use_latest_version" if use_latest_version else "use_schema_id"
            raise InvalidSetting(
                f"expected auto_register_schemas=False with {other}: one schema is chosen, not both"
            )
        if use_latest_version and use_schema_id is not None:
            raise InvalidSetting("expected use_latest_version or use_schema_id, found both")
        if schema_id_place not in ("prefix", "header"):
            raise InvalidSetting(
                f"expected schema_id_place 'prefix' or 'header', found {schema_id_place!r}"
            )
        self._auto_register = auto_register_schemas
        self._normalize = normalize_schemas
        self._use_latest = use_latest_version
        self._use_id = use_schema_id
        self._place = schema_id_place
        self._plans: Kept[str, _WritePlan[T]] = Kept(self._core.settings.cache_capacity)

    def __call__(self, topic: str, data: T, headers: Headers = ()) -> bytes:
        """Return the bytes of `data`; raises SchemaError."""
        plan = self._plans.get(topic)
        if plan is None or plan.until <= self._core.now():
            self._must_block("serializer.encode(topic, data, headers)")
            with self._planning:  # one thread asks the registry, the others use its plan
                plan = self._plans.get(topic)
                if plan is None or plan.until <= self._core.now():
                    plan = run_blocking(self._planned(topic))
        return self._written(plan, data, headers)

    async def encode(self, topic: str, data: T, headers: Headers = ()) -> bytes:
        """Return the bytes of `data`, asking the registry if needed; raises SchemaError."""
        plan = self._plans.get(topic)
        if plan is None or plan.until <= self._core.now():
            plan = await self._planned(topic)
        return self._written(plan, data, headers)

    async def prepare(self, topic: str) -> None:
        """Request what this topic needs from the registry, so that later calls need not wait."""
        await self._planned(topic)

    def _written(self, plan: _WritePlan[T], data: T, headers: Headers) -> bytes:
        if plan.header is not None:
            if not isinstance(headers, MutableSequence):
                raise EncodingFailed(
                    "expected headers as a list, so that the schema's GUID can be added to them; "
                    f"found {type(headers).__name__}"
                )
            name = plan.header[0]
            headers[:] = [header for header in headers if header[0] != name]  # of an earlier send
            headers.append(plan.header)
        return plan.prefix + plan.write(data)

    async def _planned(self, topic: str) -> _WritePlan[T]:
        name = await self._record_name()
        subject = known_subject(self._strategy(topic, self._is_key, name))
        registered = await self._registered(subject)
        if registered.schema.type != self.format_name:
            raise SchemaError(
                f"expected a schema of the type {self.format_name} in {subject}, found "
                f"{registered.schema.type} (id {registered.id})"
            )
        write = await self._writer(registered.schema)
        until = self._core.latest_until() if self._use_latest else _FOREVER
        prefix, header = b"", None
        indexes = await self._indexes(registered.schema)
        if self._place == "prefix":
            prefix = id_prefix(registered.id, indexes)
        else:
            guid = await self._guid(subject, registered)
            name_of_header = header_name(is_key=self._is_key)
            header = (name_of_header, guid_header(guid, indexes))
        return self._plans.put(topic, _WritePlan(write, prefix, header, until))

    async def _registered(self, subject: str) -> Registered:
        """Return the schema to write with."""
        core = self._core
        if self._use_id is not None:
            schema = await core.schema(self._use_id, subject, self.layout)
            return await core.lookup(subject, schema, deleted=True)
        if self._use_latest:
            return await core.latest(subject, self.layout)
        own = await self._own_schema()
        if self._auto_register:
            return await core.register(subject, own, normalize=self._normalize)
        return await core.lookup(subject, own, normalize=self._normalize)

    async def _guid(self, subject: str, registered: Registered) -> str:
        if registered.guid is not None:
            return registered.guid
        found = await self._core.lookup(subject, registered.schema)
        if found.guid is None:
            raise SchemaError(
                f"expected a registry that knows GUIDs (schema_id_place='header'), found none for "
                f"the schema {registered.id}"
            )
        return found.guid

    @abstractmethod
    async def _record_name(self) -> str | None:
        """Return the record name of the serializer's own schema."""

    @abstractmethod
    async def _own_schema(self) -> Schema:
        """Return the schema to register or look up."""

    @abstractmethod
    async def _writer(self, schema: Schema) -> Callable[[T], bytes]:
        """Return a function that writes values of `schema`, or raises EncodingFailed."""

    async def _indexes(self, schema: Schema) -> tuple[int, ...] | None:
        """Return a Protobuf message's place in the file `schema`; None for other formats."""
        return None


class OwnSchemaSerializer(SchemaSerializer[T]):
    """A serializer that has its schema from its caller, or none to use the registry's.

    `to_dict` makes of a value what is written.
    """

    def __init__(
        self,
        registry: AnyRegistry,
        schema: Schema | None,
        to_dict: Callable[[T], object] | None,
        **options: Any,
    ) -> None:
        super().__init__(registry, **options)
        self._schema = schema
        self._to_dict = to_dict
        if schema is None and self._auto_register:
            raise SchemaError("expected a schema to register, found none")

    async def _own_schema(self) -> Schema:
        if self._schema is None:
            raise SchemaError("expected a schema to look up, found none")
        return self._schema


class SchemaDeserializer(_Serde, ABC, Generic[R]):
    """Reads values with the schema that their prefix or header names.

    Call it (as a `value_deserializer`), or `await decode(...)` with an AsyncSchemaRegistry. Safe
    for use by several threads.

    - `key`: whether it deserializes keys.
    - `use_latest_version`: read with the subject's latest schema.
    - `subject_name_strategy`: as for serializers; with `topic`, requests by id name the subject.
    """

    _indexed = False

    def __init__(
        self,
        registry: AnyRegistry,
        *,
        key: bool = False,
        use_latest_version: bool = False,
        subject_name_strategy: str | SubjectNameStrategy = "topic",
    ) -> None:
        super().__init__(registry, key, subject_name_strategy)
        self._use_latest = use_latest_version
        self._plans: Kept[tuple[str, int | str | None, tuple[int, ...] | None], _ReadPlan[R]]
        self._plans = Kept(self._core.settings.cache_capacity)

    def __call__(self, topic: str, data: bytes, headers: Headers = ()) -> R:
        """Return the value of `data`; raises SchemaError."""
        frame = read_frame(data, headers, is_key=self._is_key, indexed=self._indexed)
        plan = self._plan(topic, frame)
        if plan is None:
            self._must_block("deserializer.decode(topic, data, headers)")
            with self._planning:
                plan = self._plan(topic, frame) or run_blocking(self._planned(topic, frame))
        return plan.read(data, frame.start)

    async def decode(self, topic: str, data: bytes, headers: Headers = ()) -> R:
        """Return the value of `data`, asking the registry if needed; raises SchemaError."""
        frame = read_frame(data, headers, is_key=self._is_key, indexed=self._indexed)
        plan = self._plan(topic, frame) or await self._planned(topic, frame)
        return plan.read(data, frame.start)

    def _plan(self, topic: str, frame: Frame) -> _ReadPlan[R] | None:
        plan = self._plans.get((topic, frame.guid or frame.id, frame.indexes))
        if plan is None or (plan.until != _FOREVER and plan.until <= self._core.now()):
            return None
        return plan

    async def _planned(self, topic: str, frame: Frame) -> _ReadPlan[R]:
        subject = self._strategy(topic, self._is_key, None)
        latest = None
        if self._use_latest and subject is not None:
            latest = await self._core.latest(subject, self.layout)
        written = await self._written_with(frame, subject)
        if written.type != self.format_name:
            raise DecodingFailed(
                f"expected a value of a schema of the type {self.format_name}, found "
                f"{written.type} (schema {frame.guid or frame.id})"
            )
        if self._use_latest and subject is None:
            name = await self._name_in(written, frame)
            subject = known_subject(self._strategy(topic, self._is_key, name))
            latest = await self._core.latest(subject, self.layout)
        read = await self._reader(written, None if latest is None else latest.schema, frame)
        until = self._core.latest_until() if self._use_latest else _FOREVER
        key = (topic, frame.guid or frame.id, frame.indexes)
        return self._plans.put(key, _ReadPlan(read, until))

    async def _written_with(self, frame: Frame, subject: str | None) -> Schema:
        if frame.guid is not None:
            return await self._core.schema_by_guid(frame.guid, self.layout)
        assert frame.id is not None
        try:
            return await self._core.schema(frame.id, subject, self.layout)
        except SchemaNotFound:
            if subject is None:
                raise
            # Registered under another subject: the topic was copied, or the writer uses another
            # strategy. Ids are unique in the registry, so its schema is the right one.
            return await self._core.schema(frame.id, None, self.layout)

    @abstractmethod
    async def _name_in(self, schema: Schema, frame: Frame) -> str | None:
        """Return the name of the record type that was written."""

    @abstractmethod
    async def _reader(
        self, written: Schema, latest: Schema | None, frame: Frame
    ) -> Callable[[bytes, int], R]:
        """Return a function that reads a `written` value, given bytes and where it begins."""
