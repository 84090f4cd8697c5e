"""Produce: checks at the gateway, one request per partition to its replica, one answer."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.actors.gateway import topic_rules as rules
from raylog.actors.gateway.handlers.produce import ANY_EPOCH
from raylog.actors.metadata.records import ConfigChanged, PartitionChanged
from raylog.actors.replica.messages import PRODUCE_IN_TRANSACTION, ProducePart, TransactionalWrite
from raylog.actors.runtime.deadlines import TICK_MS
from raylog.wire.compression import Codec, compress
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.leader_hints import LeaderIdAndEpoch, NodeEndpoint
from raylog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
)
from raylog.wire.records import (
    DECOMPRESSED_BYTES_MAX,
    Record,
    Validated,
    check_produced,
    decode_batch,
    encode_batch,
    set_max_timestamp,
    validate_records,
)
from raylog.wire.walk import Patience
from tests.support.batches import raw_batch, raw_record, sized, varint
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import World, run, topic_id
from tests.worlds.gateway.producing import appended, codes, produce
from tests.worlds.metadata import snapshot_of
from tests.worlds.runtime import FakeLink, settle
from tests.worlds.storage.logs import batch

T = topic_id("t")
NOW_MS = 1_000_000
BATCH = encode_batch([Record(0, NOW_MS, b"k", b"v", [])])
KEYLESS = encode_batch([Record(0, NOW_MS, None, b"v", [])])


def in_transaction(
    transactional_id: str | None, *partitions: tuple[int, bytes | None], by_id: bytes = bytes(16)
) -> ProduceRequest:
    request = produce(*partitions, by_id=by_id)
    request.transactional_id = transactional_id
    return request


async def served(world: World, partitions: int = 2, address: str = "replica") -> FakeLink:
    await world.brokers(1)
    await world.topic("t", partitions)
    return await world.route(address, *((T, index) for index in range(partitions)))


@pytest.mark.parametrize("version", range(3, 14))
@in_world(run)
async def test_batches_reach_their_replicas_as_they_came(world: World, *, version: int) -> None:
    link = await served(world)
    link.answering = appended
    request = produce((0, BATCH), (1, BATCH), by_id=T)
    answer = await world.client().ask(request, version)
    (asked,) = link.requests
    parts = [ProducePart(T, index, ANY_EPOCH, len(BATCH)) for index in (0, 1)]
    assert asked.header == (-1, 1_000, parts)
    assert asked.payload == BATCH + BATCH
    (topic,) = answer.responses
    assert (topic.name, topic.topic_id) == (("", T) if version >= 13 else ("t", bytes(16)))
    assert topic.partition_responses == [
        PartitionProduceResponse(
            index=index, base_offset=40 + index, log_start_offset=7 if version >= 5 else -1
        )
        for index in (0, 1)
    ]
    await world.runtime.advance(TICK_MS)
    assert world.runtime.pending_timers() == 0


@in_world(run)
async def test_last_batch_of_a_repeated_partition_counts(world: World) -> None:
    """As in Apache Kafka, which answers it once. So a request asks for no more than there is."""

    link = await served(world)
    link.answering = appended
    last = encode_batch([Record(0, 1_000_000, b"k", b"last", [])])
    request = produce(*[(0, BATCH)] * 900, (1, BATCH), (0, b"broken"))
    request.topic_data += produce((0, last)).topic_data
    answer = await world.client().ask(request, 9)
    (asked,) = link.requests
    assert asked.payload == last + BATCH
    (topic,) = answer.responses
    found = [(part.index, part.base_offset) for part in topic.partition_responses]
    assert found == [(0, 40), (1, 41)]


@in_world(run)
async def test_replicas_answer_in_any_order_and_on_their_own(world: World) -> None:
    await world.brokers(1)
    await world.topic("t", 3)
    first = await world.route("first", (T, 0), (T, 1))
    second = await world.route("second", (T, 2))
    client = world.client()
    client.send(produce((0, BATCH), (1, BATCH), (2, BATCH)), 9)
    second.take().reply([(5, 99, 0)])
    assert client.received() == []
    refused = (int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), "expected 3")
    first.take().reply([(6, -1, 0), refused])
    (answer,) = client.received()
    found = answer.responses[0].partition_responses
    assert [(part.error_code, part.base_offset) for part in found] == [
        (0, 6),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
        (0, 5),
    ]
    assert found[1].error_message == "expected 3"
    assert found[2].log_append_time_ms == 99


@in_world(run)
async def test_two_requests_of_a_connection_are_answered_in_their_order(world: World) -> None:
    link = await served(world)
    client = world.client()
    client.send(produce((0, BATCH)), 9)
    client.send(produce((1, BATCH)), 9)
    link.requests[1].reply([(2, -1, 0)])
    assert client.received() == []
    link.requests[0].reply([(1, -1, 0)])
    offsets = [
        answer.responses[0].partition_responses[0].base_offset for answer in client.received()
    ]
    assert offsets == [1, 2]


# ---- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (BATCH + BATCH, ErrorCode.INVALID_RECORD),
        (BATCH[:-1] + bytes([BATCH[-1] ^ 1]), ErrorCode.CORRUPT_MESSAGE),
        (encode_batch([Record(0, NOW_MS * 99, b"k", b"v", [])]), ErrorCode.INVALID_TIMESTAMP),
        (
            encode_batch([Record(0, NOW_MS, b"k", bytes(2_000), [])]),
            ErrorCode.MESSAGE_TOO_LARGE,
        ),
    ],
)
@in_world(run, message_max_bytes="1000")
async def test_a_batch_that_is_refused_here_reaches_no_replica(
    world: World, *, batch: bytes | None, expected: ErrorCode
) -> None:
    link = await served(world)
    link.answering = appended
    answer = await world.client().ask(produce((0, batch), (1, BATCH)), 9)
    assert codes(answer) == [expected, ErrorCode.NONE]
    refused = answer.responses[0].partition_responses[0]
    assert refused.base_offset == -1
    assert refused.error_message
    (asked,) = link.requests
    assert [part.partition for part in asked.header[2]] == [1]


@in_world(run)
async def test_a_compacted_topic_wants_keys_from_when_it_is_notified(world: World) -> None:
    link = await served(world)
    link.answering = appended
    client = world.client()
    assert codes(await client.ask(produce((0, KEYLESS)), 9)) == [ErrorCode.NONE]
    await world.apply(ConfigChanged(2, "t", "cleanup.policy", "compact"))
    assert codes(await client.ask(produce((0, KEYLESS)), 9)) == [ErrorCode.INVALID_RECORD]
    assert codes(await client.ask(produce((0, BATCH)), 9)) == [ErrorCode.NONE]


@in_world(run)
async def test_settings_may_come_with_a_snapshot(world: World) -> None:
    """A gateway that has missed a change is told all anew."""

    link = await served(world)
    link.answering = appended
    client = world.client()
    assert codes(await client.ask(produce((0, KEYLESS)), 9)) == [ErrorCode.NONE]
    setting = ConfigChanged(2, "t", "cleanup.policy", "compact")
    records = [*world.gateway.cluster.image.snapshot(), setting]
    await world.gateway.apply_metadata(*snapshot_of(1_000, records))
    assert codes(await client.ask(produce((0, KEYLESS)), 9)) == [ErrorCode.INVALID_RECORD]


def test_records_that_are_refused_are_named() -> None:
    """As Apache Kafka answers: a wrong time says more than a missing key."""
    far = NOW_MS + 10**9

    async def scenario(world: World) -> None:
        await served(world)
        await world.apply(ConfigChanged(2, "t", "cleanup.policy", "compact"))
        client = world.client()

        async def refused(*records: tuple[bytes | None, int], version: int = 9) -> Any:
            batch = [Record(i, time, key, b"v", []) for i, (key, time) in enumerate(records)]
            answer = await client.ask(produce((0, encode_batch(batch))), version)
            part = answer.responses[0].partition_responses[0]
            return part.error_code, [one.batch_index for one in part.record_errors], part

        *found, part = await refused((b"k", NOW_MS), (None, NOW_MS), (b"k", NOW_MS), (None, far))
        assert found == [ErrorCode.INVALID_RECORD, [1, 3]]
        text = "a compacted topic does not accept a record without a key"
        assert part.record_errors[0].batch_index_error_message == text
        assert part.error_message == f"record 1: {text}; record 3: {text}"
        assert (await refused((None, NOW_MS), (b"k", far)))[:2] == (
            ErrorCode.INVALID_TIMESTAMP,
            [0, 1],
        )
        assert "and 12 more" in (await refused(*[(None, NOW_MS)] * 15))[2].error_message
        old = (await refused((None, NOW_MS), version=7))[2]
        assert (old.record_errors, old.error_message) == ([], None)
        await world.apply(ConfigChanged(2, "t", "cleanup.policy", "delete"))
        assert (await refused((None, NOW_MS), (b"k", far)))[:2] == (
            ErrorCode.INVALID_TIMESTAMP,
            [1],
        )
        await world.apply(ConfigChanged(2, "t", "message.timestamp.type", "LogAppendTime"))
        await world.apply(ConfigChanged(2, "t", "cleanup.policy", "compact"))
        assert (await refused((None, far)))[:2] == (ErrorCode.INVALID_RECORD, [0])

    run(scenario)


@pytest.mark.parametrize(
    ("request_", "version", "expected"),
    [
        (produce((0, BATCH), topic="none"), 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (produce((0, BATCH), by_id=b"u" * 16), 13, ErrorCode.UNKNOWN_TOPIC_ID),
        (produce((9, BATCH)), 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (produce((-1, BATCH)), 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (produce((0, BATCH), acks=2), 9, ErrorCode.INVALID_REQUIRED_ACKS),
        (produce((0, BATCH), topic="__consumer_offsets"), 9, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
@in_world(run)
async def test_where_nothing_can_be_written(
    world: World, *, request_: ProduceRequest, version: int, expected: ErrorCode
) -> None:
    link = await served(world)
    await world.topic("__consumer_offsets")
    answer = await world.client().ask(request_, version)
    assert codes(answer) == [expected]
    assert link.requests == []


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize(
    "refusal", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
)
@in_world(run)
async def test_too_few_replicas_in_sync_are_reported(
    world: World, *, refusal: ErrorCode, version: int
) -> None:
    link = await served(world)
    link.answering = lambda _request: [(int(refusal), "2 are needed, 1 is in sync")]
    answer = await world.client().ask(produce((0, BATCH), by_id=T), version)
    assert codes(answer) == [refusal]
    (part,) = answer.responses[0].partition_responses
    assert (part.base_offset, part.log_append_time_ms) == (-1, -1)


@pytest.mark.parametrize("version", [9, 10, 13])
@pytest.mark.parametrize("follows", [False, True])
@in_world(run)
async def test_a_client_at_the_wrong_broker_is_told_the_right_one(
    world: World, *, version: int, follows: bool
) -> None:
    await world.brokers(1, 2)
    await world.topic("t")
    await world.apply(PartitionChanged(T, 0, leader=2))
    if follows:
        await world.route("follower", (T, 0), leads=False)
    answer = await world.client().ask(produce((0, BATCH), by_id=T), version)
    assert codes(answer) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    hint = answer.responses[0].partition_responses[0].current_leader
    if version >= 10:
        assert hint == LeaderIdAndEpoch(leader_id=2, leader_epoch=1)
        assert answer.node_endpoints == [
            NodeEndpoint(node_id=2, host="host2", port=9002, rack="r2")
        ]
    else:
        assert (hint, answer.node_endpoints) == (None, [])


# ---- what clients claim of their records ------------------------------------------------------


def claiming(max_timestamp: int, codec: Codec, values: list[bytes]) -> bytes:
    """Records a millisecond apart in a batch that claims another largest time."""
    records = [Record(n, NOW_MS + n, b"k", value, []) for n, value in enumerate(values)]
    batch = bytearray(encode_batch(records, codec=codec))
    set_max_timestamp(batch, max_timestamp)
    return bytes(batch)


SHORT = [b"v"] * 3
LONG = [b"v" * (n * n % 89) for n in range(3_000)]


@pytest.mark.parametrize("values", [SHORT, LONG], ids=["at once", "aside"])
@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("claim", [-1, 0, NOW_MS, NOW_MS * 99, 2**63 - 1])
@in_world(run)
async def test_the_largest_timestamp_is_computed(
    world: World, *, claim: int, codec: Codec, values: list[bytes]
) -> None:
    link = await served(world)
    link.answering = appended
    batch = claiming(claim, codec, values)
    assert codes(await world.client().ask(produce((0, batch)), 9)) == [ErrorCode.NONE]
    (asked,) = link.requests
    stored = check_produced(asked.payload)
    assert stored.max_timestamp == NOW_MS + len(values) - 1
    assert decode_batch(asked.payload) == decode_batch(batch)


@pytest.mark.parametrize("values", [SHORT, LONG], ids=["at once", "aside"])
@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("claim", [-1, NOW_MS * 99])
@in_world(run)
async def test_the_largest_timestamp_is_computed_where_the_topic_has_a_codec_of_its_own(
    world: World, *, claim: int, codec: Codec, values: list[bytes]
) -> None:
    link = await served(world)
    link.answering = appended
    await world.apply(ConfigChanged(2, "t", "compression.type", "lz4"))
    batch = claiming(claim, codec, values)
    assert codes(await world.client().ask(produce((0, batch)), 9)) == [ErrorCode.NONE]
    (asked,) = link.requests
    stored = check_produced(asked.payload)
    assert (stored.codec, stored.max_timestamp) == (Codec.LZ4, NOW_MS + len(values) - 1)
    assert decode_batch(asked.payload) == decode_batch(batch)


@pytest.mark.parametrize("codec", list(Codec))
def test_limits_hold_for_what_records_say(codec: Codec) -> None:
    """Not for what the header claims of them."""
    ahead = [Record(0, NOW_MS, b"k", b"v", []), Record(1, NOW_MS * 99, b"k", b"v", [])]
    batch = bytearray(encode_batch(ahead, codec=codec))
    set_max_timestamp(batch, NOW_MS)

    async def scenario(world: World) -> None:
        link = await served(world)
        link.answering = appended
        client = world.client()
        answer = await client.ask(produce((0, bytes(batch)), (1, bytes(batch))), 9)
        assert codes(answer) == [ErrorCode.INVALID_TIMESTAMP] * 2
        refused = answer.responses[0].partition_responses[0]
        assert [one.batch_index for one in refused.record_errors] == [1]
        await world.apply(ConfigChanged(2, "t", "message.timestamp.type", "LogAppendTime"))
        assert codes(await client.ask(produce((0, bytes(batch))), 9)) == [ErrorCode.NONE]
        assert link.requests[-1].payload == bytes(batch)

    run(scenario)


UNREADABLE = {
    "a million records": raw_batch(
        attributes=Codec.LZ4,
        body=compress(Codec.LZ4, raw_record()),
        count=10**6,
        last_offset_delta=10**6 - 1,
    ),
    "garbage": raw_batch(raw_record(), attributes=Codec.ZSTD, body=b"garbage"),
    "a cut frame": raw_batch(
        raw_record(), attributes=Codec.GZIP, body=compress(Codec.GZIP, raw_record())[:-1]
    ),
    "a key beyond the record": raw_batch(sized(b"\0\0\0" + varint(9) + b"k" + sized(b"v") + b"\0")),
    "an offset twice": raw_batch(raw_record(), raw_record()),
}


@pytest.mark.parametrize("batch", UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize("waits", [False, True])
@in_world(run)
async def test_unreadable_batch_is_refused(world: World, *, batch: bytes, waits: bool) -> None:
    link = await served(world)
    link.answering = appended
    client = world.client()
    if waits:
        client.send(produce((0, claiming(-1, Codec.LZ4, LONG))), 9)
    client.send(produce((0, batch), (1, BATCH)), 9)
    while not (answers := client.received()) or len(answers) < 1 + waits:
        await settle()
    *_, answer = answers
    assert codes(answer) == [ErrorCode.INVALID_RECORD, ErrorCode.NONE]
    assert answer.responses[0].partition_responses[0].error_message


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_decompression_bomb_is_refused(codec: Codec) -> None:
    bomb = encode_batch([Record(0, NOW_MS, b"k", bytes(DECOMPRESSED_BYTES_MAX), [])], codec=codec)

    async def scenario(world: World) -> None:
        await served(world)
        answer = await world.client().ask(produce((0, bomb)), 9)
        assert codes(answer) == [ErrorCode.MESSAGE_TOO_LARGE]

    run(scenario)


def test_large_batches_are_decompressed_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def look(*args: Any, max_bytes: int, **limits: Any) -> Validated | None:
        looks.append((max_bytes, rules._one_large.locked()))
        return validate_records(*args, max_bytes=max_bytes, **limits)

    monkeypatch.setattr(rules, "validate_records", look)
    batch = encode_batch(
        [Record(0, NOW_MS, b"k", bytes(rules.LARGE_BODY_BYTES), [])], codec=Codec.ZSTD
    )

    async def scenario(world: World) -> None:
        link = await served(world)
        link.answering = appended
        assert codes(await world.client().ask(produce((0, batch)), 9)) == [ErrorCode.NONE]

    run(scenario)
    assert looks == [
        (rules.LIGHT_BODY_BYTES_MAX, False),
        (rules.LARGE_BODY_BYTES, False),
        (DECOMPRESSED_BYTES_MAX, True),
    ]
    assert not rules._one_large.locked()


def test_a_request_of_many_slow_batches_does_not_hold_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is quick, or given up soon; what all of them take together is limited, too."""
    spent = []

    def look(*args: Any, patience: Patience | None = None, **limits: Any) -> Validated | None:
        before = 0 if patience is None else patience.left
        try:
            return validate_records(*args, patience=patience, **limits)
        finally:
            if patience is not None:
                spent.append(before - max(patience.left, 0))

    monkeypatch.setattr(rules, "validate_records", look)
    slow = encode_batch([Record(0, NOW_MS, b"k", b"v", [("", None)] * 490)], codec=Codec.ZSTD)
    endless = encode_batch([Record(0, NOW_MS, b"k", b"v", [("", None)] * 20_000)])
    count = 40

    async def scenario(world: World) -> None:
        link = await served(world, count)
        link.answering = appended
        batches = [(n, endless if n % 4 == 0 else slow) for n in range(count)]
        client = world.client()
        client.send(produce(*batches), 9)
        for _ in range(count):
            await settle()
        (answer,) = client.received()
        assert codes(answer) == [ErrorCode.NONE] * count

    run(scenario)
    assert max(spent) <= rules.LIGHT_RECORDS_MAX
    assert sum(spent) <= rules.LIGHT_REQUEST_RECORDS_MAX + rules.LIGHT_RECORDS_MAX


# ---- waits, losses, acks=0 -------------------------------------------------------------------


@in_world(run)
async def test_a_lost_replica_is_no_leader_and_the_next_one_is_found(world: World) -> None:
    link = await served(world)
    client = world.client()
    other = await world.route("other", (T, 1))
    other.answering = appended
    client.send(produce((0, BATCH), (1, BATCH)), 9)
    link.lose()
    (answer,) = client.received()
    assert codes(answer) == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]
    gone = await client.ask(produce((0, BATCH)), 9)
    assert codes(gone) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    successor = await world.route("successor", (T, 0))
    successor.answering = appended
    assert codes(await client.ask(produce((0, BATCH)), 9)) == [ErrorCode.NONE]


@in_world(run)
async def test_acks_0_is_not_answered_and_does_not_hold_up_what_follows(world: World) -> None:
    link = await served(world)
    link.answering = appended
    client = world.client()
    client.send(produce((0, BATCH), acks=0), 9)
    assert client.transport.written == b""
    client.skip_answer()
    assert codes(await client.ask(produce((0, BATCH)), 9)) == [ErrorCode.NONE]
    assert [one.header[0] for one in link.requests] == [0, -1]


@in_world(run)
async def test_acks_0_that_fails_closes_the_connection(world: World) -> None:
    await served(world)
    client = world.client()
    client.send(produce((9, BATCH), acks=0), 9)
    assert client.transport.closed
    assert client.transport.written == b""


@in_world(run)
async def test_a_client_that_left_is_not_answered(world: World) -> None:
    link = await served(world)
    client = world.client()
    client.send(produce((0, BATCH)), 9)
    client.transport.close()
    client.connection.connection_lost(None)
    link.take().reply([(3, -1, 0)])
    assert client.transport.written == b""


@in_world(run)
async def test_an_empty_request_is_answered_at_once(world: World) -> None:
    answer = await world.client().ask(ProduceRequest(acks=1, timeout_ms=10), 9)
    assert answer.responses == []


# ---- transactions ----------------------------------------------------------------------------


def transactional(producer_id: int = 5, epoch: int = 0) -> bytes:
    return bytes(
        batch(producer_id=producer_id, producer_epoch=epoch, transactional=True, timestamp=NOW_MS)
    )


@pytest.mark.parametrize(
    ("version", "adds", "knows_abortable"),
    [(9, False, False), (11, False, True), (12, True, True), (13, True, True)],
)
@in_world(run)
async def test_transactional_batches_say_whose_they_are(
    world: World, *, version: int, adds: bool, knows_abortable: bool
) -> None:
    link = await served(world)
    client = world.client()
    client.send(in_transaction("x", (0, transactional()), (1, BATCH), by_id=T), version)
    asked = link.take(PRODUCE_IN_TRANSACTION)
    assert asked.header[3] == TransactionalWrite("x", adds, knows_abortable)
    assert [part.partition for part in asked.header[2]] == [0, 1]
    asked.reply([(1, -1, 0), (2, -1, 0)])
    (answer,) = client.received()
    assert codes(answer) == [ErrorCode.NONE] * 2


@in_world(run)
async def test_producer_0_is_a_producer(world: World) -> None:
    link = await served(world)
    client = world.client()
    client.send(in_transaction("x", (0, transactional(0))), 12)
    link.take(PRODUCE_IN_TRANSACTION).reply([(1, -1, 0)])
    assert codes(client.received()[0]) == [ErrorCode.NONE]
    answer = await client.ask(in_transaction("x", (0, transactional(0)), (1, transactional())), 12)
    assert codes(answer) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2


@in_world(run)
async def test_a_batch_without_a_producer_makes_no_request_one_of_two_producers(
    world: World,
) -> None:
    link = await served(world)
    client = world.client()
    client.send(in_transaction("x", (0, transactional(-1, -1)), (1, transactional())), 12)
    assert [part.partition for part in link.take(PRODUCE_IN_TRANSACTION).header[2]] == [0, 1]


@in_world(run)
async def test_an_id_alone_makes_no_transaction(world: World) -> None:
    link = await served(world)
    link.answering = appended
    answer = await world.client().ask(in_transaction("x", (0, BATCH)), 12)
    assert codes(answer) == [ErrorCode.NONE]


@pytest.mark.parametrize("version", [9, 12])
@pytest.mark.parametrize(
    ("transactional_id", "second", "code"),
    [
        (None, BATCH, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ("x", transactional(6), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("x", transactional(5, 1), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
@in_world(run)
async def test_a_request_of_no_one_transaction_writes_nothing(
    world: World, *, version: int, transactional_id: str | None, second: bytes, code: ErrorCode
) -> None:
    """All of it is refused, as by Apache Kafka."""

    link = await served(world)
    request = in_transaction(transactional_id, (0, transactional()), (1, second))
    answer = await world.client().ask(request, version)
    assert codes(answer) == [code] * 2
    assert not link.requests
