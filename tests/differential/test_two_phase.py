"""Apache Kafka and Raylog answer alike about two-phase commit, field by field."""

from __future__ import annotations

import pytest

from raylog.testing import EmbeddedBroker
from tests.differential.golden import read
from tests.differential.normalized import differences
from tests.differential.playing import Transcripts
from tests.differential.transaction_playing import TWO_PHASE_RECORDED, TWO_PHASE_SETTINGS, play
from tests.differential.two_phase_sessions import SESSIONS as ALL

RECORDED = read(TWO_PHASE_RECORDED)
KEEPING = ("two-phase-init-0-1", "two-phase-init-1-1")
"""Sessions that ask for keepPreparedTxn, which Apache Kafka 4.3.1 has in the protocol only."""
SESSIONS = [one for one in ALL if one.name in RECORDED and one.name not in KEEPING]

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def played() -> Transcripts:
    """What Raylog answers."""
    with EmbeddedBroker(settings=TWO_PHASE_SETTINGS, first_broker_id=1) as broker:
        return play(broker.bootstrap, SESSIONS, RECORDED)


@pytest.mark.parametrize("name", [one.name for one in SESSIONS])
def test_the_same_answers(played: Transcripts, name: str) -> None:
    assert differences(RECORDED[name], played[name]) == []


@pytest.mark.parametrize("name", KEEPING)
def test_apache_kafka_does_not_keep_what_is_prepared(name: str) -> None:
    """So there is nothing to compare: tests/unit and tests/cluster have what KIP-939 asks for."""
    *inits, described = (said["a"][0] for said in RECORDED[name])
    codes = {one["error_code"] for one in inits}
    assert codes == {"UNSUPPORTED_VERSION", "INVALID_REQUEST"}  # the latter: an empty id
    (found,) = described["transaction_states"]
    assert found["error_code"] == "TRANSACTIONAL_ID_NOT_FOUND"


def test_there_are_enough() -> None:
    assert len(SESSIONS) == 22
