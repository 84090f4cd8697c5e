"""How groups are displayed to people and programs."""

from io import StringIO

import pytest
from rich.console import Console

from raylog.cli.group_views import GroupView, as_json, ranges, render
from raylog.client import (
    CommittedOffset,
    FoundOffset,
    GroupDescription,
    GroupMember,
    Node,
    TopicPartition,
)

T = [TopicPartition("t", index) for index in range(4)]


def member(name: str, held: list[int], target: list[int] | None = None) -> GroupMember:
    return GroupMember(
        member_id=name,
        client_id=f"client-{name}",
        client_host="/10.0.0.1",
        instance_id=None,
        type="consumer",
        topics=("t",),
        partitions=tuple(T[index] for index in held),
        target=None if target is None else tuple(T[index] for index in target),
        member_epoch=None if target is None else 3,
    )


def view(*members: GroupMember, epoch: int | None = None, note: str | None = None) -> GroupView:
    return GroupView(
        GroupDescription(
            group_id="[g]",
            type="classic" if epoch is None else "consumer",
            protocol_type="consumer",
            state="Stable",
            assignor="range",
            members=members,
            group_epoch=epoch,
            assignment_epoch=epoch,
            note=note,
        ),
        Node(1, "host", 9092),
        {T[0]: CommittedOffset(5), T[1]: CommittedOffset(9), T[3]: CommittedOffset(7, 1, "meta")},
        {T[0]: FoundOffset(8, -1), T[1]: FoundOffset(4, -1), T[2]: FoundOffset(10, -1)},
    )


def text_of(*views: GroupView) -> str:
    console = Console(file=StringIO(), width=200)
    console.print(render(views))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_lag_is_what_lies_between_the_committed_offset_and_the_end() -> None:
    found = view(member("a", [2]))
    assert found.partitions == T
    assert [found.lag_of(key) for key in T] == [3, 0, None, None]
    assert found.lag == 3


def test_a_group_as_json() -> None:
    found = as_json(view(member("a", [0, 2], [0]), epoch=4, note="it failed"))
    assert found["coordinator"] == {"id": 1, "host": "host", "port": 9092}
    assert (found["group_epoch"], found["last_assignor_error"]) == (4, "it failed")
    partitions = found["partitions"]
    assert isinstance(partitions, list)
    assert partitions[0] == {
        "topic": "t",
        "partition": 0,
        "committed_offset": 5,
        "end_offset": 8,
        "lag": 3,
        "member_id": "a",
        "client_id": "client-a",
        "metadata": "",
    }
    assert partitions[3]["metadata"] == "meta"
    assert partitions[3]["end_offset"] is None
    members = found["members"]
    assert isinstance(members, list)
    assert members[0]["partitions"] == {"t": [0, 2]}
    assert members[0]["target_partitions"] == {"t": [0]}


def test_a_group_as_tables() -> None:
    text = text_of(view(member("a", [0, 1, 2]), member("b", [])))
    assert "[g]  Stable, classic, 2 members, lag 3" in text
    assert "coordinator 1 (host:9092), assignor range\n" in text
    assert "t:0-2" in text
    assert "10.0.0.1" in text
    assert "moving to" not in text
    assert "epoch" not in text


def test_group_view_shows_moves_and_the_failed_assignment() -> None:
    text = text_of(view(member("a", [0], [0, 2]), epoch=4, note="mine raised ValueError"))
    assert "group epoch 4, assignment epoch 4" in text
    assert "last assignment failed: mine raised ValueError" in text
    assert "moving to" in text
    assert "t:0,2" in text


def test_an_empty_group_says_so() -> None:
    empty = view()
    empty.committed.clear()
    assert "no members, no committed offsets" in text_of(empty)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([3], "3"), ([1, 0], "0-1"), ([0, 1, 2, 5, 7, 8], "0-2,5,7-8")],
)
def test_ranges(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text
