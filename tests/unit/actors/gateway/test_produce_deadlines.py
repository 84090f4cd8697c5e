"""Produce: when its timeout starts and ends, and what happens afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.actors.gateway.context import RequestContext
from raylog.actors.runtime.deadlines import TICK_MS
from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode
from raylog.wire.frame import encode_response
from raylog.wire.records import Record, encode_batch
from tests.unit.actors.gateway.test_produce import BATCH, T, served
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import World, run
from tests.worlds.gateway.producing import appended, codes, produce
from tests.worlds.runtime import settle


@in_world(run)
async def test_a_replica_that_hangs_is_given_up(world: World) -> None:
    link = await served(world)
    client = world.client()
    other = await world.route("other", (T, 0))
    other.answering = appended
    client.send(produce((0, BATCH), (1, BATCH)), 9)
    await world.runtime.advance(5_999)
    assert client.received() == []
    await world.runtime.advance(2 * TICK_MS)
    (answer,) = client.received()
    assert codes(answer) == [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]
    link.take().reply([(4, -1, 0)])
    await settle()
    assert client.received() == []


def test_late_answer_does_not_change_a_response_being_encoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: list[Any] = []
    monkeypatch.setattr(RequestContext, "reply", lambda _, response: answers.append(response))

    async def scenario(world: World) -> None:
        written = await served(world)
        refused = await world.route("other", (T, 1))
        world.client().send(produce((0, BATCH), (1, BATCH)), 9)
        await world.runtime.advance(6_000 + 2 * TICK_MS)
        (answer,) = answers
        before = encode_response(ApiKey.PRODUCE, 9, 1, answer)
        written.take().reply([(4, -1, 0)])
        refused.take().reply([(int(ErrorCode.CORRUPT_MESSAGE), "so long a text")])
        await settle()
        assert encode_response(ApiKey.PRODUCE, 9, 1, answer) == before

    run(scenario)


@in_world(run)
async def test_timely_answers_are_kept_when_another_replica_times_out(world: World) -> None:
    """The first offset of a log and a refusal, beside a replica that hangs."""

    first = await served(world, 3)
    hanging = await world.route("hanging", (T, 2))
    client = world.client()
    client.send(produce((0, BATCH), (1, BATCH), (2, BATCH)), 9)
    first.take().reply([(0, 99, 0), (int(ErrorCode.CORRUPT_MESSAGE), "bad")])
    await world.runtime.advance(6_000 + 2 * TICK_MS)
    (answer,) = client.received()
    assert codes(answer) == [
        ErrorCode.NONE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.REQUEST_TIMED_OUT,
    ]
    found = answer.responses[0].partition_responses
    assert [one.base_offset for one in found] == [0, -1, -1]
    assert found[1].error_message == "bad"
    assert len(hanging.requests) == 1


@in_world(run)
async def test_acks_0_that_a_replica_does_not_take_in_time_closes_the_connection(
    world: World,
) -> None:
    await served(world)
    client = world.client()
    client.send(produce((0, BATCH), acks=0), 9)
    await world.runtime.advance(6_000 + 2 * TICK_MS)
    assert client.transport.closed
    assert client.transport.written == b""


@in_world(run)
async def test_a_batch_that_is_refused_too_late_is_still_remembered_as_refused(
    world: World,
) -> None:
    """The next of its producer is not to be written before it."""

    link = await served(world)
    client = world.client()
    records = [Record(0, 1_000_000, b"k", b"v", [])]
    first, second = (
        encode_batch(records, producer_id=0, producer_epoch=0, base_sequence=at) for at in (5, 6)
    )
    client.send(produce((0, first)), 9)
    await world.runtime.advance(6_000 + 2 * TICK_MS)
    assert codes(client.received()[0]) == [ErrorCode.REQUEST_TIMED_OUT]
    link.take().reply([(int(ErrorCode.NOT_LEADER_OR_FOLLOWER), "moved")])
    client.send(produce((0, second)), 9)
    assert [part.refused_sequence for part in link.take().header[2]] == [5]


@pytest.mark.parametrize("timeout_ms", [-(2**31), -65_536, -1, 0])
@in_world(run)
async def test_a_timeout_below_zero_is_none_left_to_wait(world: World, *, timeout_ms: int) -> None:
    """The leader's own write has its time: only waiting for other replicas has not."""

    link = await served(world)
    client = world.client()
    client.send(produce((0, BATCH), timeout_ms=timeout_ms), 9)
    await world.runtime.advance(4_000)
    assert client.received() == []
    link.take().reply([(4, -1, 0)])
    assert codes(client.received()[0]) == [ErrorCode.NONE]
