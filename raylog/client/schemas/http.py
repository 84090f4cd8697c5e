"""Single HTTP requests to a registry through httpx, blocking or asyncio."""

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
    """No complete answer: nothing listens, the connection broke, or it took too long."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """The response to a request."""

    status: int
    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None


class Http(Protocol):
    """The registry client's interface to network and clock."""

    def now(self) -> float:
        """Return monotonic time in seconds."""

    async def ask(self, request: HttpRequest, timeout: float) -> HttpResponse:  # noqa: ASYNC109 — implementations apply it
        """Send one request and return the answer within `timeout` seconds; raises RequestFailed."""

    async def pause(self, seconds: float) -> None:
        """Sleep."""


class BlockingHttp:
    """Uses httpx.Client; its coroutines never suspend."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._client = httpx.Client(
            auth=settings.basic_auth_user_info,
            verify=_verify(settings),
            limits=httpx.Limits(max_connections=_CONNECTIONS_MAX),
            follow_redirects=False,
        )

    def now(self) -> float:
        """Return monotonic time in seconds."""
        return time.monotonic()

    async def ask(self, request: HttpRequest, timeout: float) -> HttpResponse:  # noqa: ASYNC109 — see Http
        """Send one request and return the answer within `timeout` seconds; raises RequestFailed."""
        deadline = self.now() + timeout
        body = _Body(self._settings.response_bytes_max)
        try:
            with self._client.stream(
                request.method,
                request.url,
                headers=dict(request.headers),
                content=request.body,
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
        """Sleep."""
        time.sleep(seconds)  # noqa: ASYNC251 — blocking I/O: nothing else runs in this thread

    def close(self) -> None:
        """Close all connections."""
        self._client.close()


class AsyncHttp:
    """Uses httpx.AsyncClient."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._client = httpx.AsyncClient(
            auth=settings.basic_auth_user_info,
            verify=_verify(settings),
            limits=httpx.Limits(max_connections=_CONNECTIONS_MAX),
            follow_redirects=False,
        )

    def now(self) -> float:
        """Return monotonic time in seconds."""
        return time.monotonic()

    async def ask(self, request: HttpRequest, timeout: float) -> HttpResponse:  # noqa: ASYNC109 — see Http
        """Send one request and return the answer within `timeout` seconds; raises RequestFailed."""
        body = _Body(self._settings.response_bytes_max)
        try:
            async with (
                asyncio.timeout(timeout),
                self._client.stream(
                    request.method,
                    request.url,
                    headers=dict(request.headers),
                    content=request.body,
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
        """Sleep."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


class _Body:
    """The body of an answer, up to a size limit."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._size = 0
        self._chunks: list[bytes] = []

    def add(self, chunk: bytes) -> None:
        """Add a chunk; raises NotARegistry above the limit."""
        self._size += len(chunk)
        if self._size > self._bytes_max:
            raise NotARegistry(
                f"expected an answer of at most {self._bytes_max} bytes (response_bytes_max), "
                "found one that is longer"
            )
        self._chunks.append(chunk)

    def answer(self, response: httpx.Response) -> HttpResponse:
        """Return the complete answer."""
        kind = response.headers.get("content-type", "")
        return HttpResponse(response.status_code, kind, b"".join(self._chunks))


def _verify(settings: RegistrySettings) -> ssl.SSLContext | bool:
    """Return TLS settings; creating a context is slow, so only if a URL uses https."""
    return settings.tls() if any(url.startswith("https:") for url in settings.url) else True


def _shown(failure: Exception) -> str:
    """Return httpx's message, or the exception's type if it has none."""
    return str(failure) or type(failure).__name__
