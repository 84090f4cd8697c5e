"""Ending an actor so that another one can have its name."""

from __future__ import annotations

from raylog.actors.runtime.base import PeerTimeout, Runtime

TIMEOUT_MS = 20_000
LOOK_S = 0.05


async def end_and_free(runtime: Runtime, name: str, *, timeout_ms: int = TIMEOUT_MS) -> None:
    """End the actor of a name for good and wait until nobody carries the name; gone is fine.

    Raises PeerTimeout, and PeerLost where the runtime does not say.
    """
    await runtime.end_for_good(name)
    deadline_ms = runtime.monotonic_ms() + timeout_ms
    while name in await runtime.names(name):
        if runtime.monotonic_ms() > deadline_ms:
            raise PeerTimeout(f"{name} has not ended within {timeout_ms} ms")
        await runtime.sleep(LOOK_S)
