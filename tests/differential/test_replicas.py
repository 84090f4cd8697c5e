"""Apache Kafka and Raylog, asked the same about replicas and brokers, answer field by field alike.

What four brokers of Apache Kafka answered is recorded (`record_replicas`), so that this needs no
Java.
"""

from __future__ import annotations

import re

import pytest

from raylog.testing import EmbeddedBroker
from tests.differential.plain import differences
from tests.differential.replica_golden import read
from tests.differential.replica_scenarios import SCENARIOS
from tests.differential.replica_stage import BROKERS, SETTINGS, STOPPED, Transcripts, play

RECORDED = read()
WORDS = re.compile(r"\.error_message: 'the default', '")
"""Raylog says why where Apache Kafka says nothing: no difference."""


def _standing(step: int, *fields: str, topic: int = 0) -> set[str]:
    """Fields of a partition, in Metadata and DescribeTopicPartitions of one look."""
    at = f"topics[{topic}].partitions[0]"
    return {f"[{step}][{answer}].{at}.{field}" for answer in (0, 1) for field in fields}


MOVED = ("leader_epoch", "offline_replicas", "replica_nodes")
JUSTIFIED: dict[str, set[str]] = {
    # Apache Kafka takes both and lets the second win. One of them must be a mistake.
    "move-of-one-partition-twice": {
        "[0].responses[0].partitions[1].error_code",
        *_standing(1, "isr_nodes[0]", "leader_id", "replica_nodes[0]"),
    },
    # Apache Kafka forgets that 4 was added when another is; called off, it would stay for ever.
    "factor-must-stay-under-way": {"[4][2].topics[0].partitions[0].adding_replicas"},
    # Apache Kafka goes on waiting for 4, which the new target does not have: it never ends.
    "back-by-hand": {*_standing(2, *MOVED), "[2][2].topics"},
    "everywhere": {*_standing(3, *MOVED), "[3][2].topics"},
    # Apache Kafka still means to remove 2, which the new target has.
    "one-of-several-called-off": {"[2][2].topics[0].partitions[0].removing_replicas"},
    # Apache Kafka fears an unclean election though the old replica is eligible (KIP-966).
    "leaderless-moves": {
        "[3].responses[0].partitions[0].error_code",
        "[3].responses[0].partitions[0].error_message",
        *_standing(4, "leader_epoch", "replica_nodes"),
        "[4][2].topics",
    },
    # Apache Kafka writes the one election twice.
    "elect-one-twice": _standing(3, "leader_epoch"),
    # Apache Kafka leaves who was unregistered eligible. Who registers under that number next may
    # have an empty disk.
    "unregister": {"[5][1].topics[3].partitions[0].eligible_leader_replicas"},
    "unregistered-and-moves": {"[4][1].topics[2].partitions[0].eligible_leader_replicas"},
    "unregistered-and-elected": {"[2][1].topics[1].partitions[0].eligible_leader_replicas"},
    # Raylog has no log directories that can be cordoned.
    "create-more-copies-than-brokers": {"[0].topics[0].error_message"},
}
"""Scenarios whose answers differ, in which fields, and why that is right."""

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def played() -> Transcripts:
    """What Raylog answers."""
    with EmbeddedBroker(BROKERS, settings=SETTINGS, first_broker_id=1) as brokers:
        recorded = [one for one in SCENARIOS if one.name in RECORDED]
        return play(brokers.bootstrap, recorded, lambda: brokers.stop_broker(STOPPED), RECORDED)


@pytest.mark.parametrize("name", list(RECORDED))
def test_the_same_answers(played: Transcripts, name: str) -> None:
    unlike = [line for line in differences(RECORDED[name], played[name]) if not WORDS.search(line)]
    assert {line.split(": ")[0] for line in unlike} == JUSTIFIED.get(name, set()), unlike


def test_every_scenario_is_recorded() -> None:
    assert RECORDED.keys() == {one.name for one in SCENARIOS}
    assert len(RECORDED) == 74
