"""Invalid assignments are refused, and the error describes the mistake."""

from __future__ import annotations

import pytest

from raylog.assignors.api import MemberAssignment
from raylog.assignors.checking import InvalidAssignment, check
from tests.support.assigning import topics


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"m9": {"t0": [0]}}, "unknown member 'm9'"),
        ({"m0": {"t9": [0]}}, "'t9', which is not a topic of this group"),
        ({"m0": {"t0": [3]}}, "t0-3, but the topic has 3 partitions"),
        ({"m0": {"t0": [-1]}}, "t0--1, but the topic has 3 partitions"),
        ({"m0": {"t0": [1, 1]}}, "a partition of 't0' twice"),
        ({"m0": {"t0": [1]}, "m1": {"t0": [1]}}, "t0-1 to both 'm0' and 'm1'"),
    ],
)
def test_nonsense_is_refused(given: dict[str, dict[str, list[int]]], text: str) -> None:
    found = {member_id: MemberAssignment(partitions) for member_id, partitions in given.items()}
    with pytest.raises(InvalidAssignment, match=text) as failure:
        check("odd", found, {"m0", "m1"}, topics(t0=3), shares_partitions=False)
    assert "assignor 'odd'" in str(failure.value)


def test_partitions_may_be_held_back_and_shared_by_those_who_say_so() -> None:
    found = {"m0": MemberAssignment({"t0": [1]}), "m1": MemberAssignment({"t0": [1]})}
    check("shared", found, {"m0", "m1", "m2"}, topics(t0=3), shares_partitions=True)
