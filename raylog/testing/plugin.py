"""The pytest plug-in: the fixture `raylog_broker`. Imports only pytest until it is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from raylog.testing.embedded import EmbeddedBroker


@pytest.fixture
def raylog_broker() -> Iterator[EmbeddedBroker]:
    """An embedded broker of the test's own: `raylog_broker.bootstrap` is where clients connect."""
    from raylog.testing.embedded import EmbeddedBroker

    with EmbeddedBroker() as broker:
        yield broker
