"""A disk in memory for every test that asks for one."""

import pytest

from tests.worlds.storage.disk import FaultyDisk


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()
