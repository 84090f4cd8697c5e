"""The check that a partition of a KIP-848 group has one owner, and answers that come late."""

from __future__ import annotations

import pytest

from raylog.actors.common_messages import TopicId
from raylog.simulation.groups.history import GroupLedger, Ownership
from raylog.simulation.properties import Checks

KEY = TopicId(bytes(16)), 0
SESSION_S = 1.5


@pytest.fixture
def ownership() -> Ownership:
    found = Ownership(GroupLedger("g", Checks()), SESSION_S)
    found.answered("a", 0.0, 0.1)
    found.given("a", [KEY], 0.1)
    return found


def violations(ownership: Ownership) -> list[str]:
    return ownership.ledger.checks.violations


def test_a_second_owner_is_found(ownership: Ownership) -> None:
    ownership.answered("b", 1.0, 1.1)
    ownership.given("b", [KEY], 1.1)
    assert violations(ownership) == ["ONE_OWNER: g 0 b ['a']"]


def test_an_owner_may_follow_one_that_gave_up_or_whose_session_is_over(
    ownership: Ownership,
) -> None:
    ownership.answered("b", 2.0, 2.1)
    ownership.given("b", [KEY], 2.1)
    ownership.kept("b", ())
    ownership.answered("c", 2.2, 2.3)
    ownership.given("c", [KEY], 2.3)
    assert violations(ownership) == []


def test_an_answer_that_is_later_than_a_session_proves_nothing(ownership: Ownership) -> None:
    ownership.answered("a", 2.0, 2.1)
    ownership.answered("b", 0.2, 2.2)
    ownership.given("b", [KEY], 2.2)
    assert violations(ownership) == []


def test_a_late_owner_whose_next_heartbeat_is_accepted_is_one_too_many(
    ownership: Ownership,
) -> None:
    ownership.answered("a", 2.0, 2.1)
    ownership.answered("b", 0.2, 2.2)
    ownership.given("b", [KEY], 2.2)
    ownership.answered("b", 2.3, 2.4)
    assert violations(ownership) == ["ONE_OWNER: g 0 b ['a']"]
