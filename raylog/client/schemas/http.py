"""One request to a registry over httpx, blocking or on an event loop."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from raylog.client.schemas.errors import NotARegistry
from raylog.client.schemas.settings import RegistrySettings
from raylog.extras import needs

with needs("schemas", "a schema registry"):
    import httpx

_CONNECTIONS_MAX = 16


class RequestFailed(Exception):
    """No whole answer came: nobody listens, the connection broke, or it took too long."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None


class Http(Protocol):
    """What a registry's client needs of the world."""

    def now(self) -> float:
        """Seconds that never go back."""

    async def ask(self, asked: Asked, timeout: float) -> Answer:  # noqa: ASYNC109 — each I/O keeps it
        """Answer of one request, within `timeout` seconds; raises RequestFailed."""

    async def pause(self, seconds: float) -> None:
        """Let time pass."""


class BlockingHttp:
    """httpx.Client behind coroutines that never suspend."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._client = httpx.Client(
            auth=settings.basic_auth_user_info,
            verify=_verify(settings),
            limits=httpx.Limits(max_connections=_CONNECTIONS_MAX),
            follow_redirects=False,
        )

    def now(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    async def ask(self, asked: Asked, timeout: float) -> Answer:  # noqa: ASYNC109 — see Http
        """Answer of one request, within `timeout` seconds; raises RequestFailed."""
        deadline = self.now() + timeout
        body = _Body(self._settings.response_bytes_max)
        try:
            with self._client.stream(
                asked.method,
                asked.url,
                headers=dict(asked.headers),
                content=asked.body,
                timeout=timeout,
            ) as response:
                for chunk in response.iter_bytes():
                    body.add(chunk)
                    if self.now() > deadline:
                        raise RequestFailed(f"the answer took longer than {timeout:.1f} s")
                return body.answer(response)
        except httpx.HTTPError as failure:
            raise RequestFailed(_shown(failure)) from failure

    async def pause(self, seconds: float) -> None:
        """Let time pass."""
        time.sleep(seconds)  # noqa: ASYNC251 — the blocking kind: nobody else waits for this thread

    def close(self) -> None:
        """End all connections."""
        self._client.close()


class AsyncHttp:
    """httpx.AsyncClient."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._client = httpx.AsyncClient(
            auth=settings.basic_auth_user_info,
            verify=_verify(settings),
            limits=httpx.Limits(max_connections=_CONNECTIONS_MAX),
            follow_redirects=False,
        )

    def now(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    async def ask(self, asked: Asked, timeout: float) -> Answer:  # noqa: ASYNC109 — see Http
        """Answer of one request, within `timeout` seconds; raises RequestFailed."""
        body = _Body(self._settings.response_bytes_max)
        try:
            async with (
                asyncio.timeout(timeout),
                self._client.stream(
                    asked.method,
                    asked.url,
                    headers=dict(asked.headers),
                    content=asked.body,
                    timeout=timeout,
                ) as response,
            ):
                async for chunk in response.aiter_bytes():
                    body.add(chunk)
                return body.answer(response)
        except TimeoutError as failure:
            raise RequestFailed(f"the answer took longer than {timeout:.1f} s") from failure
        except httpx.HTTPError as failure:
            raise RequestFailed(_shown(failure)) from failure

    async def pause(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """End all connections."""
        await self._client.aclose()


class _Body:
    """Bytes of an answer, up to a limit."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._size = 0
        self._chunks: list[bytes] = []

    def add(self, chunk: bytes) -> None:
        """Keep one chunk."""
        self._size += len(chunk)
        if self._size > self._bytes_max:
            raise NotARegistry(
                f"expected an answer of at most {self._bytes_max} bytes (response_bytes_max), "
                "found one that is longer"
            )
        self._chunks.append(chunk)

    def answer(self, response: httpx.Response) -> Answer:
        """The whole."""
        kind = response.headers.get("content-type", "")
        return Answer(response.status_code, kind, b"".join(self._chunks))


def _verify(settings: RegistrySettings) -> ssl.SSLContext | bool:
    """TLS, which takes long to set up: only where a URL asks for it."""
    return settings.tls() if any(url.startswith("https:") for url in settings.url) else True


def _shown(failure: Exception) -> str:
    """What httpx says; the kind where it says nothing."""
    return str(failure) or type(failure).__name__
