"""Recorders of real clients, against the embedded broker and librdkafka's mock."""

from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from time import monotonic, sleep

import pytest
from confluent_kafka import KafkaError, KafkaException

from raylog.client import BlockingClient, NewTopic, ProducerSettings
from raylog.testing import EmbeddedBroker
from tests.checker import confluent, raylog_client
from tests.checker.anomalies import Kind, Verdict
from tests.checker.check import check
from tests.checker.history import History, load, operations_in
from tests.checker.operations import (
    Action,
    Begin,
    Change,
    End,
    Outcome,
    Partition,
    Poll,
    Rebalance,
    Send,
    Subscribe,
)
from tests.checker.recorder import Recorder
from tests.checker.workload import Plan, Workload

TOPIC = "recorded"
PARTITIONS: list[Partition] = [(TOPIC, 0), (TOPIC, 1)]
TIMEOUT_S = 30.0
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    with Recorder(tmp_path / "history.jsonl") as made:
        yield made


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings=SETTINGS) as started:
        with BlockingClient(started.bootstrap) as client:
            client.create_topics([NewTopic(TOPIC, len(PARTITIONS))])
        yield started


def checked(recorder: Recorder) -> tuple[History, Verdict]:
    recorder.flush()
    history = load([recorder.path])
    return history, check(history)


def until_read(
    consumer: confluent.RecordingConsumer | raylog_client.RecordingConsumer, count: int
) -> None:
    deadline = monotonic() + TIMEOUT_S
    while count > 0:
        count -= consumer.poll()
        assert monotonic() < deadline, f"{count} records are missing"


def test_operations_of_many_threads_are_whole_lines(recorder: Recorder) -> None:
    def work(number: int) -> None:
        for place in range(1_000):
            now_ns = recorder.now_ns()
            value = f"{number}-{place}"
            recorder.add(Send(f"p{number}", (TOPIC, 0), value, now_ns, now_ns, Outcome.UNKNOWN))

    threads = [Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    history, verdict = checked(recorder)
    assert len(history.sends) == 4_000
    assert len({send.invoked_ns for send in history.sends}) == 4_000, "no time is given twice"
    assert verdict.valid


def test_lines_reach_the_file_while_it_is_recorded(recorder: Recorder) -> None:
    for number in range(1_000):
        recorder.add(Send("p", (TOPIC, 0), str(number), 1, 2, Outcome.UNKNOWN))
    assert len(list(operations_in([recorder.path]))) == 1_000


def test_confluent_clients_are_recorded(recorder: Recorder, broker: EmbeddedBroker) -> None:
    bootstrap = {"bootstrap.servers": broker.bootstrap}
    producer = confluent.RecordingProducer(recorder, "writer", bootstrap, record_bytes=100)
    for number in range(100):
        assert producer.send(PARTITIONS[number % 2], f"v{number}", key=f"k{number}")
    assert producer.flush(TIMEOUT_S) == len(producer) == 0
    producer.close()
    reader = confluent.RecordingConsumer(recorder, "reader", bootstrap)
    reader.assign(dict.fromkeys(PARTITIONS, 0))
    until_read(reader, 100)
    reader.seek(PARTITIONS[0], 40)
    until_read(reader, 10)
    assert reader.failures == []
    reader.read_to_the_end(PARTITIONS, TIMEOUT_S)
    reader.close()
    history, verdict = checked(recorder)
    assert (verdict.valid, verdict.counts.acknowledged) == (True, 100), verdict.anomalies
    assert verdict.counts.records_polled == 210
    assert verdict.counts.partitions_read_to_the_end == 2
    assert sorted(send.offset or 0 for send in history.sends) == sorted([*range(50), *range(50)])


def test_members_of_a_group_record_their_rebalances(
    recorder: Recorder, broker: EmbeddedBroker
) -> None:
    bootstrap = {"bootstrap.servers": broker.bootstrap}
    producer = confluent.RecordingProducer(recorder, "writer", bootstrap)
    for number in range(20):
        producer.send(PARTITIONS[number % 2], f"v{number}")
    producer.close(TIMEOUT_S)
    for life in range(2):
        settings = bootstrap | {"group.id": "g", "auto.offset.reset": "earliest"}
        member = confluent.RecordingConsumer(recorder, f"member-{life}", settings)
        member.subscribe([TOPIC])
        until_read(member, 20 if life == 0 else 0)
        member.commit()
        member.close()
    recorder.flush()
    events = [
        (type(one), getattr(one, "change", None))
        for one in operations_in([recorder.path])
        if isinstance(one, Rebalance | Subscribe) and one.process == "member-0"
    ]
    assert events == [
        (Subscribe, None),
        (Rebalance, Change.ASSIGNED),
        (Rebalance, Change.REVOKED),
    ]
    assert checked(recorder)[1].valid


def test_our_own_clients_are_recorded(recorder: Recorder, broker: EmbeddedBroker) -> None:
    with BlockingClient(broker.bootstrap) as client:
        small = ProducerSettings(batch_bytes=4_000)
        producer = raylog_client.RecordingProducer(
            recorder, "writer", client, small, record_bytes=100
        )
        for number in range(200):
            producer.send(PARTITIONS[number % 2], f"v{number}")
        producer.flush()
        producer.close()
        reader = raylog_client.RecordingConsumer(recorder, "reader", client)
        reader.assign(dict.fromkeys(PARTITIONS, 0))
        until_read(reader, 200)
        reader.seek(PARTITIONS[1], 90)
        until_read(reader, 10)
        reader.read_to_the_end(PARTITIONS, TIMEOUT_S)
        reader.close()
    verdict = checked(recorder)[1]
    assert (verdict.valid, verdict.counts.acknowledged) == (True, 200), verdict.anomalies
    assert verdict.counts.records_polled == 410


def test_records_that_our_own_client_could_not_deliver_are_recorded(
    recorder: Recorder, broker: EmbeddedBroker
) -> None:
    with BlockingClient(broker.bootstrap) as client:
        producer = raylog_client.RecordingProducer(recorder, "writer", client)
        huge = raylog_client.RecordingProducer(
            recorder,
            "huge",
            client,
            ProducerSettings(batch_bytes=8_000_000),
            record_bytes=2_000_000,
        )
        huge.send(PARTITIONS[0], "too large")
        huge.flush()
        producer.send(PARTITIONS[0], "never flushed")
        producer.close()
        huge.close()
    history, verdict = checked(recorder)
    outcomes = {send.value: send.outcome for send in history.sends}
    assert outcomes == {"too large": Outcome.FAILED, "never flushed": Outcome.UNKNOWN}
    assert verdict.valid


def test_unanswered_sends_of_a_closed_producer_are_unknown(
    recorder: Recorder, broker: EmbeddedBroker
) -> None:
    producer = confluent.RecordingProducer(
        recorder, "writer", {"bootstrap.servers": broker.bootstrap, "log_level": "0"}
    )
    producer.send(PARTITIONS[0], "heard of")
    producer.flush(TIMEOUT_S)
    broker.stop()
    producer.send(PARTITIONS[0], "not heard of")
    producer.close(0.1)
    history, verdict = checked(recorder)
    outcomes = {send.value: send.outcome for send in history.sends}
    assert outcomes == {"heard of": Outcome.OK, "not heard of": Outcome.UNKNOWN}
    assert (verdict.valid, verdict.counts.unseen) == (True, 1)


def test_transactions_are_recorded(recorder: Recorder) -> None:
    mock = {
        "test.mock.num.brokers": "1",
        "bootstrap.servers": "",
        "transactional.id": "x",
        "log_level": "0",
    }
    producer = confluent.RecordingProducer(recorder, "writer", mock)
    producer.init_transactions(TIMEOUT_S)
    for value, end in (("a", producer.commit), ("b", producer.abort)):
        producer.begin()
        producer.send(PARTITIONS[0], value)
        assert end(TIMEOUT_S) is Outcome.OK
    producer.begin()
    producer.send(PARTITIONS[0], "c")
    producer.close(TIMEOUT_S)
    recorder.flush()
    operations = list(operations_in([recorder.path]))
    names = [one.transaction for one in operations if isinstance(one, Begin)]
    assert names == ["writer/1", "writer/2", "writer/3"]
    ends = [(one.action, one.outcome) for one in operations if isinstance(one, End)]
    assert ends == [
        (Action.COMMIT, Outcome.OK),
        (Action.ABORT, Outcome.OK),
        (Action.ABORT, Outcome.UNKNOWN),
    ]
    sends = {one.value: one for one in operations if isinstance(one, Send)}
    assert [sends[value].transaction for value in "abc"] == names
    assert (sends["a"].outcome, sends["a"].offset) == (Outcome.OK, 0)


def test_a_final_read_does_not_end_before_an_open_transaction(
    recorder: Recorder, broker: EmbeddedBroker
) -> None:
    common = {"bootstrap.servers": broker.bootstrap}
    left_open = confluent.RecordingProducer(
        recorder, "left open", common | {"transactional.id": "open"}
    )
    left_open.init_transactions(TIMEOUT_S)
    left_open.begin()
    left_open.send(PARTITIONS[0], "a")
    left_open.flush(TIMEOUT_S)
    plain = confluent.RecordingProducer(recorder, "plain", common)
    plain.send(PARTITIONS[0], "b")
    plain.flush(TIMEOUT_S)
    early = confluent.RecordingConsumer(recorder, "early", common)
    with pytest.raises(TimeoutError, match="has not reached the end"):
        early.read_to_the_end(PARTITIONS, 6.0)
    early.close()
    assert left_open.abort(TIMEOUT_S) is Outcome.OK
    final = confluent.RecordingConsumer(recorder, "final", common)
    final.read_to_the_end(PARTITIONS, TIMEOUT_S)
    final.close()
    for producer in (left_open, plain):
        producer.close(TIMEOUT_S)
    _, verdict = checked(recorder)
    assert verdict.valid, verdict.anomalies


class Refusing:
    """A client whose aborts are refused for good."""

    def __init__(self, code: int, *, fatal: bool) -> None:
        self._failure = KafkaException(KafkaError(code, "no", fatal))

    def begin_transaction(self) -> None:
        """It begins."""

    def produce(self, *_: object, **given: object) -> None:
        """It is never delivered."""

    def abort_transaction(self, _: float) -> None:
        """Refused."""
        raise self._failure

    def flush(self, _: float) -> None:
        """As librdkafka does after a fatal error."""
        raise self._failure


def test_a_client_that_gave_itself_up_in_an_abort_leaves_a_transaction_never_to_be_read(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = Refusing(KafkaError.INVALID_TXN_STATE, fatal=True)
    monkeypatch.setattr(confluent, "Producer", lambda _: refusing)
    producer = confluent.RecordingProducer(recorder, "writer", {})
    producer.begin()
    producer.send(PARTITIONS[0], "a")
    with pytest.raises(confluent.ProducerEndedError):
        producer.abort(TIMEOUT_S)
    producer.close(TIMEOUT_S)
    recorder.flush()
    seen = Poll("reader", 10**18, 10**18 + 1, [(PARTITIONS[0], [0], ["a"])], read_committed=True)
    history = History.of([*operations_in([recorder.path]), seen])
    assert Kind.ABORTED_READ in {one.kind for one in check(history).anomalies}


def test_other_fatal_errors_are_not_taken_for_that(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for code, fatal in ((KafkaError._FENCED, True), (KafkaError.INVALID_TXN_STATE, False)):
        refusing = Refusing(code, fatal=fatal)
        monkeypatch.setattr(confluent, "Producer", lambda _, one=refusing: one)
        producer = confluent.RecordingProducer(recorder, f"writer-{code}", {})
        producer.begin()
        assert producer.abort(TIMEOUT_S) is Outcome.UNKNOWN
        with pytest.raises(KafkaException):
            producer.close(TIMEOUT_S)


def test_workload_gives_its_verdict(tmp_path: Path, broker: EmbeddedBroker) -> None:
    plan = Plan(producers=2, consumers=1, members=1, partitions=2, records_per_s=400)
    with Workload(broker.bootstrap, tmp_path, plan) as workload:
        deadline = monotonic() + TIMEOUT_S
        while workload.path.read_text().count('["poll"') < 5:
            assert monotonic() < deadline, workload.failures
            sleep(0.05)
    assert workload.failures == []
    assert workload.verdict.valid, workload.verdict.anomalies
    assert workload.verdict.counts.partitions_read_to_the_end == 2
    assert workload.verdict.counts.acknowledged > 100

    operations = list(operations_in([workload.path]))
    hidden = next(one for one in operations if isinstance(one, Send) and one.offset)
    without = History.of(operations)
    for poll in without.polls:
        for _, offsets, values in poll.batches:
            if hidden.value in values:
                del offsets[values.index(hidden.value)]
                values.remove(hidden.value)
    (lost,) = check(without).anomalies
    assert (lost.kind, lost.values) == (Kind.LOST_WRITE, (hidden.value,))
