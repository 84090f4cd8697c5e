"""The lag of groups, some of which cannot be inspected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from raylog.client import Admin, ClientError, TopicPartition
from raylog.client.offsets import FoundOffset
from raylog.loadtest.lags import LagWatch

KEY = TopicPartition("t", 0)


class Groups:
    """An admin client that gets no answer from the coordinators of some groups."""

    def __init__(self) -> None:
        self.away: set[str] = set()
        self.end = 100

    def group_offsets(self, group: str, keys: Iterable[TopicPartition]) -> Mapping[Any, Any]:
        if group in self.away:
            raise ClientError(f"the coordinator of {group} does not answer")
        return {}

    def list_offsets(self, asked: Mapping[TopicPartition, Any]) -> dict[TopicPartition, Any]:
        return {key: FoundOffset(self.end, -1, -1) for key in asked}


def test_a_lag_that_was_last_known_before_the_end_does_not_count() -> None:
    groups, watch = Groups(), LagWatch({"a": [KEY], "b": [KEY]})
    admin = cast(Admin, groups)
    assert watch.total() is None
    assert watch.look(admin, 10.0) == {}
    groups.away = {"b"}
    groups.end = 0
    failed = watch.look(admin, 30.2)
    assert {group: str(failure) for group, failure in failed.items()} == {
        "b": "the coordinator of b does not answer"
    }
    assert watch.total() == 100, "what was last known"
    assert watch.total(30.0) is None
    groups.away = set()
    assert watch.look(admin, 30.7) == {}
    assert watch.total(30.0) == 0
