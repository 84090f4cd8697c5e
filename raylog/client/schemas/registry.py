"""Schema registry clients: blocking (`SchemaRegistry`) and asyncio (`AsyncSchemaRegistry`).

The schema of an id never changes, so schemas are cached: by id, by GUID, by subject and version,
and by subject and schema. The logic is written once, as coroutines over `Http`.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

from raylog.client.closing import AsyncClosing, Closing
from raylog.client.io import run_blocking
from raylog.client.schemas.answers import (
    as_levels,
    as_numbers,
    as_object,
    as_registered,
    as_schema,
    as_texts,
    request_body,
)
from raylog.client.schemas.asking import Asking, path
from raylog.client.schemas.errors import SchemaNotFound, refusal
from raylog.client.schemas.http import AsyncHttp, BlockingHttp, Http
from raylog.client.schemas.model import Registered, Schema
from raylog.client.schemas.settings import RegistrySettings, registry_settings

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(Generic[K, V]):
    """A bounded cache that drops the oldest entry first. Safe for use by several threads."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: dict[K, V] = {}
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """Return the cached value, or None."""
        return self._entries.get(key)

    def put(self, key: K, value: V) -> V:
        """Cache `value` and return it."""
        with self._lock:
            while len(self._entries) >= self._capacity:
                del self._entries[next(iter(self._entries))]
            self._entries[key] = value
        return value

    def clear(self) -> None:
        """Drop all entries."""
        with self._lock:
            self._entries.clear()


class RegistryCore:
    """What both clients share: requests, reading of answers, and caches."""

    def __init__(self, http: Http, settings: RegistrySettings) -> None:
        self.settings = settings
        self._http = http
        self._asking = Asking(http, settings, random.Random())  # noqa: S311 — jitter of pauses
        size = settings.cache_capacity
        self._by_id: Kept[tuple[int, str | None, str | None], Schema] = Kept(size)
        self._missing: Kept[tuple[int, str | None], tuple[float, SchemaNotFound]] = Kept(size)
        self._by_guid: Kept[tuple[str, str | None], Schema] = Kept(size)
        self._by_version: Kept[tuple[str, int, str | None], Registered] = Kept(size)
        self._by_schema: Kept[tuple[str, Schema, bool], Registered] = Kept(size)
        self._found: Kept[tuple[str, Schema, bool], Registered] = Kept(size)
        self._latest: Kept[tuple[str, str | None], tuple[float, Registered]] = Kept(size)

    def now(self) -> float:
        """Return monotonic time in seconds."""
        return self._http.now()

    async def schema(
        self, schema_id: int, subject: str | None = None, layout: str | None = None
    ) -> Schema:
        """Return a schema by id; `layout` `serialized` asks for Protobuf's FileDescriptorProto."""
        key = (schema_id, subject, layout)
        kept = self._by_id.get(key)
        if kept is not None:
            return kept
        missing = self._missing.get(key[:2])
        if missing is not None and missing[0] > self.now():
            raise refusal(missing[1].http_status, missing[1].error_code, str(missing[1]))
        query = _given(subject=subject, format=layout)
        try:
            answer = await self._asking.ask("GET", path("schemas", "ids", schema_id), query)
        except SchemaNotFound as failure:
            until = self.now() + self.settings.missing_id_ttl_sec
            self._missing.put(key[:2], (until, failure))
            raise
        return self._by_id.put(key, as_schema(answer))

    async def schema_by_guid(self, guid: str, layout: str | None = None) -> Schema:
        """Return a schema by GUID."""
        kept = self._by_guid.get((guid, layout))
        if kept is not None:
            return kept
        answer = await self._asking.ask(
            "GET", path("schemas", "guids", guid), _given(format=layout)
        )
        return self._by_guid.put((guid, layout), as_schema(answer))

    async def register(
        self, subject: str, schema: Schema, *, normalize: bool = False
    ) -> Registered:
        """Register a schema; if the subject has it already, it keeps its id.

        Some registries return only the id: version and GUID are then None.
        """
        key = (subject, schema, normalize)
        kept = self._by_schema.get(key)
        if kept is not None:
            return kept
        answer = await self._asking.ask(
            "POST",
            path("subjects", subject, "versions"),
            {"normalize": normalize},
            request_body(schema),
        )
        registered = as_registered(answer, subject=subject, schema=schema)
        self._by_id.put((registered.id, subject, None), registered.schema)
        return self._by_schema.put(key, registered)

    async def lookup(
        self, subject: str, schema: Schema, *, normalize: bool = False, deleted: bool = False
    ) -> Registered:
        """Return a schema's id and version in a subject; raises SchemaNotFound if it has none."""
        key = (subject, schema, normalize)
        kept = self._found.get(key)
        if kept is not None:
            return kept
        answer = await self._asking.ask(
            "POST",
            path("subjects", subject),
            {"normalize": normalize, "deleted": deleted},
            request_body(schema),
        )
        registered = as_registered(answer, subject=subject, schema=schema, as_asked=True)
        return self._found.put(key, registered)

    async def version(
        self, subject: str, version: int, *, deleted: bool = False, layout: str | None = None
    ) -> Registered:
        """Return one version of a subject."""
        kept = self._by_version.get((subject, version, layout))
        if kept is not None:
            return kept
        answer = await self._asking.ask(
            "GET",
            path("subjects", subject, "versions", version),
            {"deleted": deleted, **_given(format=layout)},
        )
        registered = as_registered(answer, subject=subject)
        return self._by_version.put((subject, version, layout), registered)

    async def latest(self, subject: str, layout: str | None = None) -> Registered:
        """Return a subject's latest version, which may be cached for `cache_latest_ttl_sec`."""
        kept = self._latest.get((subject, layout))
        if kept is not None and kept[0] > self.now():
            return kept[1]
        answer = await self._asking.ask(
            "GET", path("subjects", subject, "versions", "latest"), _given(format=layout)
        )
        registered = as_registered(answer, subject=subject)
        self._latest.put((subject, layout), (self.latest_until(), registered))
        return registered

    def latest_until(self) -> float:
        """Return until when a version fetched now may be used as the latest."""
        ttl = self.settings.cache_latest_ttl_sec
        return float("inf") if ttl is None else self.now() + ttl

    async def subjects(self, prefix: str = "", *, deleted: bool = False) -> list[str]:
        """Return the names of subjects."""
        query = {**_given(subjectPrefix=prefix or None), "deleted": deleted}
        return as_texts(await self._asking.ask("GET", "subjects", query))

    async def versions(self, subject: str) -> list[int]:
        """Return the versions of a subject."""
        return as_numbers(await self._asking.ask("GET", path("subjects", subject, "versions")))

    async def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete a subject and clear all caches; return the versions that it had."""
        answer = await self._asking.ask(
            "DELETE", path("subjects", subject), {"permanent": permanent}
        )
        self.forget()
        return as_numbers(answer)

    async def delete_version(self, subject: str, version: int, *, permanent: bool = False) -> None:
        """Delete one version of a subject and clear all caches."""
        await self._asking.ask(
            "DELETE", path("subjects", subject, "versions", version), {"permanent": permanent}
        )
        self.forget()

    async def compatible(self, subject: str, schema: Schema, version: int | str = "latest") -> bool:
        """Whether a schema is compatible with a version of the subject."""
        where = path("compatibility", "subjects", subject, "versions", version)
        answer = as_object(await self._asking.ask("POST", where, None, request_body(schema)))
        return answer.get("is_compatible") is True

    async def compatibility(self, subject: str | None = None) -> str:
        """Return the compatibility level of a subject, or the registry's global level."""
        where = "config" if subject is None else path("config", subject)
        query = None if subject is None else {"defaultToGlobal": True}
        return as_levels(await self._asking.ask("GET", where, query))

    async def set_compatibility(self, level: str, subject: str | None = None) -> None:
        """Set the compatibility level of a subject, or the registry's global level."""
        where = "config" if subject is None else path("config", subject)
        await self._asking.ask("PUT", where, None, {"compatibility": level})

    def forget(self) -> None:
        """Clear all caches."""
        self._by_id.clear()
        self._missing.clear()
        self._by_guid.clear()
        self._by_version.clear()
        self._by_schema.clear()
        self._found.clear()
        self._latest.clear()


class SchemaRegistry(Closing):
    """A blocking schema registry client, safe for use by several threads.

        registry = SchemaRegistry("http://127.0.0.1:8081")
        registry = SchemaRegistry({"url": "https://a,https://b", "basic.auth.user.info": "me:pw"})

    Keyword arguments are the fields of RegistrySettings.
    """

    def __init__(self, config: str | Mapping[str, object] = {}, /, **settings: object) -> None:
        read = registry_settings(config, settings)
        self._http = BlockingHttp(read)
        self.core = RegistryCore(self._http, read)

    def schema(self, schema_id: int, subject: str | None = None) -> Schema:
        """Return a schema by id; raises SchemaNotFound."""
        return run_blocking(self.core.schema(schema_id, subject))

    def schema_by_guid(self, guid: str) -> Schema:
        """Return a schema by GUID; raises SchemaNotFound."""
        return run_blocking(self.core.schema_by_guid(guid))

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> Registered:
        """Register a schema; if the subject has it already, it keeps its id."""
        return run_blocking(self.core.register(subject, schema, normalize=normalize))

    def lookup(
        self, subject: str, schema: Schema, *, normalize: bool = False, deleted: bool = False
    ) -> Registered:
        """Return a schema's id and version in a subject; raises SchemaNotFound if it has none."""
        return run_blocking(self.core.lookup(subject, schema, normalize=normalize, deleted=deleted))

    def version(self, subject: str, version: int, *, deleted: bool = False) -> Registered:
        """Return one version of a subject."""
        return run_blocking(self.core.version(subject, version, deleted=deleted))

    def latest(self, subject: str) -> Registered:
        """Return the latest version of a subject."""
        return run_blocking(self.core.latest(subject))

    def subjects(self, prefix: str = "", *, deleted: bool = False) -> list[str]:
        """Return the names of subjects."""
        return run_blocking(self.core.subjects(prefix, deleted=deleted))

    def versions(self, subject: str) -> list[int]:
        """Return the versions of a subject."""
        return run_blocking(self.core.versions(subject))

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete a subject; return the versions that it had."""
        return run_blocking(self.core.delete_subject(subject, permanent=permanent))

    def delete_version(self, subject: str, version: int, *, permanent: bool = False) -> None:
        """Delete one version of a subject."""
        run_blocking(self.core.delete_version(subject, version, permanent=permanent))

    def compatible(self, subject: str, schema: Schema, version: int | str = "latest") -> bool:
        """Whether a schema is compatible with a version of the subject."""
        return run_blocking(self.core.compatible(subject, schema, version))

    def compatibility(self, subject: str | None = None) -> str:
        """Return the compatibility level of a subject, or the registry's global level."""
        return run_blocking(self.core.compatibility(subject))

    def set_compatibility(self, level: str, subject: str | None = None) -> None:
        """Set the compatibility level of a subject, or the registry's global level."""
        run_blocking(self.core.set_compatibility(level, subject))

    def close(self) -> None:
        """Close all connections."""
        self._http.close()


class AsyncSchemaRegistry(RegistryCore, AsyncClosing):
    """An asyncio schema registry client: the methods of SchemaRegistry, as coroutines.

    Serializers that use it must be awaited as well: `await serializer.encode(...)`.
    """

    def __init__(self, config: str | Mapping[str, object] = {}, /, **settings: object) -> None:
        read = registry_settings(config, settings)
        self._async_http = AsyncHttp(read)
        super().__init__(self._async_http, read)

    async def close(self) -> None:
        """Close all connections."""
        await self._async_http.close()


def _given(**words: str | None) -> dict[str, str | int | bool]:
    """Return the query parameters that are not None."""
    return {name: value for name, value in words.items() if value is not None}
