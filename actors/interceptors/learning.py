"""Imports plug-in discovery in a thread, since it would block the event loop for too long."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from raylog.actors.config import INTERCEPTOR_KEYS_PREFIX
from raylog.actors.runtime.base import Runtime

_FINDS_PLUGINS = "raylog.actors.interceptors.loading"


async def have_learned(runtime: Runtime, keys: Iterable[str]) -> None:
    """Import plug-in discovery, if settings with these keys need it to be validated."""
    if _FINDS_PLUGINS not in sys.modules and any(
        key.startswith(INTERCEPTOR_KEYS_PREFIX) for key in keys
    ):
        await runtime.run_blocking(_learn)


def _learn() -> None:
    from raylog.actors.interceptors import loading

    loading.names()
