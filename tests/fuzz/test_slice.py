"""A short slice of the fuzzer of meaning, at an embedded broker: fixed seeds."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from raylog.testing import EmbeddedBroker
from tests.fuzz.campaign import run_episodes, target_of
from tests.fuzz.health import SETTINGS, Probe

SEEDS = (1, 5)
"""Fixed ones. A seed of a campaign that found something is added when that is mended."""

EPISODES = 8
CARDS = 40


@pytest.mark.parametrize("seed", SEEDS)
def test_extreme_requests_harm_nobody(
    seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedBroker(settings=SETTINGS) as broker:
        campaign(broker, seed, tmp_path)
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []


def campaign(broker: EmbeddedBroker, seed: int, evidence: Path) -> None:
    """Every API and version at least once, while a probe asks every shard for ordinary work."""
    target = target_of(
        broker.bootstrap,
        seed,
        slots=EPISODES,
        cards=CARDS,
        huge=2_000,
        once=True,
        evidence=evidence,
    )
    with Probe(broker.bootstrap) as probe:
        run_episodes(target, range(EPISODES), lambda: False)
    tally = target.tally
    assert tally.failures == []
    assert tally.missing(target.served) == []
    assert tally.share_reached >= 0.6
    assert probe.failures == []
