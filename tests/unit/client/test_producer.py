"""Sending, retrying, reporting."""

import random
from dataclasses import dataclass

import pytest

from raylog.client.errors import BufferExhausted, ConnectionLost, DeliveryFailed
from raylog.client.interceptors import RecordMetadata
from raylog.client.io import run_blocking
from raylog.client.producer.accumulator import Delivery
from raylog.client.producer.core import ProducerCore
from raylog.client.settings import ProducerSettings
from raylog.wire.api import ApiKey
from raylog.wire.compression import Codec
from raylog.wire.errors import (
    ErrorCode,
    MessageTooLarge,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from raylog.wire.messages.init_producer_id import InitProducerIdResponse
from raylog.wire.messages.leader_hints import LeaderIdAndEpoch
from raylog.wire.messages.metadata import MetadataRequest, MetadataResponseTopic
from raylog.wire.messages.produce import ProduceRequest
from raylog.wire.record import Record, encode_records
from raylog.wire.records import read_header
from tests.worlds.client.cluster import LOST, NOTHING, SILENT, FakeCluster, FakeIo, core_of
from tests.worlds.client.producer_partitions import Answer, Logs, refused


def refusing(code: ErrorCode) -> Answer:
    return lambda broker, topic, partition, batch: refused(partition, code)


def passing(broker: int, topic: str, partition: int, batch: bytes) -> None:
    return None


def lost(broker: int, topic: str, partition: int, batch: bytes) -> object:
    return LOST


@dataclass
class Rig:
    """A producer on a fake cluster."""

    logs: Logs
    producer: ProducerCore
    deliveries: list[Delivery]

    def send(self, count: int, partition: int = 0, topic: str = "t") -> None:
        """Send numbered records, each batch as soon as it is there."""
        for number in range(count):
            self.producer.append(topic, b"%d" % number, partition=partition)
            run_blocking(self.producer.step(everything=True))

    def flush(self) -> None:
        run_blocking(self.producer.flush())


def rig(
    settings: ProducerSettings | None = None, topics: dict[str, dict[int, int]] | None = None
) -> Rig:
    cluster = FakeCluster(2, topics or {"t": {0: 1, 1: 2}})
    logs = Logs(cluster)
    deliveries: list[Delivery] = []
    producer = ProducerCore(core_of(cluster), settings or ProducerSettings(), deliveries.append)
    for topic in cluster.topics:
        run_blocking(producer.prepare(topic))
    return Rig(logs, producer, deliveries)


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_unsent_batches_do_not_expire_while_the_loop_was_blocked() -> None:
    """As of a process that was stopped, or whose event loop was busy, for ever so long."""
    test = rig(ProducerSettings(delivery_timeout_ms=1_000, batch_bytes=100, in_flight_max=1))
    for number in range(20):  # several batches, of which one leaves with each step
        test.producer.append("t", b"%d" % number, partition=0)
    io = test.producer._core.io
    run_blocking(io.pause(5_000))
    test.flush()
    assert test.logs.values == {("t", 0): numbers(20)}
    assert not [one for one in test.deliveries if one.failure]


def test_batches_of_a_partition_without_leader_expire_together() -> None:
    test = rig(
        ProducerSettings(delivery_timeout_ms=1_000, batch_bytes=100), topics={"t": {0: -1, 1: 2}}
    )
    began_ms = test.producer._core.io.now_ms()
    for number in range(20):
        test.producer.append("t", b"%d" % number, partition=0)
    test.producer.append("t", b"x", partition=1)
    with pytest.raises(DeliveryFailed, match="20 records"):
        test.flush()
    assert test.logs.values == {("t", 1): [b"x"]}
    failures = [str(one.failure) for one in test.deliveries if one.failure]
    assert len(failures) > 1
    assert all(one.startswith("not acknowledged in 1000 ms, sent 0 times") for one in failures)
    assert any("t-0 has no leader" in one for one in failures)
    assert test.producer._core.io.now_ms() < began_ms + 1_200


def test_batches_expire_while_no_producer_id_is_to_be_had() -> None:
    test = rig(ProducerSettings(delivery_timeout_ms=1_000))
    refuse = InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    test.logs.cluster.handlers[ApiKey.INIT_PRODUCER_ID] = lambda *_: refuse
    test.producer.append("t", b"x", partition=0)
    with pytest.raises(DeliveryFailed, match="not acknowledged in 1000 ms, sent 0 times"):
        test.flush()


def test_a_callback_that_raises_spoils_nothing() -> None:
    test = rig()

    def raises(delivery: Delivery) -> None:
        raise ValueError(delivery)

    test.producer.reports.on_delivery = raises
    test.send(3)
    test.flush()
    assert test.producer.delivered_count == 3


def test_records_arrive_in_order_with_reports() -> None:
    test = rig()
    test.send(10)
    test.flush()
    assert test.logs.values == {("t", 0): numbers(10)}
    assert sum(delivery.record_count for delivery in test.deliveries) == 10
    assert test.deliveries[0] == Delivery("t", 0, 0, 1)
    assert test.producer.delivered_count == 10


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("newest", [3, 8, 12, 13])
def test_every_codec_and_old_brokers(codec: Codec, newest: int) -> None:
    test = rig(ProducerSettings(codec=codec))
    test.logs.cluster.newest[ApiKey.PRODUCE] = newest
    test.send(3)
    test.flush()
    assert test.logs.values == {("t", 0): numbers(3)}
    assert (ApiKey.PRODUCE, newest) in test.logs.cluster.versions


def test_requests_go_to_leaders_with_one_batch_a_partition() -> None:
    test = rig(topics={"t": {0: 1, 1: 2, 2: 1}})
    for partition in range(3):
        test.producer.append("t", b"v", partition=partition)
    test.flush()
    sent = [
        (broker, [data.index for data in request.topic_data[0].partition_data])
        for broker, request in test.logs.cluster.seen
        if isinstance(request, ProduceRequest)
    ]
    assert sorted(sent) == [(1, [0, 2]), (2, [1])]


def test_a_moved_leader_gets_the_batches_in_order() -> None:
    test = rig()

    def move(broker: int, topic: str, partition: int, batch: bytes) -> object:
        test.logs.cluster.topics["t"][0] = 2
        test.logs.cluster.epochs["t"] = 4
        return refused(
            0,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=4),
        )

    test.logs.refuse = [passing, move]
    test.send(5)
    test.flush()
    assert test.logs.values == {("t", 0): numbers(5)}


def test_a_lost_connection_leaves_no_duplicate() -> None:
    test = rig()

    def written_but_lost(broker: int, topic: str, partition: int, batch: bytes) -> object:
        test.logs.write(topic, partition, batch)
        return LOST

    test.logs.refuse = [passing, written_but_lost]
    test.send(6)
    test.flush()
    assert test.logs.values == {("t", 0): numbers(6)}
    assert test.logs.producer_ids == 1


def test_a_refusal_for_now_keeps_later_batches_behind_it() -> None:
    test = rig()
    test.logs.refuse = [refusing(ErrorCode.NOT_ENOUGH_REPLICAS)]
    test.send(5)
    test.flush()
    assert test.logs.values == {("t", 0): numbers(5)}


def test_a_refusal_for_good_fails_its_batch_and_those_behind_it_arrive() -> None:
    test = rig()
    test.logs.refuse = [passing, refusing(ErrorCode.MESSAGE_TOO_LARGE)]
    test.send(1)
    test.flush()
    for number in range(1, 5):
        test.producer.append("t", b"%d" % number, partition=0)
        run_blocking(test.producer.step(everything=True))
    with pytest.raises(DeliveryFailed, match=r"1 records .* t-0: MESSAGE_TOO_LARGE"):
        test.flush()
    assert test.logs.values == {("t", 0): [b"0", b"2", b"3", b"4"]}
    epochs = {key[3] for key in test.logs.expected}
    assert epochs == {0, 1}, "the gap in the sequence calls for a new epoch"
    assert test.logs.producer_ids == 1
    assert [delivery.base_offset for delivery in test.deliveries if delivery.failure] == [-1]
    test.flush()


def test_a_batch_that_was_given_up_and_comes_late_is_refused() -> None:
    test = rig(ProducerSettings(retries=1))
    late: list[bytes] = []

    def on_its_way(broker: int, topic: str, partition: int, batch: bytes) -> object:
        late.append(batch)
        return LOST

    test.send(1)
    test.flush()
    test.logs.refuse = [on_its_way, on_its_way]
    test.send(1)
    with pytest.raises(DeliveryFailed):
        test.flush()
    test.send(1)
    test.flush()
    answer = test.logs.write("t", 0, late[0])
    assert answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert test.logs.producer_ids == 1


def test_a_batch_that_fails_as_it_is_sent_leaves_the_others_their_turn() -> None:
    """Two brokers get requests in one step, and what one of them does not get fails for good."""
    test = rig(ProducerSettings(retries=1))
    test.send(1, partition=0)
    test.send(1, partition=1)
    test.flush()
    test.logs.cluster.down.add(1)
    test.producer._core._channels[1].end(ConnectionLost("the broker ended"))
    test.send(1, partition=0)
    run_blocking(test.producer._core.io.pause(1_000))
    test.producer.append("t", b"1", partition=1)
    with pytest.raises(DeliveryFailed, match=r"1 records .* t-0"):
        test.flush()
    assert test.logs.values["t", 1] == numbers(2)


def test_a_producer_whose_epochs_are_used_up_gets_another_id() -> None:
    test = rig()
    handlers = test.logs.cluster.handlers
    handlers[ApiKey.INIT_PRODUCER_ID] = lambda *_: InitProducerIdResponse(
        producer_id=7, producer_epoch=32_767
    )
    test.send(1)
    test.flush()
    handlers[ApiKey.INIT_PRODUCER_ID] = lambda *_: InitProducerIdResponse(
        producer_id=8, producer_epoch=0
    )
    test.logs.refuse = [refusing(ErrorCode.MESSAGE_TOO_LARGE)]
    test.send(1)
    with pytest.raises(DeliveryFailed):
        test.flush()
    test.send(1)
    test.flush()
    assert {key[2:] for key in test.logs.expected} == {(7, 32_767), (8, 0)}


def test_delivery_fails_after_the_delivery_timeout() -> None:
    test = rig(ProducerSettings(delivery_timeout_ms=5_000))
    test.logs.cluster.topics["t"][0] = -1
    test.logs.refuse = [refusing(ErrorCode.NOT_LEADER_OR_FOLLOWER)] * 50
    test.producer.append("t", b"v", partition=0)
    with pytest.raises(DeliveryFailed, match=r"not acknowledged in 5000 ms|NOT_LEADER"):
        test.flush()
    assert test.logs.values == {}


def test_a_batch_in_flight_fails_when_its_time_is_over() -> None:
    """As in Kafka's producer (KIP-91); what its broker answers later is not looked at."""
    test = rig(ProducerSettings(delivery_timeout_ms=5_000))
    io = test.producer._core.io
    assert isinstance(io, FakeIo)
    connection = None

    def late(broker: int, topic: str, partition: int, batch: bytes) -> object:
        nonlocal connection
        connection = test.producer._core._channels[1].connection
        test.logs.write(topic, partition, batch)
        return SILENT

    test.logs.refuse = [passing, late]
    test.send(1)
    test.flush()
    began_ms = io.now_ms()
    test.send(1)
    with pytest.raises(DeliveryFailed, match="not acknowledged in 5000 ms, sent 1 times"):
        test.flush()
    assert io.now_ms() - began_ms == pytest.approx(5_000, abs=10)
    assert connection is not None
    assert connection.pending, "its answer is still awaited"
    connection.end(ConnectionLost("gone"))
    test.send(1)
    test.flush()
    assert test.logs.values == {("t", 0): [b"0", b"0", b"0"]}
    assert {key[3] for key in test.logs.expected} == {0, 1}
    assert test.producer._accumulator.held_bytes == 0


def test_batch_left_alone_for_long_still_gets_its_retries() -> None:
    test = rig(ProducerSettings(delivery_timeout_ms=1_000))
    test.send(1)
    test.flush()
    test.producer.append("t", b"late", partition=0)
    run_blocking(test.producer._core.io.pause(5_000))
    test.logs.refuse = [refusing(ErrorCode.NOT_LEADER_OR_FOLLOWER)] * 2
    test.flush()
    assert test.logs.values == {("t", 0): [b"0", b"late"]}
    test.producer.append("t", b"later", partition=0)
    run_blocking(test.producer._core.io.pause(5_000))
    began_ms = test.producer._core.io.now_ms()
    test.logs.refuse = [refusing(ErrorCode.NOT_LEADER_OR_FOLLOWER)] * 100
    with pytest.raises(DeliveryFailed):
        test.flush()
    assert test.producer._core.io.now_ms() - began_ms == pytest.approx(1_000, abs=100)


def test_a_failure_in_one_partition_costs_the_others_nothing() -> None:
    """Sent again they keep their sequence numbers, so that what was written is recognized."""
    test = rig(topics={"t": {0: 1, 1: 2, 2: 2}})

    def written_but_lost(broker: int, topic: str, partition: int, batch: bytes) -> object:
        test.logs.write(topic, partition, batch)
        return LOST

    for partition in range(3):
        test.send(1, partition)
    test.flush()
    test.logs.refuse = [
        refusing(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        passing,
        written_but_lost,
        passing,
    ]
    for partition in (1, 2):  # one of them is refused and sent again, then its answer is lost
        test.producer.append("t", b"1", partition=partition)
    run_blocking(test.producer.step(everything=True))
    run_blocking(test.producer._core.io.pause(20))
    run_blocking(test.producer.step(everything=True))
    test.logs.refuse.insert(0, refusing(ErrorCode.MESSAGE_TOO_LARGE))
    test.producer.append("t", b"too large", partition=0)
    run_blocking(test.producer.step(everything=True))
    with pytest.raises(DeliveryFailed, match="1 records were not delivered; the first to t-0"):
        test.flush()
    test.send(1, 0)
    test.flush()
    assert test.logs.values == {("t", n): numbers(2) if n else [b"0", b"0"] for n in range(3)}


def test_a_batch_that_its_old_leader_never_answers_is_written_once() -> None:
    """It was sent again, under other sequence numbers, after the new leader had forgotten it."""
    test = rig()

    def written_and_moved(broker: int, topic: str, partition: int, batch: bytes) -> object:
        test.logs.write(topic, partition, batch)
        test.logs.cluster.topics["t"][0] = 2
        test.logs.cluster.epochs["t"] = 4
        return NOTHING

    test.logs.refuse = [passing, written_and_moved]
    test.send(2)
    run_blocking(test.producer._core.refresh(["t"]))
    for number in range(2, 20):
        test.producer.append("t", b"%d" % number, partition=0)
        run_blocking(test.producer._core.io.pause(100))
        run_blocking(test.producer.step(everything=True))
    test.flush()
    assert test.logs.values == {("t", 0): numbers(20)}


def test_a_batch_is_sent_again_as_often_as_was_said() -> None:
    test = rig(ProducerSettings(retries=2))
    test.logs.refuse = [refusing(ErrorCode.NOT_ENOUGH_REPLICAS)] * 3
    test.send(1)
    with pytest.raises(DeliveryFailed, match="NOT_ENOUGH_REPLICAS"):
        test.flush()
    assert len(test.logs.cluster.requests(ProduceRequest)) == 3


def test_acks_0_waits_for_nobody() -> None:
    test = rig(ProducerSettings(acks=0, idempotent=False))
    test.send(4)
    test.flush()
    assert test.logs.values == {("t", 0): numbers(4)}
    assert {delivery.base_offset for delivery in test.deliveries} == {-1}


def test_no_more_requests_are_in_flight_than_allowed() -> None:
    test = rig(ProducerSettings(in_flight_max=2))
    test.send(1)
    test.flush()
    before = len(test.logs.cluster.requests(ProduceRequest))
    core = test.producer._core
    for number in range(5):
        test.producer.append("t", b"%d" % number, partition=0)
        now = core.io.now_ms()
        run_blocking(test.producer.step(everything=True))
        assert core.io.now_ms() == now, "a step never waits"
    assert len(test.logs.cluster.requests(ProduceRequest)) - before == 2
    test.flush()
    assert test.logs.values == {("t", 0): [b"0", *numbers(5)]}


def is_full(test: Rig) -> bool:
    return test.producer.is_full


def test_a_full_buffer_makes_room_or_says_why_not() -> None:
    settings = ProducerSettings(batch_bytes=1000, buffer_bytes=3000, max_block_ms=2_000)
    test = rig(settings)
    while not is_full(test):
        test.producer.append("t", b"x" * 500, partition=0)
    run_blocking(test.producer.make_room())
    assert not is_full(test)
    test.flush()
    test.logs.cluster.handlers[ApiKey.PRODUCE] = lambda *_: NOTHING
    while not is_full(test):
        test.producer.append("t", b"x" * 500, partition=0)
    with pytest.raises(BufferExhausted, match=r"unacknowledged for 2000 ms: is a broker down\?"):
        run_blocking(test.producer.make_room())
    assert test.producer.refusal is None


def test_full_buffer_error_states_why_batches_are_retried() -> None:
    settings = ProducerSettings(batch_bytes=1000, buffer_bytes=3000, max_block_ms=2_000)
    test = rig(settings)
    test.logs.cluster.handlers[ApiKey.PRODUCE] = lambda *_: LOST
    while not is_full(test):
        test.producer.append("t", b"x" * 500, partition=0)
    with pytest.raises(BufferExhausted, match=r"for 2000 ms: the last attempt failed: \w+"):
        run_blocking(test.producer.make_room())


def test_an_acknowledgement_ends_what_was_refused() -> None:
    test = rig(ProducerSettings())
    test.logs.refuse = [refusing(ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    test.send(1)
    test.flush()
    assert test.producer.refusal is None


def test_keys_choose_partitions_and_keyless_records_stick_until_a_batch_is_full() -> None:
    test = rig(ProducerSettings(batch_bytes=1000))
    test.producer._turns._chance = random.Random(1).random
    for number in range(40):
        test.producer.append("t", b"x" * 100, b"key")
        test.producer.append("t", b"y%d" % number + b" " * 98)
    test.flush()
    keyed = [key for key, log in test.logs.values.items() if b"x" * 100 in log]
    assert len(keyed) == 1
    other = [value for value in test.logs.values["t", 1 - keyed[0][1]] if value != b"x" * 100]
    assert 5 < len(other) < 35, "the keyless ones went to both partitions"


def test_unknown_topics_and_partitions_are_refused_at_once() -> None:
    test = rig()
    with pytest.raises(UnknownTopicOrPartition, match="'u'"):
        test.producer.append("u", b"v")
    with pytest.raises(UnknownTopicOrPartition, match="below 2, found 5"):
        test.producer.append("t", b"v", partition=5)


def test_preparing_waits_for_a_topic_that_is_being_created() -> None:
    test = rig()
    answers = test.logs.cluster.metadata
    asked = []

    def metadata(broker: int, request: object) -> object:
        asked.append(request)
        if len(asked) == 3:
            test.logs.cluster.topics["new"] = {0: 1}
        return answers(request)  # type: ignore[arg-type]  # a MetadataRequest

    test.logs.cluster.handlers[ApiKey.METADATA] = metadata
    run_blocking(test.producer.prepare("new"))
    assert len(asked) == 3
    assert all(request.allow_auto_topic_creation for request in asked)  # type: ignore[attr-defined]  # a MetadataRequest


@pytest.mark.parametrize("partition", [0, None])
def test_a_topic_that_was_refused_is_asked_for_again(partition: int | None) -> None:
    """A program may get the right to a topic while it runs."""
    cluster = FakeCluster(1, {"t": {0: 1}})
    refused = [True]

    def metadata(_: int, request: object) -> object:
        assert isinstance(request, MetadataRequest)
        response = cluster.metadata(request)
        if refused[0]:
            response.topics[0] = MetadataResponseTopic(
                error_code=int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), name="t"
            )
        return response

    cluster.handlers[ApiKey.METADATA] = metadata
    producer = ProducerCore(core_of(cluster), ProducerSettings())
    with pytest.raises(TopicAuthorizationFailed):
        run_blocking(producer.prepare("t"))
    with pytest.raises(UnknownTopicOrPartition):  # what has `prepare` called
        producer.append("t", b"v", partition=partition)
    refused[0] = False
    run_blocking(producer.prepare("t"))
    producer.append("t", b"v", partition=partition)


def body_of(values: list[bytes], first_ms: int) -> bytes:
    records = [Record(0, first_ms + delta, None, value, []) for delta, value in enumerate(values)]
    return encode_records(records, range(len(records)), first_ms)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_whole_batch_is_sent_like_others_and_in_its_place(codec: Codec) -> None:
    test = rig(ProducerSettings(codec=codec))
    deliveries: list[tuple[RecordMetadata, Exception | None]] = []
    producer = test.producer
    producer.append("t", b"0", partition=0)
    body = body_of([b"1", b"2", b"3"], 5_000)
    assert producer.append_batch(
        "t", 0, body, 3, 5_000, 5_002, lambda *ended: deliveries.append(ended)
    )
    producer.append("t", b"4", partition=0)
    test.logs.refuse = [passing, refusing(ErrorCode.NOT_ENOUGH_REPLICAS)]
    test.flush()
    assert test.logs.values == {("t", 0): numbers(5)}
    assert deliveries == [(RecordMetadata("t", 0, 3, 5_002), None)]
    assert producer.is_idle
    assert producer.statistics().buffer_bytes == 0
    assert producer.statistics().retries == 1


def test_a_batch_that_is_too_large_for_a_broker_goes_out_in_parts() -> None:
    """As in Kafka's producer; each record's end is told once, with its own offset."""
    test = rig()
    acknowledged: dict[int, RecordMetadata] = {}
    for number in range(5):
        test.producer.append(
            "t",
            b"%d" % number,
            partition=0,
            timestamp_ms=number,
            listener=lambda metadata, failure: acknowledged.update(
                {metadata.timestamp_ms: metadata}
            ),
        )
    body = body_of([b"5", b"6", b"7"], 5)
    test.producer.append_batch("t", 0, body, 3, 5, 7)

    def too_large(broker: int, topic: str, partition: int, batch: bytes) -> object:
        if read_header(batch).record_count > 1:
            return refused(partition, ErrorCode.MESSAGE_TOO_LARGE)
        return None

    test.logs.refuse = [too_large] * 100
    test.flush()
    assert test.logs.values == {("t", 0): numbers(8)}
    assert {time: at.offset for time, at in acknowledged.items()} == {n: n for n in range(5)}
    assert test.logs.producer_ids == 1, "sequences go with the records"
    assert test.producer.statistics().buffer_bytes == 0
    assert test.producer.statistics().splits == 4 + 2


def test_one_record_that_is_too_large_for_a_broker_fails_alone() -> None:
    test = rig()
    failures: list[Exception | None] = []

    def listener(metadata: RecordMetadata, failure: Exception | None) -> None:
        failures.append(failure)

    for value in (b"0", b"x" * 1_000, b"1"):
        test.producer.append("t", value, partition=0, listener=listener)

    def too_large(broker: int, topic: str, partition: int, batch: bytes) -> object:
        return refused(partition, ErrorCode.MESSAGE_TOO_LARGE) if len(batch) > 1_000 else None

    test.logs.refuse = [too_large] * 100
    test.flush()  # whoever listens is not told again
    assert sorted(test.logs.values["t", 0]) == [b"0", b"1"]
    assert [type(one) for one in failures].count(MessageTooLarge) == 1
    assert len(failures) == 3
