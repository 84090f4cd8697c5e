"""Fixtures for tests that use a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from raylog.client import BlockingClient


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Where the broker of this module's tests listens."""
    from raylog.testing import EmbeddedBroker  # most tests need none

    with EmbeddedBroker() as broker:
        yield broker.bootstrap


@pytest.fixture
def client(bootstrap: str) -> Iterator[BlockingClient]:
    """A client of that broker."""
    from raylog.client import BlockingClient

    with BlockingClient(bootstrap) as made:
        yield made
