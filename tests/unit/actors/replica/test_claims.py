"""Claims: only one coordinator at a time writes to its partition."""

import pytest

from raylog.actors.common_messages import PartitionKey, TopicId
from raylog.actors.replica.rules.claims import Claims
from raylog.wire.errors import NotLeaderOrFollower

KEY: PartitionKey = (TopicId(b"t" * 16), 0)
OTHER: PartitionKey = (TopicId(b"t" * 16), 1)


def test_a_later_claim_ends_an_earlier_one() -> None:
    claims = Claims()
    claims.take(KEY, 1)
    claims.check(KEY, 1)
    claims.take(KEY, 2)
    claims.check(KEY, 2)
    with pytest.raises(NotLeaderOrFollower):
        claims.check(KEY, 1)
    claims.check(OTHER, 1)


def test_links_without_a_claim_are_not_concerned() -> None:
    claims = Claims()
    claims.take(KEY, 1)
    claims.take(KEY, 2)
    claims.check(KEY, 3)


def test_a_claim_can_be_taken_again() -> None:
    claims = Claims()
    claims.take(KEY, 1)
    claims.take(KEY, 2)
    claims.take(KEY, 1)
    claims.check(KEY, 1)
    with pytest.raises(NotLeaderOrFollower):
        claims.check(KEY, 2)


def test_a_link_that_is_gone_is_forgotten() -> None:
    claims = Claims()
    claims.take(KEY, 1)
    claims.take(KEY, 2)
    claims.forget(1)
    claims.forget(2)
    claims.check(KEY, 1)
    claims.take(KEY, 3)
    claims.check(KEY, 3)


def test_a_link_that_is_gone_takes_nobody_elses_claims_with_it() -> None:
    claims = Claims()
    for link in (1, 2, 3):
        claims.take(KEY, link)
    claims.forget(1)
    claims.check(KEY, 1)
    with pytest.raises(NotLeaderOrFollower):
        claims.check(KEY, 2)
    claims.take(KEY, 4)
    with pytest.raises(NotLeaderOrFollower):
        claims.check(KEY, 3)
    claims.forget(4)
    claims.take(KEY, 5)
    claims.check(KEY, 4)
