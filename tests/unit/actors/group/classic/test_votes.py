"""The vote for a protocol, and how ties are broken."""

import pytest

from raylog.actors.group.rules.classic.members import Member, Roster


def _roster(*preferences: tuple[str, ...]) -> Roster:
    roster = Roster()
    for index, names in enumerate(preferences):
        protocols = dict.fromkeys(names, b"")
        roster.add(Member(f"m{index}", None, "c", "h", 1, 1, protocols), "consumer")
    return roster


@pytest.mark.parametrize(
    ("first", "second", "chosen"),
    [
        # As Apache Kafka 4.3.1 chose.
        ("range", "roundrobin", "range"),
        ("roundrobin", "range", "range"),
        ("sticky", "range", "sticky"),
        ("cooperative-sticky", "range", "range"),
        ("b", "a", "a"),
    ],
)
def test_a_tie_is_decided_as_apache_kafka_does(first: str, second: str, chosen: str) -> None:
    assert _roster((first, second), (second, first)).vote() == chosen
    assert _roster((second, first), (first, second)).vote() == chosen


def test_many_tied_protocols_still_have_one_winner() -> None:
    names = [f"assignor-{number}" for number in range(40)]
    preferences = [(name, *(other for other in names if other != name)) for name in names]
    assert _roster(*preferences).vote() == _roster(*preferences[::-1]).vote()


def test_a_protocol_that_one_member_lacks_gets_no_vote() -> None:
    assert _roster(("a", "c"), ("a", "c"), ("b", "c")).vote() == "c"


def test_a_member_that_goes_takes_its_support_along() -> None:
    roster = _roster(("a", "c"), ("b", "c"))
    assert not roster.supports(["a"])
    roster.remove("m1")
    assert roster.supports(["a"])
    assert roster.vote() == "a"
