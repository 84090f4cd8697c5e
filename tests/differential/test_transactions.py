"""Apache Kafka and Raylog answer alike about transactions, field by field.

Apache Kafka's answers are recorded (`record_transactions`), so this needs no Java. `make peers`
shows that they are still up to date.
"""

from __future__ import annotations

import pytest

from raylog.testing import EmbeddedBroker
from tests.differential.golden import read
from tests.differential.normalized import differences
from tests.differential.playing import Transcripts
from tests.differential.transaction_playing import RECORDED as RECORD
from tests.differential.transaction_playing import SETTINGS, play
from tests.differential.transaction_sessions import SESSIONS as ALL

RECORDED = read(RECORD)
SESSIONS = [one for one in ALL if one.name in RECORDED]
BY_CHANCE = {"init-3", "init-5", "produce-9", "produce-11", "walk-old-47"}
"""Sessions that Apache Kafka answers now so, now so: they are not recorded."""
JUSTIFIED: dict[str, list[str]] = {}
"""Sessions whose answers differ, how, and why that is right."""

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def played() -> Transcripts:
    """What Raylog answers."""
    with EmbeddedBroker(settings=SETTINGS, first_broker_id=1) as broker:
        return play(broker.bootstrap, SESSIONS, RECORDED)


@pytest.mark.parametrize("name", [one.name for one in SESSIONS])
def test_the_same_answers(played: Transcripts, name: str) -> None:
    assert differences(RECORDED[name], played[name]) == JUSTIFIED.get(name, [])


def test_every_session_is_recorded() -> None:
    assert {one.name for one in ALL} == RECORDED.keys() | BY_CHANCE
    assert len(SESSIONS) == 329
