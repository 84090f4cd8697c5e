"""Apache Kafka and Raylog answer alike about replicas and brokers, field by field.

The answers of four Apache Kafka brokers are recorded (`record_replicas`), so this needs no Java.
"""

from __future__ import annotations

import re

import pytest

from raylog.testing import EmbeddedBroker
from tests.differential.normalized import differences
from tests.differential.replica_golden import read
from tests.differential.replica_scenarios import SCENARIOS
from tests.differential.replica_stage import BROKERS, SETTINGS, STOPPED, Transcripts, play

RECORDED = read()
WORDS = re.compile(r"\.error_message: 'the default', '")
"""Raylog says why where Apache Kafka says nothing: no difference."""


def _standing(step: int, **fields: str) -> dict[str, str]:
    """Fields of a partition, in Metadata and DescribeTopicPartitions of one look."""
    at = "topics[0].partitions[0]"
    return {
        f"[{step}][{answer}].{at}.{field.replace('_first', '[0]')}": values
        for answer in (0, 1)
        for field, values in fields.items()
    }


def _listed(replicas: str, adding: str, removing: str) -> str:
    """A reassignment that is under way there, and none here."""
    partition = (
        f"'adding_replicas': {adding}, 'removing_replicas': {removing}, 'replicas': {replicas}"
    )
    return f"[{{'name': '~.t', 'partitions': [{{{partition}}}]}}], []"


NONE = "'the default'"
SECOND_WINS = "3, 2"
JUSTIFIED: dict[str, dict[str, str]] = {
    # Apache Kafka takes both and lets the second win. One of them must be a mistake.
    "move-of-one-partition-twice": {
        "[0].responses[0].partitions[1].error_code": f"{NONE}, 'INVALID_REQUEST'",
        **_standing(
            1,
            isr_nodes_first=SECOND_WINS,
            leader_id=SECOND_WINS,
            replica_nodes_first=SECOND_WINS,
        ),
    },
    # Apache Kafka forgets that 4 was added when another is; called off, it would stay for ever.
    "factor-must-stay-under-way": {
        "[4][2].topics[0].partitions[0].adding_replicas": "[3], [3, 4]",
    },
    # Apache Kafka goes on waiting for 4, which the new target does not have: it never ends.
    "back-by-hand": {
        **_standing(
            2,
            leader_epoch="0, 1",
            offline_replicas=f"[4], {NONE}",
            replica_nodes="[1, 2, 4], [1, 2]",
        ),
        "[2][2].topics": _listed("[1, 2, 4]", "[4]", "[4]"),
    },
    "everywhere": {
        **_standing(
            3,
            leader_epoch="0, 1",
            offline_replicas=f"[4], {NONE}",
            replica_nodes="[1, 2, 3, 4], [1, 2, 3]",
        ),
        "[3][2].topics": _listed("[1, 2, 3, 4]", "[2, 3, 4]", "[4]"),
    },
    # Apache Kafka still means to remove 2, which the new target has.
    "one-of-several-called-off": {
        "[2][2].topics[0].partitions[0].removing_replicas": f"[2], {NONE}",
    },
    # Apache Kafka fears an unclean election though the old replica is eligible (KIP-966).
    "leaderless-moves": {
        "[3].responses[0].partitions[0].error_code": f"'INVALID_REPLICA_ASSIGNMENT', {NONE}",
        "[3].responses[0].partitions[0].error_message": (
            "'Unable to revert partition assignment for ~.t:0 because it would require an unclean "
            f"leader election.', {NONE}"
        ),
        **_standing(4, leader_epoch="1, 2", replica_nodes="[1, 4], [4]"),
        "[4][2].topics": _listed("[1, 4]", "[1]", "[4]"),
    },
    # Apache Kafka writes the one election twice.
    "elect-one-twice": _standing(3, leader_epoch="2, 1"),
    # Apache Kafka leaves who was unregistered eligible. Who registers under that number next may
    # have an empty disk.
    "unregister": {"[5][1].topics[3].partitions[0].eligible_leader_replicas": "[4], []"},
    "unregistered-and-moves": {
        "[4][1].topics[2].partitions[0].eligible_leader_replicas": "[4], []",
    },
    "unregistered-and-elected": {
        "[2][1].topics[1].partitions[0].eligible_leader_replicas": "[4], []",
    },
    # Raylog has no log directories that can be cordoned.
    "create-more-copies-than-brokers": {
        "[0].topics[0].error_message": (
            "'Unable to replicate the partition 5 time(s): The target replication factor "
            "of 5 cannot be reached because only 4 broker(s) are registered or some "
            "brokers have all their log directories cordoned.', 'Unable to replicate the "
            "partition 5 time(s): The target replication factor of 5 cannot be reached "
            "because only 4 broker(s) are registered.'"
        ),
    },
}
"""Scenarios whose answers differ, in which fields, how (theirs, ours), and why that is right."""

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
    reasons = dict(line.split(": ", 1) for line in unlike)
    assert len(reasons) == len(unlike)
    assert reasons == JUSTIFIED.get(name, {})


def test_every_scenario_is_recorded() -> None:
    assert RECORDED.keys() == {one.name for one in SCENARIOS}
    assert len(RECORDED) == 74
