"""Schema registries for tests: the one in this process, and franz-go's if Go is installed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

import pytest

from tests.support import srfake_peer
from tests.worlds.servers import registry as fake_registry
from tests.worlds.servers.registry import Call


class Running(Protocol):
    """A running registry, and the requests that it received."""

    @property
    def url(self) -> str:
        """Its address."""

    @property
    def calls(self) -> list[Call]:
        """Return all requests so far."""


Start = Callable[[], AbstractContextManager[Running]]

KINDS = ["fake", "srfake"]


def starter(kind: str) -> Start:
    """Return a function that starts a registry; skip the test if the kind cannot be started."""
    if kind == "fake":
        return fake_registry.running
    try:
        srfake_peer.program()
    except srfake_peer.MissingGoError as missing:
        pytest.skip(str(missing))
    return srfake_peer.running
