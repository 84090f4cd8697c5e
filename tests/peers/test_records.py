"""What is recorded of Apache Kafka is what one that runs now says: `make peers`.

Sessions have timers, and a live broker that others keep busy answers late. So these are no part of
`make test`, whose `tests/differential` compares Raylog with the records alone.
"""

from __future__ import annotations

import pytest

from tests.conformance.tools import java_tools
from tests.differential import test_groups, test_transactions
from tests.differential.playing import SETTINGS, play
from tests.differential.sampling import differing
from tests.differential.transaction_playing import SETTINGS as TRANSACTION_SETTINGS
from tests.differential.transaction_playing import play as play_transactions

SAMPLED = 12
"""One session of this many is played."""
pytestmark = [pytest.mark.java, pytest.mark.timeout(1_200)]


def test_groups_are_answered_as_recorded() -> None:
    java_tools()
    sample = test_groups.SESSIONS[::SAMPLED]
    assert differing(play, SETTINGS, sample, test_groups.RECORDED) == {}


def test_transactions_are_answered_as_recorded() -> None:
    java_tools()
    sample, recorded = test_transactions.SESSIONS[::SAMPLED], test_transactions.RECORDED
    assert differing(play_transactions, TRANSACTION_SETTINGS, sample, recorded) == {}
