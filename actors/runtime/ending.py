"""Ends an actor so that another one can take its name."""

from __future__ import annotations

from raylog.actors.runtime.base import PeerTimeout, Runtime

TIMEOUT_MS = 20_000
LOOK_S = 0.05


async def end_and_free(runtime: Runtime, name: str, *, timeout_ms: int = TIMEOUT_MS) -> None:
    """End an actor for good and wait until its name is free. It may be gone already.

    Raises PeerTimeout, and PeerLost if the runtime does not answer.
    """
    await runtime.end_for_good(name)
    deadline_ms = runtime.monotonic_ms() + timeout_ms
    while name in await runtime.names(name):
        if runtime.monotonic_ms() > deadline_ms:
            raise PeerTimeout(f"{name} has not ended within {timeout_ms} ms")
        await runtime.sleep(LOOK_S)
