"""What finds plug-ins takes longer to import than an event loop may be held: a thread does it."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from raylog.actors.config import INTERCEPTOR_KEYS_PREFIX
from raylog.actors.runtime.base import Runtime

_FINDS_PLUGINS = "raylog.actors.interceptors.loading"


async def have_learned(runtime: Runtime, keys: Iterable[str]) -> None:
    """Return once settings with these keys can be looked at: what finds plug-ins is imported."""
    if _FINDS_PLUGINS not in sys.modules and any(
        key.startswith(INTERCEPTOR_KEYS_PREFIX) for key in keys
    ):
        await runtime.run_blocking(_learn)


def _learn() -> None:
    from raylog.actors.interceptors import loading

    loading.names()
