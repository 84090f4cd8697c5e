"""Protobuf in the wire format of a schema registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from raylog.client.schemas.errors import DecodingFailed, EncodingFailed
from raylog.client.schemas.framing import Frame
from raylog.client.schemas.model import Reference, Schema
from raylog.client.schemas.protobuf_files import (
    descriptor_of,
    file_of,
    indexes_of,
    is_known,
    message_at,
    message_named,
    text_of,
)
from raylog.client.schemas.serde import AnyRegistry, SchemaDeserializer, SchemaSerializer
from raylog.extras import MissingExtra, needs

with needs("schemas", "Protobuf"):
    from google.protobuf.message import DecodeError, EncodeError, Message
    from google.protobuf.message_factory import GetMessageClass

if TYPE_CHECKING:
    from google.protobuf.descriptor import FileDescriptor

M = TypeVar("M", bound=Message)

ReferenceSubject = Callable[[str], str]


class ProtobufSerializer(SchemaSerializer[M]):
    """Writes messages of one class.

    The file of the class is registered, and those that it imports under subjects of their own:
    `reference_subject_name` makes one of the path of an import (the path itself by default).
    Files that come with Protobuf are not registered unless `skip_known_types` is False.
    Other arguments are those of SchemaSerializer.
    """

    format_name = "PROTOBUF"
    layout = "serialized"

    def __init__(
        self,
        registry: AnyRegistry,
        message_type: type[M],
        *,
        skip_known_types: bool = True,
        reference_subject_name: ReferenceSubject = str,
        **options: Any,
    ) -> None:
        super().__init__(registry, **options)
        self._type = message_type
        self._skips_known = skip_known_types
        self._reference_subject = reference_subject_name

    async def _indexes(self, schema: Schema) -> tuple[int, ...]:
        message = descriptor_of(self._type)
        if self._use_latest or self._use_id is not None:  # messages may have another order there
            message = message_named(await file_of(self._core, schema), message.full_name)
        return indexes_of(message)

    async def _record_name(self) -> str | None:
        return descriptor_of(self._type).full_name

    async def _own_schema(self) -> Schema:
        return await self._with_references(descriptor_of(self._type).file)

    async def _with_references(self, file: FileDescriptor) -> Schema:
        """A file as a schema; what it imports is registered, or looked up, first."""
        references = []
        for imported in file.dependencies:
            if self._skips_known and is_known(imported.name):
                continue
            schema = await self._with_references(imported)
            subject = self._reference_subject(imported.name)
            if self._auto_register:
                await self._core.register(subject, schema, normalize=self._normalize)
            found = await self._core.lookup(subject, schema, normalize=self._normalize)
            references.append(Reference(imported.name, subject, found.version or 1))
        return Schema(text_of(file), "PROTOBUF", tuple(references))

    async def _writer(self, schema: Schema) -> Callable[[M], bytes]:
        kind = self._type  # a message brings its own schema

        def write(data: M) -> bytes:
            if not isinstance(data, kind):
                raise EncodingFailed(
                    f"expected a message {kind.DESCRIPTOR.full_name}, found {type(data).__name__}"
                )
            try:
                return data.SerializeToString()
            except (EncodeError, ValueError) as failure:
                raise EncodingFailed(
                    f"the message {kind.DESCRIPTOR.full_name} cannot be written: {failure}"
                ) from failure

        return write


class ProtobufDeserializer(SchemaDeserializer[M]):
    """Reads messages.

    With a class, each message is of it: a record that says it is another message is refused.
    Without one, messages are of classes made from the schemas that they were written with.
    `use_latest_version` looks up the subject's latest schema; messages read the same with it.
    Other arguments are those of SchemaDeserializer.
    """

    format_name = "PROTOBUF"
    layout = "serialized"
    _indexed = True

    @overload
    def __init__(
        self: ProtobufDeserializer[Any],
        registry: AnyRegistry,
        message_type: None = None,
        **options: Any,
    ) -> None: ...

    @overload
    def __init__(self, registry: AnyRegistry, message_type: type[M], **options: Any) -> None: ...

    def __init__(
        self, registry: AnyRegistry, message_type: type[M] | None = None, **options: Any
    ) -> None:
        super().__init__(registry, **options)
        self._type = message_type

    async def _name_in(self, schema: Schema, frame: Frame) -> str | None:
        assert frame.indexes is not None
        return message_at(await file_of(self._core, schema), frame.indexes).full_name

    async def _reader(
        self, written: Schema, latest: Schema | None, frame: Frame
    ) -> Callable[[bytes, int], M]:
        kind = await self._class(
            written, frame
        )  # and not `latest`: field numbers carry the meaning
        name = kind.DESCRIPTOR.full_name

        def read(data: bytes, start: int) -> M:
            try:
                return kind.FromString(data[start:])
            except (DecodeError, ValueError, RecursionError) as failure:
                raise DecodingFailed(
                    f"expected a message {name} (schema {frame.guid or frame.id}), found "
                    f"{len(data) - start} bytes that are none: {failure}"
                ) from failure

        return read

    async def _class(self, written: Schema, frame: Frame) -> type[M]:
        """The class of the message that was written."""
        assert frame.indexes is not None
        try:
            message = message_at(await file_of(self._core, written), frame.indexes)
        except MissingExtra:  # a schema as text, and nothing to compile it
            if self._type is None or indexes_of(descriptor_of(self._type)) != frame.indexes:
                raise
            return self._type
        if self._type is None:
            return cast("type[M]", GetMessageClass(message))
        expected = descriptor_of(self._type).full_name
        if message.full_name != expected:
            raise DecodingFailed(
                f"expected a message {expected}, found {message.full_name} (schema "
                f"{frame.guid or frame.id}, message indexes {list(frame.indexes)})"
            )
        return self._type
