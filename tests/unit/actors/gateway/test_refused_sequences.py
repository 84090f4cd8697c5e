"""A batch that is out of order because of a refused batch gets the same refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raylog.actors.gateway.rules import refused_sequences
from raylog.actors.gateway.rules.refused_sequences import RefusedSequences, Sequence
from raylog.actors.runtime.base import PeerLost
from raylog.wire.errors import ErrorCode, OutOfOrderSequenceNumber
from raylog.wire.records import NO_SEQUENCE, Record, encode_batch, read_header
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import World, run, topic_id
from tests.worlds.gateway.producing import appended, codes, produce
from tests.worlds.runtime import FakeRequest

T = topic_id("t")
OK, REFUSED = [ErrorCode.NONE], [ErrorCode.NOT_LEADER_OR_FOLLOWER]
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
LAST = (1 << 31) - 1


def sequence(first: int, epoch: int = 0, producer_id: int = 7) -> Sequence:
    return Sequence(T, 0, producer_id, epoch, first)


def batch(first: int, epoch: int = 0) -> bytes:
    records = [Record(0, 1_000_000, b"k", b"v", [])]
    return encode_batch(records, producer_id=7, producer_epoch=epoch, base_sequence=first)


def test_out_of_order_behind_a_refused_batch_is_refused_as_that_was() -> None:
    refused = RefusedSequences()
    assert refused.note(sequence(5), ErrorCode.NOT_LEADER_OR_FOLLOWER) == REFUSED[0]
    assert refused.note(sequence(6), OUT_OF_ORDER) == REFUSED[0]
    assert refused.note(sequence(6, producer_id=8), OUT_OF_ORDER) is OUT_OF_ORDER


@pytest.mark.parametrize("later", [sequence(5), sequence(6), sequence(0, epoch=1)])
def test_later_written_sequence_clears_the_refusal(later: Sequence) -> None:
    refused = RefusedSequences()
    refused.note(sequence(5), ErrorCode.NOT_ENOUGH_REPLICAS)
    refused.written(sequence(4))
    assert len(refused) == 1
    refused.written(later)
    assert len(refused) == 0


def test_the_first_of_several_refused_ones_counts() -> None:
    refused = RefusedSequences()
    for first in (5, 6, 7):
        refused.note(sequence(first), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert refused.note(sequence(6), OUT_OF_ORDER) == REFUSED[0]


def test_sequences_begin_anew_after_the_last() -> None:
    refused = RefusedSequences()
    refused.note(sequence(LAST), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert refused.note(sequence(0), OUT_OF_ORDER) == REFUSED[0]


@pytest.mark.parametrize("code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.MESSAGE_TOO_LARGE])
def test_ambiguous_and_permanent_errors_are_not_remembered(code: ErrorCode) -> None:
    refused = RefusedSequences()
    assert refused.note(sequence(5), code) is code
    assert len(refused) == 0


def test_out_of_order_is_reported_unless_it_comes_of_the_refusal() -> None:
    refused = RefusedSequences()
    assert refused.note(sequence(6), OUT_OF_ORDER) is OUT_OF_ORDER
    refused.note(sequence(5), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert refused.note(sequence(6), OUT_OF_ORDER) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refused.note(sequence(5), OUT_OF_ORDER) is OUT_OF_ORDER


def expecting(first: int) -> Callable[[FakeRequest], list[Any]]:
    """A replica that has all of the producer's batches before one, and takes them in order."""
    expected = first

    def answer(request: FakeRequest) -> list[Any]:
        nonlocal expected
        found = read_header(request.payload).base_sequence
        if found > expected:
            return [(int(OUT_OF_ORDER), f"expected {expected}")]
        expected = max(expected, found + 1)
        return appended(request)

    return answer


@in_world(run)
async def test_requests_on_their_way_when_the_leader_s_process_is_replaced(world: World) -> None:
    await world.brokers(1)
    await world.topic("t", 1)
    first = await world.route("first", (T, 0))
    client = world.client()
    client.send(produce((0, batch(5))), 9)
    first.lose()
    (await world.route("second", (T, 0))).answering = expecting(5)
    assert [codes(one) for one in client.received()] == [REFUSED]
    for sent, answer in ((6, REFUSED), (7, REFUSED), (5, OK), (6, OK), (7, OK)):
        assert codes(await client.ask(produce((0, batch(sent))), 9)) == answer


@in_world(run)
async def test_a_batch_refused_here_and_written_elsewhere(world: World) -> None:
    await world.brokers(1)
    await world.topic("t", 1)
    client = world.client()
    assert codes(await client.ask(produce((0, batch(5))), 9)) == REFUSED
    (await world.route("replica", (T, 0))).answering = expecting(9)
    assert codes(await client.ask(produce((0, batch(9))), 9)) == OK
    assert codes(await client.ask(produce((0, batch(11))), 9)) == [OUT_OF_ORDER]


@in_world(run)
async def test_out_of_order_behind_what_the_replica_refused(world: World) -> None:
    await world.brokers(1)
    await world.topic("t", 1)
    link = await world.route("replica", (T, 0))
    client = world.client()
    client.send(produce((0, batch(5))), 9)
    client.send(produce((0, batch(6))), 9)
    for failure in (PeerLost("closed"), OutOfOrderSequenceNumber("expected 5")):
        link.take().fail(failure)
    assert [codes(one) for one in client.received()] == [REFUSED, REFUSED]


@in_world(run)
async def test_producers_without_sequences_are_not_held_up(world: World) -> None:
    plain: Any = encode_batch([Record(0, 1_000_000, b"k", b"v", [])])
    await world.brokers(1)
    await world.topic("t", 1)
    client = world.client()
    assert codes(await client.ask(produce((0, plain)), 9)) == REFUSED
    assert len(client.connection.refused_sequences) == 0
    (await world.route("replica", (T, 0))).answering = appended
    assert codes(await client.ask(produce((0, plain)), 9)) == OK


@in_world(run)
async def test_a_replica_is_told_what_was_refused_before(world: World) -> None:
    await world.brokers(1)
    await world.topic("t", 1)
    client = world.client()
    assert codes(await client.ask(produce((0, batch(5))), 9)) == REFUSED
    replica = await world.route("replica", (T, 0))
    sequences: list[int] = []

    def answer(request: FakeRequest) -> list[Any]:
        sequences.extend(part[-1] for part in request.header[2])
        return appended(request)

    replica.answering = answer
    for one in (batch(6), batch(0, epoch=1), batch(5), batch(6)):
        assert codes(await client.ask(produce((0, one)), 9)) == OK
    assert sequences == [5, NO_SEQUENCE, NO_SEQUENCE, NO_SEQUENCE]


def test_no_more_than_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_sequences, "REFUSED_MAX", 3)
    refused = RefusedSequences()
    for producer in range(10):
        one = sequence(5)._replace(producer_id=producer)
        refused.note(one, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert len(refused) == 3
    newest = sequence(6)._replace(producer_id=9)
    assert refused.note(newest, OUT_OF_ORDER) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_refusal_counts_only_for_its_producer_id_and_epoch() -> None:
    refused = RefusedSequences()
    refused.note(sequence(5), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert refused.before(sequence(7)) == 5
    assert refused.before(sequence(7, epoch=1)) == NO_SEQUENCE
    assert refused.before(sequence(7, producer_id=8)) == NO_SEQUENCE
