"""Registries to test with: the one of this process, and franz-go's where Go is installed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

import pytest

from tests.support import fake_registry, srfake_peer
from tests.support.fake_registry import Call


class Running(Protocol):
    """A registry that runs, and what it was asked."""

    @property
    def url(self) -> str:
        """Where it is."""

    @property
    def calls(self) -> list[Call]:
        """All requests so far."""


Start = Callable[[], AbstractContextManager[Running]]

KINDS = ["fake", "srfake"]


def starter(kind: str) -> Start:
    """What starts a registry of a kind; the test is skipped where it cannot be started."""
    if kind == "fake":
        return fake_registry.running
    try:
        srfake_peer.program()
    except srfake_peer.MissingGoError as missing:
        pytest.skip(str(missing))
    return srfake_peer.running
