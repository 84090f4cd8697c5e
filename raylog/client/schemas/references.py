"""Resolves a schema's references, each after those that it needs itself."""

from __future__ import annotations

from raylog.client.schemas.errors import InvalidSchema
from raylog.client.schemas.model import Reference, Schema
from raylog.client.schemas.registry import RegistryCore

_REFERENCES_MAX = 1_000
_DEPTH_MAX = 100


async def resolved(
    core: RegistryCore, schema: Schema, layout: str | None = None
) -> list[tuple[Reference, Schema]]:
    """Return direct and indirect references, each once; raises InvalidSchema for a cycle."""
    found: dict[str, tuple[Reference, Schema]] = {}
    await _resolve(core, schema, layout, found, ())
    return list(found.values())


async def _resolve(
    core: RegistryCore,
    schema: Schema,
    layout: str | None,
    found: dict[str, tuple[Reference, Schema]],
    path: tuple[str, ...],
) -> None:
    for reference in schema.references:
        if reference.name in path:
            circle = " -> ".join((*path, reference.name))
            raise InvalidSchema(f"expected references without a circle, found {circle}")
        if reference.name in found:
            continue
        if len(found) >= _REFERENCES_MAX or len(path) >= _DEPTH_MAX:
            raise InvalidSchema(
                f"expected at most {_REFERENCES_MAX} references, {_DEPTH_MAX} deep, found more"
            )
        registered = await core.version(
            reference.subject, reference.version, deleted=True, layout=layout
        )
        await _resolve(core, registered.schema, layout, found, (*path, reference.name))
        found[reference.name] = (reference, registered.schema)
