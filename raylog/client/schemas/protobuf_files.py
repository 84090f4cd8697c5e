"""Converts Protobuf schemas between files, registry texts and descriptors."""

from __future__ import annotations

import base64
import binascii
import importlib
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, cast

from raylog.client.schemas.errors import DecodingFailed, SchemaError
from raylog.client.schemas.model import Schema
from raylog.client.schemas.references import resolved
from raylog.client.schemas.registry import RegistryCore
from raylog.extras import needs

with needs("schemas", "Protobuf"):
    from google.protobuf import descriptor_pb2, descriptor_pool
    from google.protobuf.message import DecodeError, Message

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FileDescriptor

ROOT = "default"
"""Stands for the name of a registered schema's file, which the registry does not store."""
_KNOWN = ("google/protobuf/", "google/type/", "confluent/")
_KNOWN_DEPTH_MAX = 50
_IMPORT = re.compile(r"""\bimport\s+(?:public\s+|weak\s+)?["']([^"']+)["']\s*;""")


def descriptor_of(kind: type[Message]) -> Descriptor:
    """Return the descriptor of a message class."""
    return cast("Descriptor", kind.DESCRIPTOR)  # the C implementation has its own type


def is_known(name: str) -> bool:
    """Whether a file comes with Protobuf or Confluent's clients, and so is never registered."""
    return name.startswith(_KNOWN)


def text_of(file: FileDescriptor) -> str:
    """Return a file in the form it is registered in: its FileDescriptorProto in base64."""
    return base64.b64encode(file.serialized_pb).decode()


def indexes_of(message: Descriptor) -> tuple[int, ...]:
    """Return a message's place in its file, with the index of the outermost message first."""
    path: list[int] = []
    here = message
    while here.containing_type is not None:
        path.append([one.name for one in here.containing_type.nested_types].index(here.name))
        here = here.containing_type
    path.append(list(here.file.message_types_by_name).index(here.name))
    return tuple(reversed(path))


def message_at(file: FileDescriptor, indexes: tuple[int, ...]) -> Descriptor:
    """Return the message at a place in a file; raises DecodingFailed."""
    level = list(file.message_types_by_name.values())
    found = None
    for index in indexes:
        if not 0 <= index < len(level):
            raise DecodingFailed(
                f"expected message indexes of the schema's file ({len(level)} messages at that "
                f"level), found {list(indexes)}"
            )
        found = level[index]
        level = list(found.nested_types)
    assert found is not None
    return found


def message_named(file: FileDescriptor, name: str | None) -> Descriptor:
    """Return a message by name (short or full, nested: A.B); None: the file's first message."""
    messages = dict(file.message_types_by_name)
    if not messages:
        raise SchemaError(f"expected a message in {file.name}, found none")
    if name is None:
        return next(iter(messages.values()))
    first, *rest = name.removeprefix(f"{file.package}.").split(".")
    found = messages.get(first)
    for part in rest:
        found = None if found is None else found.nested_types_by_name.get(part)
    if found is None:
        raise SchemaError(f"expected a message of {', '.join(messages)}, found {name!r}")
    return found


def from_path(path: Path) -> FileDescriptor:
    """Compile a .proto file and what it imports from its folder."""
    with needs("protoc", "a .proto file"):
        from grpc_tools import protoc
    known = Path(protoc.__file__).parent / "_proto"
    with TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        words = ["protoc", f"-I{path.parent}", f"-I{known}", "--include_imports"]
        if protoc.main([*words, f"--descriptor_set_out={out}", str(path)]) != 0:
            raise SchemaError(
                f"expected a .proto file that protoc compiles, found {path} (what it says is on "
                "standard error)"
            )
        found = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    files = {file.name: file for file in found.file}
    pool = descriptor_pool.DescriptorPool()
    _add(pool, files, path.name, ())
    return pool.FindFileByName(path.name)


async def file_of(core: RegistryCore, schema: Schema) -> FileDescriptor:
    """Return the file of a registered schema, loaded with its imports; raises SchemaError."""
    references = await resolved(core, schema, "serialized")
    texts = {reference.name: one.text for reference, one in references}
    texts[ROOT] = schema.text
    return loaded(texts, ROOT)


def loaded(texts: Mapping[str, str], name: str) -> FileDescriptor:
    """Load files that import each other into a separate pool; return one of them.

    A text is a FileDescriptorProto in base64, or a .proto file, which needs protoc from
    grpcio-tools.
    """
    files = {path: decoded for path, text in texts.items() if (decoded := _decoded(path, text))}
    plain = {path: text for path, text in texts.items() if path not in files}
    if plain:
        files |= compiled(plain, files)
    pool = descriptor_pool.DescriptorPool()
    try:
        _add(pool, files, name, ())
        return pool.FindFileByName(name)
    except (TypeError, KeyError, RecursionError) as failure:
        raise SchemaError(f"expected a Protobuf schema that is whole: {failure}") from failure


def _decoded(path: str, text: str) -> descriptor_pb2.FileDescriptorProto | None:
    """Decode a FileDescriptorProto; return None if the text is something else."""
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(
            base64.b64decode("".join(text.split()), validate=True)
        )
    except (binascii.Error, ValueError, DecodeError):
        return None
    file.name = path
    return file


def _add(
    pool: descriptor_pool.DescriptorPool,
    files: Mapping[str, descriptor_pb2.FileDescriptorProto],
    name: str,
    path: tuple[str, ...],
) -> None:
    """Add a file to the pool, after those it imports."""
    if name in path or len(path) > _KNOWN_DEPTH_MAX:
        raise SchemaError(f"expected imports without a circle, found {' -> '.join((*path, name))}")
    file = files.get(name)
    if file is None:
        file = _known_file(name)
    for dependency in file.dependency:
        if not _has(pool, dependency):
            _add(pool, files, dependency, (*path, name))
    pool.Add(file)


def _has(pool: descriptor_pool.DescriptorPool, name: str) -> bool:
    try:
        pool.FindFileByName(name)
    except KeyError:
        return False
    return True


def _known_file(name: str) -> descriptor_pb2.FileDescriptorProto:
    """Return a file that comes with Protobuf, or that this process has imported."""
    module = f"{name.removesuffix('.proto').replace('/', '.')}_pb2"
    try:
        if name.startswith("google/"):
            importlib.import_module(module)
        file = descriptor_pool.Default().FindFileByName(name)
    except (KeyError, ImportError, ValueError) as failure:
        hint = f"; import the Python module of {name} first" if is_known(name) else ""
        raise SchemaError(f"expected a reference that brings {name}, found none{hint}") from failure
    return descriptor_pb2.FileDescriptorProto.FromString(file.serialized_pb)


def compiled(
    texts: Mapping[str, str], others: Mapping[str, descriptor_pb2.FileDescriptorProto]
) -> dict[str, descriptor_pb2.FileDescriptorProto]:
    """Compile .proto files, given and returned by import path; without protoc, MissingExtra."""
    with needs("protoc", "a Protobuf schema that is text"):
        from grpc_tools import protoc
    with TemporaryDirectory() as folder:
        root, out = Path(folder), Path(folder) / ".out"
        for name, text in texts.items():
            place = root / _inside(name)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        known = Path(protoc.__file__).parent / "_proto"
        others = {**_known_imports(texts), **others}
        arguments = ["protoc", f"-I{root}", f"-I{known}", f"--descriptor_set_out={out}"]
        if others:
            before = Path(folder) / ".others"
            before.write_bytes(
                descriptor_pb2.FileDescriptorSet(file=others.values()).SerializeToString()
            )
            arguments.append(f"--descriptor_set_in={before}")
        if protoc.main([*arguments, *texts]) != 0:
            shown = next(iter(texts.values()))[:80]
            raise SchemaError(
                f"expected Protobuf schemas that protoc compiles, found {shown!r} (what it says is "
                "on standard error)"
            )
        found = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    return {file.name: file for file in found.file}


def _known_imports(texts: Mapping[str, str]) -> dict[str, descriptor_pb2.FileDescriptorProto]:
    """Return the known files that texts import, directly or indirectly, unless given as texts."""
    found: dict[str, descriptor_pb2.FileDescriptorProto] = {}
    left = [name for text in texts.values() for name in _IMPORT.findall(text)]
    while left:
        name = left.pop()
        if is_known(name) and name not in texts and name not in found:
            found[name] = _known_file(name)
            left.extend(found[name].dependency)
    return found


def _inside(name: str) -> PurePosixPath:
    """Return a relative path inside the folder; names from a registry are not trusted."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name or name[:1] in "-@":
        raise SchemaError(f"expected an import path of a .proto file, found {name!r}")
    return path
