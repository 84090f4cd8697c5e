"""Apache Kafka and Raylog, taken through the same group sessions, answer the same field by field.

What Apache Kafka answered is recorded (`record`), so that this needs no Java.
"""

from __future__ import annotations

import pytest

from raylog.testing import EmbeddedBroker
from tests.differential.golden import read
from tests.differential.plain import differences
from tests.differential.playing import SETTINGS, Transcripts, all_sessions, play

RECORDED = read()
SESSIONS = [one for one in all_sessions() if one.name in RECORDED]
JUSTIFIED: dict[str, str] = {}
"""Sessions whose answers differ, and why that is right."""


@pytest.fixture(scope="module")
def played() -> Transcripts:
    """What Raylog answers."""
    with EmbeddedBroker(settings=SETTINGS, first_broker_id=1) as broker:
        return play(broker.bootstrap, SESSIONS, RECORDED)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [one.name for one in SESSIONS])
def test_the_same_answers(played: Transcripts, name: str) -> None:
    found = differences(RECORDED[name], played[name])
    if name in JUSTIFIED:
        assert found, f"no longer differs: {JUSTIFIED[name]}"
    else:
        assert found == []


def test_there_are_enough() -> None:
    assert len(SESSIONS) >= 200
