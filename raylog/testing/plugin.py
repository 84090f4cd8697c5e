"""The pytest plug-in with the fixture `raylog_broker`. Imports only pytest until it is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from raylog.testing.embedded import EmbeddedBroker


@pytest.fixture
def raylog_broker() -> Iterator[EmbeddedBroker]:
    """Yield an embedded broker for one test. Clients connect to `raylog_broker.bootstrap`."""
    from raylog.testing.embedded import EmbeddedBroker

    with EmbeddedBroker() as broker:
        yield broker
