"""Requests with the most extreme values of the wire format: answered, and nothing else stops."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.actors.coordination import appending, requests
from raylog.actors.coordination.hosting import REPEAT_MS
from raylog.actors.coordination.rules import records
from raylog.actors.coordination.rules.step import LogRecord
from raylog.actors.group.rules.classic.checks import NAME_BYTES_MAX
from raylog.actors.group.rules.consumer import ConsumerGroup
from raylog.wire.codegen.primitives import STRING_BYTES_MAX
from raylog.wire.errors import DecodeError, EncodeError, UnknownServerError
from raylog.wire.frame import encode_response
from raylog.wire.internal.blobs import OFFSETS_TOPIC
from raylog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from raylog.wire.messages.delete_groups import DeleteGroupsRequest
from raylog.wire.messages.describe_groups import DescribeGroupsRequest
from raylog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raylog.wire.messages.list_groups import ListGroupsRequest
from tests.unit.actors.group.test_actor import code, offsets
from tests.unit.actors.group.test_offsets import committing
from tests.unit.actors.group.test_refused_appends import loads, states, syncing
from tests.unit.actors.group.test_shard import heartbeat, joining
from tests.worlds.decorators import TMP_PATH, in_world
from tests.worlds.group.actor import CoordinatorWorld, run
from tests.worlds.group.pending_offsets import committing_in
from tests.worlds.group.shard import subscription_blob
from tests.worlds.runtime import settle

LATEST = 9
INT64_MAX = 2**63 - 1
LONGEST = "x" * STRING_BYTES_MAX
TEXT_BYTES_MAX = 4_096
"""Of an error's text on the wire."""


@pytest.mark.parametrize("version", [2, 3, 4])
@in_world(run, TMP_PATH)
async def test_offsets_are_kept_for_as_long_as_can_be_said(
    world: CoordinatorWorld, *, version: int
) -> None:
    await world.begin()
    kept = committing({0: 1}, retention_ms=INT64_MAX)
    assert code(await world.ask(kept, version)) == "NONE"
    assert code(await world.ask(committing({0: 2}, group="other"), LATEST)) == "NONE"
    await world.runtime.advance(30 * 86_400_000)
    assert await offsets(world) == {0: 1}
    assert await offsets(world, "other") == {}, "as usual"


# ---- what cannot be written ----------------------------------------------------------------


def unwritable(monkeypatch: pytest.MonkeyPatch, group: str) -> None:
    """Records of that group are none that the log can have."""
    encode = records.encode

    def refusing(record: LogRecord) -> records.Blobs:
        key: Any = record.key
        if group == getattr(key, "group", getattr(key, "group_id", None)):
            raise EncodeError("it does not fit")
        return encode(record)

    monkeypatch.setattr(records, "encode", refusing)


@in_world(run, TMP_PATH)
async def test_a_commit_that_cannot_be_written_fails_alone(
    world: CoordinatorWorld, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.begin()
    unwritable(monkeypatch, "bad")
    bad = [
        world.send(committing({0: 1}, group="bad"), LATEST),
        world.send(committing_in({0: 1}, group="bad"), 5),
    ]
    good = world.send(committing({0: 2}), LATEST)
    await world.runtime.advance(1)
    await settle()
    assert [code(one.answer) for one in bad] == ["UNKNOWN_SERVER_ERROR"] * 2
    assert code(good.answer) == "NONE"
    assert await offsets(world, "bad") == {}
    assert await offsets(world) == {0: 2}
    assert await states(world) == {"g": "Empty"}, "nothing of the other is left"
    assert loads(world) == 1, "at the beginning"


@pytest.mark.parametrize("kind", ["classic", "consumer"])
@in_world(run, TMP_PATH)
async def test_a_group_that_cannot_be_written_is_none(
    world: CoordinatorWorld, *, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    await world.begin()
    unwritable(monkeypatch, "bad")
    if kind == "classic":
        answer = await world.ask(joining("bad"), 3)
    else:
        answer = await world.ask(heartbeat("bad"), 1)
    assert code(answer) == "UNKNOWN_SERVER_ERROR"
    assert await states(world) == {}
    assert not len(world.actor._shards.get(0)._timers)  # type: ignore[union-attr]  # it is there
    assert code(await world.ask(joining(), 3)) == "NONE"
    assert loads(world) == 1, "at the beginning"


@in_world(run, TMP_PATH)
async def test_members_whose_metadata_are_too_large_together_get_no_assignment(
    world: CoordinatorWorld, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each JoinGroup is legal, but nobody could load the record of the whole group."""
    monkeypatch.setattr(appending, "TOGETHER_BYTES_MAX", 10_000)
    await world.begin()
    metadata = [JoinGroupRequestProtocol(name="range", metadata=b"x" * 4_000)]
    asks = [world.send(joining("large", protocols=metadata), 3) for _ in range(3)]
    await world.runtime.advance(1)
    joined = asks[0].answer
    assert code(joined) == "NONE"
    assert code(await world.ask(syncing(joined, "large"), 3)) == "UNKNOWN_SERVER_ERROR"
    assert await states(world) == {"large": "PreparingRebalance"}, "as in Kafka"
    assert code(await world.ask(committing({0: 1}), LATEST)) == "NONE"
    assert loads(world) == 1, "at the beginning"
    await world.runtime.advance(20_000)  # nobody joins again
    assert await states(world) == {"large": "Empty", "g": "Empty"}


@in_world(run, TMP_PATH)
async def test_the_end_of_a_member_that_cannot_be_written_is_tried_again(
    world: CoordinatorWorld, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has its assignment to fetch; nothing else would look at that time again."""

    await world.begin()
    assert code(await world.ask(heartbeat("bad"), 1)) == "NONE"
    protocol = JoinGroupRequestProtocol(name="range", metadata=subscription_blob("t"))
    joined = JoinGroupRequest(
        group_id="bad",
        session_timeout_ms=1_800_000,
        rebalance_timeout_ms=20_000,
        member_id="classic",
        protocol_type="consumer",
        protocols=[protocol],
    )
    assert code(await world.ask(joined, 9)) == "NONE"
    host = world.actor._shards.get(0)
    assert host is not None
    group = host.shard.groups["bad"]
    assert isinstance(group, ConsumerGroup)
    with monkeypatch.context() as refusing:
        unwritable(refusing, "bad")
        await world.runtime.advance(21_000)
    assert len(group.state.profiles) == 2, "it cannot be said that one is out"
    await world.runtime.advance(REPEAT_MS[1])
    assert "classic" not in group.state.profiles
    assert loads(world) == 1, "at the beginning"


@in_world(run, TMP_PATH)
async def test_an_answer_that_cannot_be_written_fails_its_request(
    world: CoordinatorWorld, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.begin()

    def refusing(api_key: Any, version: int, correlation_id: int, response: Any) -> Any:
        if version == LATEST:
            raise EncodeError("it does not fit")
        return encode_response(api_key, version, correlation_id, response)

    monkeypatch.setattr(requests, "encode_response", refusing)
    failing = world.send(committing({0: 1}), LATEST)
    await world.runtime.advance(1)
    assert isinstance(failing.failure, UnknownServerError)
    assert code(await world.ask(committing({0: 2}), LATEST - 1)) == "NONE"


def test_a_record_without_a_key_is_damage() -> None:
    with pytest.raises(DecodeError, match="without a key"):
        records.decode(OFFSETS_TOPIC, None, b"")


# ---- ids -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (ConsumerGroupDescribeRequest(group_ids=[LONGEST]), 1),
        (DescribeGroupsRequest(groups=[LONGEST]), 6),
        (DeleteGroupsRequest(groups_names=[LONGEST]), 2),
        (heartbeat(LONGEST, epoch=5), 1),
        (heartbeat("g", epoch=5, member=LONGEST), 1),
    ],
)
@in_world(run, TMP_PATH)
async def test_texts_of_errors_are_cut(
    world: CoordinatorWorld, *, request_: object, version: int
) -> None:
    await world.begin()
    answer: Any = await world.ask(request_, version)
    for one in (answer, *getattr(answer, "groups", ())):
        assert len((getattr(one, "error_message", "") or "").encode()) <= TEXT_BYTES_MAX


@in_world(run, TMP_PATH)
async def test_the_longest_ids_are_stored(world: CoordinatorWorld) -> None:
    """Every text that a request can carry fits into the records that are made of it."""

    await world.begin()
    assert code(await world.ask(committing({0: 1}, group=LONGEST), LATEST)) == "NONE"
    assert await offsets(world, LONGEST) == {0: 1}
    answer = await world.ask(heartbeat(LONGEST, member=LONGEST), 1)
    assert code(answer) == "NONE"
    assert list(await states(world)) == [LONGEST]


@pytest.mark.parametrize("version", range(10))
@pytest.mark.parametrize("size", [NAME_BYTES_MAX, NAME_BYTES_MAX + 1, STRING_BYTES_MAX])
@in_world(run, TMP_PATH)
async def test_a_member_id_fits_or_is_refused(
    world: CoordinatorWorld, *, version: int, size: int
) -> None:
    await world.begin()
    name = "x" * size
    asking = [world.send(joining("of clients"), version, client_id=name)]
    if version >= 5:
        static = joining("of instances", group_instance_id=name)
        asking.append(world.send(static, version))
    await world.runtime.advance(1)
    for one in asking:
        if size > NAME_BYTES_MAX:
            assert code(one.answer) == "INVALID_REQUEST"
        else:
            assert code(one.answer) in ("NONE", "MEMBER_ID_REQUIRED")
            assert len(one.answer.member_id) == STRING_BYTES_MAX
    if size > NAME_BYTES_MAX:
        assert await states(world) == {}
    assert code(await world.ask(committing({0: 1}), LATEST)) == "NONE"


# ---- listing -------------------------------------------------------------------------------


@in_world(run, TMP_PATH)
async def test_list_groups_fails_while_a_shard_is_not_open(world: CoordinatorWorld) -> None:
    await world.begin(partitions=2)
    listed = await world.ask(ListGroupsRequest(), 5)
    assert code(listed) == "COORDINATOR_NOT_AVAILABLE", "partition 1 has no route"
