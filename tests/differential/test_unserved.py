"""Raylog answers requests that it does not serve like an Apache Kafka without these features.

Apache Kafka's answers are recorded (`record_unserved`), so this needs no Java.
"""

from __future__ import annotations

import re

import pytest

from raylog.testing import EmbeddedBroker
from tests.differential.golden import read
from tests.differential.normalized import differences
from tests.differential.playing import Transcripts
from tests.differential.unserved_stage import RECORDED, play

KAFKA = read(RECORDED)
JUSTIFIED = [
    # Apache Kafka has quotas.
    r"alter quotas v1",
]
"""Whole names of cases in which Raylog is meant to differ."""


@pytest.fixture(scope="module")
def played() -> Transcripts:
    """What Raylog answers."""
    with EmbeddedBroker() as broker:
        return play(broker.bootstrap)


@pytest.mark.parametrize("name", list(KAFKA))
def test_the_same_answer(played: Transcripts, name: str) -> None:
    unlike = differences(KAFKA[name], played[name])
    assert bool(unlike) == any(re.fullmatch(one, name) for one in JUSTIFIED), unlike


def test_there_are_enough(played: Transcripts) -> None:
    assert played.keys() == KAFKA.keys()
    assert len(KAFKA) > 150
