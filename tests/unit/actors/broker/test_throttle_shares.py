"""Which of a broker's processes share its replication quotas."""

from raylog.actors.broker.rules.throttle_shares import USED_MS, ThrottleShares


def test_throttle_rate_is_shared_by_recent_users() -> None:
    shares = ThrottleShares()
    assert shares.used("a", True, False, 0) == (1, 0)
    assert shares.used("b", True, True, 1_000) == (2, 1)
    assert shares.used("a", False, True, USED_MS) == (2, 2)
    assert shares.used("c", False, False, USED_MS + 1) == (1, 2)
    assert shares.used("c", False, False, 1_000 + USED_MS + 1) == (0, 1)
