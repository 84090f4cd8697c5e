"""Apache Kafka and Raylog answer the same group sessions alike, field by field.

Apache Kafka's answers are recorded (`record`), so this needs no Java. `make peers` shows that they
are still up to date.
"""

from __future__ import annotations

import pytest

from raylog.testing import EmbeddedBroker
from tests.differential.golden import read
from tests.differential.normalized import differences
from tests.differential.playing import SETTINGS, Transcripts, all_sessions, play

RECORDED = read()
SESSIONS = [one for one in all_sessions() if one.name in RECORDED]
BY_CHANCE = {"walk-mixed-10", "walk-classic-14"}
"""Sessions that Apache Kafka answers now so, now so: they are not recorded."""
_OF_NO_MEMBER = [
    "[11].outsider[0].groups[0].error_code: 'UNKNOWN_SERVER_ERROR', 'UNKNOWN_MEMBER_ID'"
]
_STATIC_WITH_A_GIVEN_ID = [(2, 10, "a"), (5, 4, "c"), (31, 15, "a"), (33, 8, "b"), (34, 11, "a")]
"""Number of a walk, its step, and who asks."""

JUSTIFIED = {
    # Apache Kafka fails unexpectedly where a member is asked for that has left an empty group.
    "fetch-as-member-9": _OF_NO_MEMBER,
    "fetch-as-member-10": _OF_NO_MEMBER,
    # Apache Kafka fails unexpectedly where a subscription cannot be read, and where a static member
    # comes with an id that was given to a dynamic one.
    "classic-refused-by-consumers": [
        "[9].d[0].error_code: 'UNKNOWN_SERVER_ERROR', 'INCONSISTENT_GROUP_PROTOCOL'"
    ],
    **{
        f"walk-classic-{number}": [
            f"[{step}].{member}[0].error_code: 'UNKNOWN_SERVER_ERROR', 'UNKNOWN_MEMBER_ID'"
        ]
        for number, step, member in _STATIC_WITH_A_GIVEN_ID
    },
    # Apache Kafka fails unexpectedly where a classic assignment is none of a consumer's. Raylog
    # says what it says of every group that cannot change its protocol.
    "upgrade-refused-no-blob": [
        "[3].b[0].error_code: 'UNKNOWN_SERVER_ERROR', 'GROUP_ID_NOT_FOUND'"
    ],
}
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
    assert {one.name for one in all_sessions()} == RECORDED.keys() | BY_CHANCE
    assert len(SESSIONS) == 335
