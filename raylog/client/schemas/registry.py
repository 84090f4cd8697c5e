"""A schema registry's client, blocking (`SchemaRegistry`) and for asyncio (`AsyncSchemaRegistry`).

Schemas never change under their id, so they are kept: by id, by GUID, by subject and version, and
by subject and schema. All of it is written once, as coroutines over `Http`.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Hashable, Mapping
from types import TracebackType
from typing import Generic, Self, TypeVar

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
    """A bounded cache; the oldest entry goes first. Used from any thread."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: dict[K, V] = {}
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """What is kept under `key`."""
        return self._entries.get(key)

    def put(self, key: K, value: V) -> V:
        """Keep `value`, which is returned."""
        with self._lock:
            while len(self._entries) >= self._capacity:
                del self._entries[next(iter(self._entries))]
            self._entries[key] = value
        return value

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._entries.clear()


class RegistryCore:
    """What both faces share: requests, their meaning, and what is kept of the answers."""

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
        """Seconds that never go back."""
        return self._http.now()

    async def schema(
        self, schema_id: int, subject: str | None = None, layout: str | None = None
    ) -> Schema:
        """The schema of an id; `layout` is `serialized` for Protobuf as a FileDescriptorProto."""
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
        """The schema of a GUID."""
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
        """Register a schema; one that the subject has already keeps its id.

        Registries may answer with the id alone: version and GUID are then None.
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
        """A schema's id and version in a subject; SchemaNotFound if it is not registered there."""
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
        """One version of a subject."""
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
        """The latest version of a subject, as it was when it was asked for."""
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
        """Until when what is the latest version now is taken for it."""
        ttl = self.settings.cache_latest_ttl_sec
        return float("inf") if ttl is None else self.now() + ttl

    async def subjects(self, prefix: str = "", *, deleted: bool = False) -> list[str]:
        """Names of subjects."""
        query = {**_given(subjectPrefix=prefix or None), "deleted": deleted}
        return as_texts(await self._asking.ask("GET", "subjects", query))

    async def versions(self, subject: str) -> list[int]:
        """Versions of a subject."""
        return as_numbers(await self._asking.ask("GET", path("subjects", subject, "versions")))

    async def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete a subject; the versions that it had. What is kept of it is forgotten."""
        answer = await self._asking.ask(
            "DELETE", path("subjects", subject), {"permanent": permanent}
        )
        self.forget()
        return as_numbers(answer)

    async def delete_version(self, subject: str, version: int, *, permanent: bool = False) -> None:
        """Delete one version of a subject. What is kept is forgotten."""
        await self._asking.ask(
            "DELETE", path("subjects", subject, "versions", version), {"permanent": permanent}
        )
        self.forget()

    async def compatible(self, subject: str, schema: Schema, version: int | str = "latest") -> bool:
        """Whether a schema may be registered beside a version of the subject."""
        where = path("compatibility", "subjects", subject, "versions", version)
        answer = as_object(await self._asking.ask("POST", where, None, request_body(schema)))
        return answer.get("is_compatible") is True

    async def compatibility(self, subject: str | None = None) -> str:
        """The compatibility level of a subject, or the registry's own."""
        where = "config" if subject is None else path("config", subject)
        query = None if subject is None else {"defaultToGlobal": True}
        return as_levels(await self._asking.ask("GET", where, query))

    async def set_compatibility(self, level: str, subject: str | None = None) -> None:
        """Set the level of a subject, or the registry's own."""
        where = "config" if subject is None else path("config", subject)
        await self._asking.ask("PUT", where, None, {"compatibility": level})

    def forget(self) -> None:
        """Ask the registry again for everything."""
        self._by_id.clear()
        self._missing.clear()
        self._by_guid.clear()
        self._by_version.clear()
        self._by_schema.clear()
        self._found.clear()
        self._latest.clear()


class SchemaRegistry:
    """A registry's client that blocks; used from any thread.

        registry = SchemaRegistry("http://127.0.0.1:8081")
        registry = SchemaRegistry({"url": "https://a,https://b", "basic.auth.user.info": "me:pw"})

    Keyword arguments are the fields of RegistrySettings.
    """

    def __init__(self, config: str | Mapping[str, object] = {}, /, **settings: object) -> None:
        read = registry_settings(config, settings)
        self._http = BlockingHttp(read)
        self.core = RegistryCore(self._http, read)

    def schema(self, schema_id: int, subject: str | None = None) -> Schema:
        """The schema of an id; SchemaNotFound."""
        return run_blocking(self.core.schema(schema_id, subject))

    def schema_by_guid(self, guid: str) -> Schema:
        """The schema of a GUID; SchemaNotFound."""
        return run_blocking(self.core.schema_by_guid(guid))

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> Registered:
        """Register a schema; one that the subject has already keeps its id."""
        return run_blocking(self.core.register(subject, schema, normalize=normalize))

    def lookup(
        self, subject: str, schema: Schema, *, normalize: bool = False, deleted: bool = False
    ) -> Registered:
        """A schema's id and version in a subject; SchemaNotFound if it is not registered there."""
        return run_blocking(self.core.lookup(subject, schema, normalize=normalize, deleted=deleted))

    def version(self, subject: str, version: int, *, deleted: bool = False) -> Registered:
        """One version of a subject."""
        return run_blocking(self.core.version(subject, version, deleted=deleted))

    def latest(self, subject: str) -> Registered:
        """The latest version of a subject."""
        return run_blocking(self.core.latest(subject))

    def subjects(self, prefix: str = "", *, deleted: bool = False) -> list[str]:
        """Names of subjects."""
        return run_blocking(self.core.subjects(prefix, deleted=deleted))

    def versions(self, subject: str) -> list[int]:
        """Versions of a subject."""
        return run_blocking(self.core.versions(subject))

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete a subject; the versions that it had."""
        return run_blocking(self.core.delete_subject(subject, permanent=permanent))

    def delete_version(self, subject: str, version: int, *, permanent: bool = False) -> None:
        """Delete one version of a subject."""
        run_blocking(self.core.delete_version(subject, version, permanent=permanent))

    def compatible(self, subject: str, schema: Schema, version: int | str = "latest") -> bool:
        """Whether a schema may be registered beside a version of the subject."""
        return run_blocking(self.core.compatible(subject, schema, version))

    def compatibility(self, subject: str | None = None) -> str:
        """The compatibility level of a subject, or the registry's own."""
        return run_blocking(self.core.compatibility(subject))

    def set_compatibility(self, level: str, subject: str | None = None) -> None:
        """Set the level of a subject, or the registry's own."""
        run_blocking(self.core.set_compatibility(level, subject))

    def close(self) -> None:
        """End all connections."""
        self._http.close()

    def __enter__(self) -> Self:
        """The client itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()


class AsyncSchemaRegistry(RegistryCore):
    """A registry's client for asyncio: the methods of SchemaRegistry, awaited.

    Serializers that use it are awaited too: `await serializer.encode(...)`.
    """

    def __init__(self, config: str | Mapping[str, object] = {}, /, **settings: object) -> None:
        read = registry_settings(config, settings)
        self._async_http = AsyncHttp(read)
        super().__init__(self._async_http, read)

    async def close(self) -> None:
        """End all connections."""
        await self._async_http.close()

    async def __aenter__(self) -> Self:
        """The client itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        await self.close()


def _given(**words: str | None) -> dict[str, str | int | bool]:
    """Words of a query that are not None."""
    return {name: value for name, value in words.items() if value is not None}
