"""The coordinator's shell: loading, group commit, failed appends, leadership changes."""

import os
from pathlib import Path

import pytest

from raylog.actors.common_messages import RouteUpdate
from raylog.actors.coordination.appending import APPEND_RECORDS_MAX
from raylog.actors.coordination.lease import WAIT_MS
from raylog.actors.coordination.requests import coordinator_error
from raylog.actors.group.hosting import SWEPT_AT_ONCE
from raylog.actors.group.rules.shard import Shard
from raylog.actors.metadata.records import TopicDeleted
from raylog.actors.metrics.errors import codes_in
from raylog.actors.names import OFFSETS_TOPIC, broker_name
from raylog.actors.reopening import REOPEN_MS_MAX
from raylog.actors.replica import messages as api
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout
from raylog.wire.api import LIGHT_ELEMENTS_MAX, ApiKey
from raylog.wire.codec import encode
from raylog.wire.errors import (
    BrokerNotAvailable,
    CorruptMessage,
    ErrorCode,
    FencedLeaderEpoch,
    InvalidRequest,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from raylog.wire.messages.delete_groups import DeleteGroupsRequest
from raylog.wire.messages.describe_groups import DescribeGroupsRequest
from raylog.wire.messages.heartbeat import HeartbeatRequest
from raylog.wire.messages.list_groups import ListGroupsRequest
from raylog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from raylog.wire.messages.sync_group import SyncGroupRequest
from tests.unit.actors.group.test_offsets import committing
from tests.unit.actors.group.test_shard import heartbeat, joining
from tests.worlds.decorators import TMP_PATH, in_world
from tests.worlds.group.actor import (
    ADDRESS,
    BROKER,
    SEGMENT,
    CoordinatorWorld,
    HoldingLink,
    run,
)
from tests.worlds.group.pending_offsets import committing_in
from tests.worlds.metadata import broker_records, id_of, topic_records
from tests.worlds.runtime import settle

OTHER_BROKER = 2


def fetching(*groups: str, require_stable: bool = False) -> OffsetFetchRequest:
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups or ("g",)],
        require_stable=require_stable,
    )


class SilentBroker:
    """A Broker that no controller answers."""

    async def last_heartbeat(self) -> tuple[float, int, int]:
        raise BrokerNotAvailable("no controller has answered this broker yet")


async def offsets(world: CoordinatorWorld, group: str = "g") -> dict[int, int]:
    return offsets_in(await world.ask(fetching(group), 8))


def offsets_in(answer: OffsetFetchResponse) -> dict[int, int]:
    """What an answer about one group tells, by partition."""
    (found,) = answer.groups
    assert not found.error_code, ErrorCode(found.error_code)
    return {
        one.partition_index: one.committed_offset
        for topic in found.topics
        for one in topic.partitions
    }


def code(answer: object) -> str:
    """The one error code of an answer about one partition, group or member."""
    for name in ("topics", "partitions", "groups", "results"):
        parts = getattr(answer, name, None)
        if parts:
            return code(parts[0])
    return ErrorCode(answer.error_code).name  # type: ignore[attr-defined]  # of every answer


@in_world(run, TMP_PATH)
async def test_commits_are_read_again_by_the_next_process(world: CoordinatorWorld) -> None:
    await world.begin()
    assert code(await world.ask(committing({0: 5, 1: 6}), 9)) == "NONE"
    world.restart()
    await world.begin()
    assert await offsets(world) == {0: 5, 1: 6}
    await world.ask(committing({1: 7}), 9)
    assert await offsets(world) == {0: 5, 1: 7}


@in_world(run, TMP_PATH)
async def test_requests_of_one_turn_are_one_append(world: CoordinatorWorld) -> None:
    await world.begin()
    asked = [world.send(committing({0: n}, group=f"g{n}"), 9) for n in range(50)]
    assert world.log.batches == []
    await world.runtime.advance(0)
    assert world.log.batches == [50]
    assert {code(one.answer) for one in asked} == {"NONE"}


@in_world(run, TMP_PATH)
async def test_requests_during_an_append_are_batched_into_the_next_one(
    world: CoordinatorWorld,
) -> None:
    await world.begin()
    world.link.holding = True
    first = world.send(committing({0: 1}), 9)
    await world.runtime.advance(0)
    assert len(world.link.held) == 1
    later = [world.send(committing({0: n}), 9) for n in range(2, 12)]
    await world.runtime.advance(5)
    assert len(world.link.held) == 1, "one append at a time"
    assert first.answer is None
    world.link.release()
    await world.runtime.advance(0)
    assert world.log.batches == [1, 10]
    assert {code(one.answer) for one in (first, *later)} == {"NONE"}


@in_world(run, TMP_PATH)
async def test_an_answer_waits_for_what_it_tells(world: CoordinatorWorld) -> None:
    """Readers see committed state alone: not what an append may still lose."""

    await world.begin()
    world.link.holding = True
    world.send(committing({0: 1}), 9)
    await world.runtime.advance(0)
    reading = world.send(fetching(), 8)
    assert offsets_in(reading.answer) == {}, "of what is below the high watermark now"
    stable = world.send(fetching(require_stable=True), 8)
    listing = world.send(ListGroupsRequest(), 4)
    refused = world.send(HeartbeatRequest(group_id="no", generation_id=1, member_id="m"), 4)
    assert code(refused.answer) == "UNKNOWN_MEMBER_ID", "which promises nothing"
    await world.runtime.advance(5)
    assert not stable.is_answered
    assert not listing.is_answered
    world.link.release()
    assert offsets_in(stable.answer) == {0: 1}
    assert [one.group_id for one in listing.answer.groups] == ["g"]


@pytest.mark.parametrize("is_written", [False, True])
@in_world(run, TMP_PATH)
async def test_where_the_outcome_is_unknown_the_log_says_what_is(
    world: CoordinatorWorld, *, is_written: bool
) -> None:
    await world.begin()
    await world.ask(committing({0: 1}), 9)
    world.log.failure = NotLeaderOrFollower("leadership has moved")
    world.log.writes_failing = is_written
    failing = world.send(committing({0: 2}), 9)
    joined = world.send(joining("waits", session_timeout_ms=10_000), 3)
    await world.runtime.advance(0)
    assert code(failing.answer) == "NOT_COORDINATOR"
    assert code(joined.answer) == "NOT_COORDINATOR"
    world.log.failure = None
    await settle()
    assert await offsets(world) == {0: 2 if is_written else 1}
    await world.ask(committing({0: 3}), 9)
    assert await offsets(world) == {0: 3}


@in_world(run, TMP_PATH)
async def test_while_it_loads_clients_are_to_wait(world: CoordinatorWorld) -> None:
    answering = world.link.answering
    world.link.answering = None
    await world.begin()
    loading = {
        "commit": await world.ask(committing({0: 1}), 9),
        "fetch": await world.ask(fetching(), 8),
        "list": await world.ask(ListGroupsRequest(), 4),
        "join": await world.ask(joining(), 5),
        "beat": await world.ask(heartbeat(), 1),
    }
    assert {name: code(answer) for name, answer in loading.items()} == dict.fromkeys(
        loading, "COORDINATOR_LOAD_IN_PROGRESS"
    )
    sync = SyncGroupRequest(group_id="g", generation_id=1, member_id="m")
    assert code(await world.ask(sync, 3)) == "REBALANCE_IN_PROGRESS"
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert code(await world.ask(beat, 3)) == "NONE"
    world.link.answering = answering
    world.link.take(api.CLAIM).reply(0)
    await settle()
    assert code(await world.ask(committing({0: 1}), 9)) == "NONE"


def test_a_load_that_fails_is_tried_again(tmp_path: Path) -> None:
    async def scenario(world: CoordinatorWorld) -> None:
        answering = world.link.answering
        refusals = 3

        def refusing(request: object) -> object:
            nonlocal refusals
            if refusals:
                refusals -= 1
                raise NotLeaderOrFollower("not yet")
            assert answering is not None
            return answering(request)  # type: ignore[arg-type]  # as it came

        world.link.answering = refusing
        await world.begin()
        assert code(await world.ask(committing({0: 1}), 9)) == "COORDINATOR_LOAD_IN_PROGRESS"
        await world.runtime.advance(1_000)
        assert code(await world.ask(committing({0: 1}), 9)) == "NONE"

    run(scenario, tmp_path)


@in_world(run, TMP_PATH)
async def test_groups_of_others_are_refused(world: CoordinatorWorld) -> None:
    assert code(await world.ask(committing({0: 1}), 9)) == "NOT_COORDINATOR"
    await world.begin(leader=OTHER_BROKER)
    assert code(await world.ask(committing({0: 1}), 9)) == "NOT_COORDINATOR"
    assert code(await world.ask(fetching(), 8)) == "NOT_COORDINATOR"
    listed = await world.ask(ListGroupsRequest(), 4)
    assert not listed.error_code
    assert listed.groups == []


@pytest.mark.parametrize("by", ["routes", "metadata", "stop"])
@in_world(run, TMP_PATH, group_initial_rebalance_delay_ms="3000")
async def test_waiting_requests_get_not_coordinator_when_leadership_moves(
    world: CoordinatorWorld, *, by: str
) -> None:
    await world.begin()
    world.link.holding = True
    committed = world.send(committing({0: 1}), 9)
    joined = world.send(joining("g"), 3)
    await world.runtime.advance(0)
    assert committed.answer is None
    assert joined.answer is None
    if by == "routes":
        await world.actor.apply_routes(RouteUpdate([], [(id_of(OFFSETS_TOPIC), 0)]))
    elif by == "metadata":
        await world.lead(OTHER_BROKER)
    else:
        await world.actor.stop()
    assert code(committed.answer) == code(joined.answer) == "NOT_COORDINATOR"
    expected = "COORDINATOR_LOAD_IN_PROGRESS" if by != "metadata" else "NOT_COORDINATOR"
    assert code(await world.ask(committing({0: 1}), 9)) == expected


@in_world(run, TMP_PATH)
async def test_leadership_comes_back_with_what_was_committed(world: CoordinatorWorld) -> None:
    await world.begin()
    await world.ask(committing({0: 1}), 9)
    await world.lead(OTHER_BROKER)
    await world.lead(BROKER)
    await world.route(leader_epoch=2)
    assert await offsets(world) == {0: 1}


@in_world(run, TMP_PATH)
async def test_a_route_to_the_replicas_successor_is_taken(world: CoordinatorWorld) -> None:
    await world.begin()
    await world.ask(committing({0: 1}), 9)
    old = world.link
    answering = old.answering
    old.lose()
    assert code(await world.ask(committing({0: 2}), 9)) == "NOT_COORDINATOR"
    world.link = HoldingLink()
    world.link.answering = answering
    world.runtime.links[ADDRESS] = world.link
    await world.route()
    assert await offsets(world) == {0: 1}


@pytest.mark.parametrize("refusals", [0, 3])
@in_world(run, TMP_PATH)
async def test_a_link_that_breaks_while_both_its_ends_live_is_opened_again(
    world: CoordinatorWorld, *, refusals: int
) -> None:
    await world.begin()
    await world.ask(committing({0: 1}), 9)
    broken = world.link
    world.link = HoldingLink()
    world.link.answering = broken.answering
    broken.lose()
    for _ in range(refusals):
        await world.runtime.advance(REOPEN_MS_MAX)
    world.runtime.links[ADDRESS] = world.link
    await world.runtime.advance(REOPEN_MS_MAX)
    assert await offsets(world) == {0: 1}


@in_world(run, TMP_PATH)
async def test_the_same_route_again_changes_nothing(world: CoordinatorWorld) -> None:
    await world.begin()
    claims = world.link.kinds().count(api.CLAIM)
    await world.route()
    assert world.link.kinds().count(api.CLAIM) == claims


@in_world(run, TMP_PATH)
async def test_several_groups_are_answered_in_the_order_asked(world: CoordinatorWorld) -> None:
    await world.begin(partitions=2)
    names = ["a", "b", "c", "d"]  # their hashes alternate between the partitions
    for name in names:
        await world.ask(committing({0: 1}, group=name), 9)
    found = await world.ask(fetching(*names), 8)
    assert [one.group_id for one in found.groups] == names
    loading = "COORDINATOR_LOAD_IN_PROGRESS"
    assert sorted({code(one) for one in found.groups}) == [loading, "NONE"]
    described = await world.ask(DescribeGroupsRequest(groups=names), 5)
    assert [one.group_id for one in described.groups] == names
    deleted = await world.ask(DeleteGroupsRequest(groups_names=[*names, "a"]), 2)
    assert [one.group_id for one in deleted.results] == names
    assert (await world.ask(DescribeGroupsRequest(groups=[]), 5)).groups == []


@in_world(run, TMP_PATH)
async def test_topics_that_go_and_grow_are_noticed(world: CoordinatorWorld) -> None:
    await world.begin()
    await world.ask(committing({0: 1}), 9)
    joined = await world.ask(heartbeat("k"), 1)
    assert len(joined.assignment.topic_partitions[0].partitions) == 3
    await world.apply(TopicDeleted(id_of("t")))
    await world.runtime.advance(1_100)
    assert await offsets(world) == {}
    answer = await world.ask(heartbeat("k", epoch=joined.member_epoch), 1)
    assert answer.assignment.topic_partitions == []


@in_world(run, TMP_PATH)
async def test_sessions_end_in_time(world: CoordinatorWorld) -> None:
    await world.begin()
    joined = world.send(joining("g"), 3)
    await world.runtime.advance(1)
    member = joined.answer.member_id
    sync = SyncGroupRequest(group_id="g", generation_id=1, member_id=member)
    assert code(await world.ask(sync, 3)) == "NONE"
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
    for _ in range(3):
        await world.runtime.advance(9_000)
        assert code(await world.ask(beat, 3)) == "NONE"
    await world.runtime.advance(10_001)
    assert code(await world.ask(beat, 3)) == "UNKNOWN_MEMBER_ID"


@in_world(run, TMP_PATH, offsets_retention_check_interval_ms="1000")
async def test_offsets_expire_by_the_clock(world: CoordinatorWorld) -> None:
    await world.begin()
    await world.ask(committing({0: 1}, retention_ms=100), 4)
    await world.ask(committing({1: 1}), 4)
    await world.runtime.advance(1_001)
    assert await offsets(world) == {1: 1}


@in_world(run, TMP_PATH)
async def test_a_step_that_breaks_is_an_error_and_a_fresh_start(
    world: CoordinatorWorld, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.begin()
    await world.ask(committing({0: 1}), 9)
    with monkeypatch.context() as broken:
        broken.setattr("raylog.actors.group.rules.offsets._append", lambda *_: 1 / 0)
        assert code(await world.ask(committing({0: 2}), 9)) == "UNKNOWN_SERVER_ERROR"
    assert await offsets(world) == {0: 1}


@in_world(run, TMP_PATH)
async def test_undecodable_request_is_refused(world: CoordinatorWorld) -> None:
    await world.begin()
    cut = world.send_bytes(ApiKey.OFFSET_COMMIT, 9, b"\x05g")
    assert isinstance(cut.failure, CorruptMessage)
    other = world.send_bytes(ApiKey.OFFSET_COMMIT, 9, b"", kind="other")
    assert isinstance(other.failure, InvalidRequest)


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (PeerLost("x"), "NOT_COORDINATOR"),
        (ActorGone("x"), "NOT_COORDINATOR"),
        (NotLeaderOrFollower("x"), "NOT_COORDINATOR"),
        (FencedLeaderEpoch("x"), "NOT_COORDINATOR"),
        (KafkaStorageError("x"), "NOT_COORDINATOR"),
        (PeerTimeout("x"), "COORDINATOR_NOT_AVAILABLE"),
        (RequestTimedOut("x"), "COORDINATOR_NOT_AVAILABLE"),
        (NotEnoughReplicas("x"), "COORDINATOR_NOT_AVAILABLE"),
        (UnknownTopicOrPartition("x"), "COORDINATOR_NOT_AVAILABLE"),
        (MessageTooLarge("x"), "UNKNOWN_SERVER_ERROR"),
        (CorruptMessage("x"), "CORRUPT_MESSAGE"),
    ],
)
def test_failures_of_the_log_in_terms_of_coordinators(failure: Exception, expected: str) -> None:
    error = coordinator_error(failure)
    assert isinstance(error, KafkaError)
    assert error.code.name == expected


@in_world(run, TMP_PATH)
async def test_offsets_in_a_transaction_that_break_a_step_are_an_error_and_a_fresh_start(
    world: CoordinatorWorld, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.begin()
    await world.ask(committing({0: 1}), 9)
    with monkeypatch.context() as broken:
        broken.setattr(Shard, "handle", lambda *_: 1 / 0)
        answer = await world.ask(committing_in({0: 2}), 5)
    assert code(answer) == "UNKNOWN_SERVER_ERROR"
    assert await offsets(world) == {0: 1}
    assert world.log.batches == [1], "nothing of it is written"


@in_world(run, TMP_PATH)
async def test_an_update_that_has_come_before_deletes_nothing_again(
    world: CoordinatorWorld,
) -> None:
    """The topic may have been created anew since, and offsets been committed in it."""

    await world.begin()
    at = world.actor._image.offset
    await world.apply(TopicDeleted(id_of("t")))
    await world.apply(*topic_records("t", 3))
    await world.ask(committing({0: 1}), 9)
    await world.actor.apply_metadata(at, at + 1, [TopicDeleted(id_of("t"))])
    await world.runtime.advance(1_000)
    assert await offsets(world) == {0: 1}


@in_world(run, TMP_PATH)
async def test_ping_lists_the_partitions_of_the_actor(world: CoordinatorWorld) -> None:
    assert (await world.actor.ping())["partitions"] == []
    await world.begin()
    assert await world.actor.ping() == {"name": "group", "pid": os.getpid(), "partitions": [0]}


def test_unexpected_error_is_not_mapped_to_a_client_error() -> None:
    broken = ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError) as raised:
        coordinator_error(broken)
    assert raised.value is broken


@in_world(run, TMP_PATH)
async def test_a_large_request_that_cannot_be_read_is_refused(world: CoordinatorWorld) -> None:
    """What is wrong is found by the thread that decodes it."""

    await world.begin()
    large = committing(dict.fromkeys(range(LIGHT_ELEMENTS_MAX), 1))
    cut = world.send_bytes(ApiKey.OFFSET_COMMIT, 9, encode(large, 9)[:-1])
    await settle()
    assert isinstance(cut.failure, CorruptMessage)
    assert not cut.is_answered
    assert await offsets(world) == {}


@in_world(run, TMP_PATH)
async def test_a_large_append_is_not_made_larger(world: CoordinatorWorld) -> None:
    await world.begin()
    asked = [world.send(committing({0: n}), 9) for n in range(APPEND_RECORDS_MAX + 5)]
    await world.runtime.advance(1)
    assert world.log.batches == [APPEND_RECORDS_MAX, 5]
    assert {code(one.answer) for one in asked} == {"NONE"}
    assert await offsets(world) == {0: APPEND_RECORDS_MAX + 4}


@in_world(run, TMP_PATH)
async def test_one_steps_offsets_are_several_appends_and_its_answer_waits_for_the_last(
    world: CoordinatorWorld,
) -> None:
    await world.begin()
    asked = committing({0: 1})
    (topic,) = asked.topics
    topic.partitions = topic.partitions * (2 * APPEND_RECORDS_MAX + 5)
    assert code(await world.ask(asked, 9)) == "NONE"
    assert world.log.batches == [APPEND_RECORDS_MAX, APPEND_RECORDS_MAX, 5]


@in_world(run, TMP_PATH, offsets_retention_check_interval_ms="1000")
async def test_many_groups_are_swept_some_at_a_time(world: CoordinatorWorld) -> None:
    await world.begin()
    count = 2 * SWEPT_AT_ONCE + 1
    for number in range(count):
        world.send(committing({0: 1}, group=f"g{number}", retention_ms=1), 4)
    await world.runtime.advance(999)
    written = len(world.log.batches)
    await world.runtime.advance(2)
    tombstones = sum(world.log.batches[written:])
    assert tombstones == 2 * count  # of the offset and of the group
    assert (await world.ask(ListGroupsRequest(), 4)).groups == []


@in_world(run, TMP_PATH)
async def test_a_log_that_cannot_be_read_keeps_clients_waiting(world: CoordinatorWorld) -> None:
    await world.begin()
    await world.ask(committing({0: 1}), 9)
    segment = world.log.directory / SEGMENT
    good = segment.read_bytes()
    segment.write_bytes(good[:-1] + b"?")
    world.restart()
    await world.begin()
    assert code(await world.ask(committing({0: 2}), 9)) == "COORDINATOR_LOAD_IN_PROGRESS"
    segment.write_bytes(good)
    await world.runtime.advance(5_000)
    assert await offsets(world) == {0: 1}


@in_world(run, TMP_PATH, offsets_retention_check_interval_ms="1000")
async def test_expired_offsets_are_looked_for_again_and_again(world: CoordinatorWorld) -> None:
    await world.begin()
    for _ in range(3):
        await world.ask(committing({0: 1}, retention_ms=100), 4)
        assert await offsets(world) == {0: 1}
        await world.runtime.advance(1_000)
        assert await offsets(world) == {}


@in_world(run, TMP_PATH)
async def test_no_markers_are_answered_at_once(world: CoordinatorWorld) -> None:
    await world.begin()
    assert world.mark().codes == []


@in_world(run, TMP_PATH)
async def test_a_shard_that_was_left_leaves_no_timer(world: CoordinatorWorld) -> None:
    await world.begin()
    await world.ask(joining("g"), 3)
    assert world.runtime.pending_timers() == 2, "of members, and of expired offsets"
    await world.lead(OTHER_BROKER)
    assert world.runtime.pending_timers() == 0


@in_world(run, TMP_PATH)
async def test_a_coordinator_that_may_have_a_successor_reads_no_offsets(
    world: CoordinatorWorld,
) -> None:
    """What it would write is refused by the log, so members go on until then."""
    await world.begin()
    await world.apply(*broker_records(BROKER, OTHER_BROKER))
    name = broker_name("c", BROKER)
    for broker in (None, SilentBroker()):
        world.runtime.peers = {} if broker is None else {name: broker}
        for version in (8, 7):
            request = fetching() if version > 7 else OffsetFetchRequest(group_id="g", topics=None)
            waiting = world.send(request, version)
            await world.runtime.advance(WAIT_MS)
            assert codes_in(waiting.answer) == [ErrorCode.NOT_COORDINATOR]
        assert codes_in(await world.ask(committing({0: 7}), 2)) == []
        assert codes_in(await world.ask(heartbeat(), 1)) == []
