"""What links of every runtime share."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from raylog.actors.runtime.base import Buffer, Link


def joined(payload: Sequence[Buffer]) -> memoryview:
    """The payload as one buffer; not copied when it is one already."""
    if len(payload) == 1:
        return memoryview(payload[0])
    return memoryview(bytearray(b"".join(payload)))


def ask_over(link: Link, kind: str, header: Any, payload: Sequence[Buffer]) -> asyncio.Future[Any]:
    """Turn a request's two callbacks into a future of the answer's header."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def answered(answer: Any, _payload: memoryview) -> None:
        if not future.done():
            future.set_result(answer)

    def failed(failure: Exception) -> None:
        if not future.done():
            future.set_exception(failure)

    link.request(kind, header, payload, answered, failed)
    return future
