"""Committed offsets of several groups at once, from brokers that support this and older ones."""

import pytest

from raylog.client import TopicPartition
from raylog.client.admin.group_offsets import offsets_of_groups
from raylog.client.coordinators import Coordinators
from raylog.client.errors import NotKafka
from raylog.client.io import run_blocking
from raylog.wire.api import ApiKey
from raylog.wire.errors import GroupAuthorizationFailed
from raylog.wire.messages import find_coordinator as finding
from raylog.wire.messages import offset_fetch as fetching
from tests.worlds.client.cluster import FakeCluster, core_of

OFFSETS = {"a": 1, "b": 2, "c": 3}
T0 = TopicPartition("t", 0)


def found(broker: int, request: object) -> finding.FindCoordinatorResponse:
    """Group c is at broker 2, others are at 1."""
    assert isinstance(request, finding.FindCoordinatorRequest)
    return finding.FindCoordinatorResponse(
        coordinators=[
            finding.Coordinator(key=key, node_id=at, host="broker", port=9000 + at)
            for key in request.coordinator_keys
            for at in [2 if key == "c" else 1]
        ]
    )


def several(broker: int, request: object) -> fetching.OffsetFetchResponse:
    assert isinstance(request, fetching.OffsetFetchRequest)
    return fetching.OffsetFetchResponse(
        groups=[
            fetching.OffsetFetchResponseGroup(
                group_id=group.group_id,
                error_code=30 * (group.group_id not in OFFSETS),
                topics=[
                    fetching.OffsetFetchResponseTopics(
                        name="t",
                        partitions=[
                            fetching.OffsetFetchResponsePartitions(
                                partition_index=0, committed_offset=OFFSETS.get(group.group_id, -1)
                            )
                        ],
                    )
                ],
            )
            for group in request.groups
        ]
    )


def one(broker: int, request: object) -> fetching.OffsetFetchResponse:
    assert isinstance(request, fetching.OffsetFetchRequest)
    partition = fetching.OffsetFetchResponsePartition(
        partition_index=0, committed_offset=OFFSETS[request.group_id]
    )
    return fetching.OffsetFetchResponse(
        topics=[fetching.OffsetFetchResponseTopic(name="t", partitions=[partition])]
    )


def nobody(broker: int, request: object) -> fetching.OffsetFetchResponse:
    return fetching.OffsetFetchResponse(groups=[])


def cluster(answer: object, newest: int = 9) -> FakeCluster:
    return FakeCluster(
        2,
        handlers={ApiKey.FIND_COORDINATOR: found, ApiKey.OFFSET_FETCH: answer},  # type: ignore[dict-item]
        newest={ApiKey.OFFSET_FETCH: newest},
    )


def ask(fake: FakeCluster, *groups: str) -> dict[str, object]:
    core = core_of(fake)
    offsets = run_blocking(offsets_of_groups(core, Coordinators(core), groups))
    return {
        group: {key: at.offset for key, at in of_group.items()}
        if isinstance(of_group, dict)
        else type(of_group)
        for group, of_group in offsets.items()
    }


def test_each_coordinator_gets_one_request() -> None:
    fake = cluster(several)
    offsets = ask(fake, "a", "b", "c", "secret")
    assert offsets == {
        "a": {T0: 1},
        "b": {T0: 2},
        "c": {T0: 3},
        "secret": GroupAuthorizationFailed,
    }
    asked = [(at, r) for at, r in fake.seen if isinstance(r, fetching.OffsetFetchRequest)]
    assert [(at, [group.group_id for group in request.groups]) for at, request in asked] == [
        (1, ["a", "b", "secret"]),
        (2, ["c"]),
    ]


def test_an_older_coordinator_gets_one_for_each_group() -> None:
    fake = cluster(one, newest=7)
    assert ask(fake, "a", "b") == {"a": {T0: 1}, "b": {T0: 2}}
    assert len(fake.requests(fetching.OffsetFetchRequest)) == 2


def test_empty_group_list_sends_no_request() -> None:
    fake = cluster(several)
    assert ask(fake) == {}
    assert fake.seen == []


def test_an_answer_about_none_of_them_is_refused() -> None:
    with pytest.raises(NotKafka, match="expected an answer about group 'a', found none"):
        ask(cluster(nobody), "a", "b")
