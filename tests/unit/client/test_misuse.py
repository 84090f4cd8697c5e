"""Mistakes of new users, and what the clients say about them."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import logging
import multiprocessing
import pickle
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from raylog.client import (
    EARLIEST,
    LATEST,
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    ClientError,
    CommittedOffset,
    Consumer,
    InvalidSetting,
    NewTopic,
    Producer,
    RecordMetadata,
    TopicPartition,
)
from raylog.client.parallel import ParallelConsumer
from raylog.eos import process
from raylog.wire.errors import InvalidTopicException
from tests.worlds.decorators import in_loop

ANYWHERE = "localhost:9092"
PATIENCE_S = 30.0
ADDRESS = {"bootstrap_servers": ANYWHERE}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bootstrap_servers": ""}, "bootstrap.servers: expected host:port, found no address"),
        (
            {"bootstrap_servers": "http://localhost:9092"},
            r"bootstrap.servers: expected host:port, found 'http://localhost:9092'",
        ),
        (
            {"bootstrap_servers": "localhost:port"},
            r"bootstrap.servers: expected host:port, found 'localhost:port'",
        ),
        ({"bootstrap_servers": 9092}, "names separated by commas, or a list of names, found 9092"),
        (
            {"queue.buffering.max.ms": 5},
            r"'queue.buffering.max.ms': this is a name of librdkafka: .* from_confluent\(...\)",
        ),
        (
            {"ssl_cafile": "/x"},
            "'ssl_cafile': the name here is 'ssl.truststore.location', or 'ssl_trust",
        ),
        ({"sasl_plain_username": "x"}, "the name here is 'sasl.username', or 'sasl_username'"),
        ({"api_version": (2, 0)}, "'api_version': leave it out"),
        ({"linger": 5}, "'linger': the nearest is 'linger_ms'"),
        ({"zzz": 5}, "unknown setting 'zzz'$"),
    ],
)
def test_settings_of_other_clients_and_wrong_addresses(
    settings: Mapping[str, object], message: str
) -> None:
    with pytest.raises(InvalidSetting, match=message):
        Producer(settings if "bootstrap_servers" in settings else {**settings, **ADDRESS})


def test_a_topic_in_place_of_the_address() -> None:
    """As kafka-python's consumers have it."""
    with pytest.raises(InvalidSetting, match="given twice: as the first argument and by its name"):
        Consumer("topic", bootstrap_servers=ANYWHERE)


def test_topic_name_must_be_a_string(bootstrap: str) -> None:
    with Producer(bootstrap) as producer:
        for wrong in (None, 5, b"topic"):
            with pytest.raises(TypeError, match="expected topic to be str, found"):
                producer.send(wrong, b"value")  # type: ignore[arg-type]  # what is tested


def test_headers_in_a_mapping(bootstrap: str) -> None:
    with Producer(bootstrap) as producer:
        producer.partitions_for("headers")
        with pytest.raises(TypeError, match=r"pairs \(name, value\), found a mapping: give its"):
            producer.send("headers", b"value", headers={"name": b"value"})  # type: ignore[arg-type]  # what is tested


def test_string_in_place_of_a_list_of_names_is_refused(bootstrap: str) -> None:
    """It would be taken for its letters, and topics of these names would be deleted."""
    with Admin(bootstrap) as admin:
        calls: list[Callable[[str], object]] = [
            admin.metadata,
            admin.delete_topics,
            admin.describe_partitions,
            admin.find_coordinators,
            admin.describe_groups,
            admin.delete_groups,
            admin.describe_user_scram_credentials,
            lambda name: admin.remove_group_members("group", name),
        ]
        for call in calls:
            with pytest.raises(TypeError, match=r"expected a list of [\w.]+, found 'abc' alone"):
                call("abc")
        with pytest.raises(TypeError, match="expected NewTopic, found 'abc'"):
            admin.create_topics(["abc"])  # type: ignore[list-item]  # what is tested


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
@pytest.mark.parametrize(
    "kind", [Producer, Consumer, Admin, AsyncProducer, AsyncConsumer, AsyncAdmin]
)
def test_clients_cannot_be_copied(kind: type, copied: Callable[[object], object]) -> None:
    client = kind(ANYWHERE)
    with pytest.raises(TypeError, match=f"^{kind.__name__} cannot be pickled or copied: make one"):
        copied(client)
    if not kind.__name__.startswith("Async"):
        client.close()


@pytest.mark.parametrize("offset", [-3, -5, -1_000, 2**63, 2**70, 1.5, "1", None])
def test_a_position_that_is_no_offset_is_refused(offset: Any) -> None:
    """Some stand for something inside the client; others fit into no request."""
    key, other = TopicPartition("t", 0), TopicPartition("t", 1)
    expected = r"t-0: expected EARLIEST, LATEST or an offset from 0 to 2\*\*63 - 1, found"
    with Consumer(ANYWHERE) as consumer:
        calls: list[Callable[[], object]] = [
            lambda: consumer.seek(key, offset),
            lambda: consumer.seek(key, CommittedOffset(offset)),
            lambda: consumer.assign({other: 0, key: offset}),
        ]
        for call in calls:
            with pytest.raises(InvalidSetting, match=expected):
                call()
        assert consumer.assignment() == []
        valid: list[Any] = [EARLIEST, LATEST, 0, 2**63 - 1, np.int64(7)]
        for start in valid:
            consumer.seek(key, start)
        assert consumer.position(key) == 7


def test_a_partition_that_cannot_exist_is_refused() -> None:
    with Consumer(ANYWHERE) as consumer:
        with pytest.raises(TypeError, match=r"TopicPartition\(topic, number\), found 't-0'"):
            consumer.seek("t-0", 0)  # type: ignore[arg-type]  # what is tested
        with pytest.raises(InvalidTopicException, match="expected a topic's name"):
            consumer.seek(TopicPartition("no topic", 0), 0)
        assert consumer.assignment() == []


@pytest.mark.parametrize(
    ("protocol", "pattern"),
    [
        ("consumer", re.compile("or ders", re.VERBOSE)),
        ("consumer", re.compile(b"orders")),
        ("classic", re.compile(b"orders")),
    ],
)
def test_pattern_that_cannot_be_matched_is_refused(protocol: str, pattern: Any) -> None:
    with (
        Consumer(ANYWHERE, group_id="g", group_protocol=protocol) as consumer,
        pytest.raises(InvalidSetting, match=r"expected a pattern of str without re.VERBOSE"),
    ):
        consumer.subscribe(pattern)


def test_a_client_that_was_closed(bootstrap: str) -> None:
    admin, producer, consumer = Admin(bootstrap), Producer(bootstrap), Consumer(bootstrap)
    calls: list[Callable[[], object]] = [
        lambda: admin.metadata([]),
        lambda: producer.send("closed", b"value"),
        producer.flush,
        lambda: consumer.poll_records(timeout_ms=0),
    ]
    for client in (admin, producer, consumer):
        client.close()
        client.close()
    for call in calls:
        with pytest.raises(ClientError, match="the client is closed"):
            call()


@in_loop
async def test_an_asyncio_admin_that_was_closed(bootstrap: str) -> None:
    async with AsyncAdmin(bootstrap) as admin:
        await admin.metadata([])
    with pytest.raises(ClientError, match="the client is closed"):
        await admin.metadata([])


@in_loop
async def test_a_client_in_a_second_event_loop(bootstrap: str) -> None:
    async with AsyncAdmin(bootstrap) as admin:
        await admin.metadata([])
        with ThreadPoolExecutor(1) as elsewhere:
            called = elsewhere.submit(asyncio.run, admin.describe_cluster())
            # This waits without letting its own loop run, so that no answer is taken.
            failure = called.exception(PATIENCE_S)
        assert isinstance(failure, ClientError)
        assert "another event loop: make one in each" in str(failure)


def _use(admin: Admin, messages: multiprocessing.SimpleQueue[str]) -> None:
    try:
        admin.metadata([])
    except ClientError as error:
        messages.put(str(error))
    admin.close()


def test_an_admin_after_a_fork(bootstrap: str) -> None:
    """Both processes would write to the same sockets."""
    context = multiprocessing.get_context("fork")
    messages: multiprocessing.SimpleQueue[str] = context.SimpleQueue()
    with Admin(bootstrap) as admin:
        admin.metadata([])
        child = context.Process(target=_use, args=(admin, messages))
        child.start()
        child.join()
        assert (
            messages.get() == "this client belongs to the parent process: make one after the fork"
        )
        admin.create_topics([NewTopic("forked")])  # the parent's connections still serve
        assert "forked" in admin.metadata(["forked"]).topics


def test_records_of_a_producer_that_was_not_closed(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer(bootstrap, linger_ms=60_000, delivery_timeout_ms=120_000)
    producer.send("unclosed", b"value")
    thread = producer._background._thread
    assert thread is not None
    with caplog.at_level(logging.WARNING):
        del producer
        gc.collect()
        thread.join(30)  # it may hold the producer for a moment, and ends it then
    assert "a producer was not closed, and its last records are lost" in caplog.text


def test_a_closed_producer_has_lost_nothing(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), Producer(bootstrap) as producer:
        producer.send("closed", b"value")
    assert not caplog.text


@pytest.mark.parametrize("wrong", [["pages"], [("pages", 0)], TopicPartition("pages", 0)])
def test_partitions_of_other_types(bootstrap: str, wrong: Iterable[TopicPartition]) -> None:
    message = r"expected partitions as TopicPartition\(topic, number\), found"
    with Consumer(bootstrap, group_id="typed") as consumer:
        with pytest.raises(TypeError, match=message):
            consumer.assign(wrong)
        with pytest.raises(TypeError, match=message):
            consumer.commit(dict.fromkeys(wrong, 1))
        consumer.assign([TopicPartition("pages", 0)])


def test_a_callback_that_waits_for_its_own_thread(bootstrap: str) -> None:
    raised: Future[ClientError] = Future()

    def send_again(metadata: RecordMetadata | None, failure: Exception | None) -> None:
        with pytest.raises(ClientError, match="use send or submit in it") as refused:
            producer.send_and_wait("pages", b"two")
        raised.set_result(refused.value)

    with Producer(bootstrap) as producer:
        producer.send("pages", b"one", on_delivery=send_again)
    assert raised.done()


@pytest.mark.parametrize(
    ("topics", "message"),
    [
        (None, "expected topics or a pattern, found None"),
        (5, "expected topics or a pattern, found 5"),
        (b"pages", "expected topics or a pattern, found b'pages'"),
        ([], r"expected topics, found none: unsubscribe\(\) ends a subscription"),
        ("^(", r"expected a pattern, found '\^\('"),
    ],
)
def test_invalid_subscription_is_refused(topics: Any, message: str) -> None:
    with Consumer(ANYWHERE, group_id="g") as consumer:
        with pytest.raises(InvalidSetting, match=message):
            consumer.subscribe(topics)
        assert consumer.subscription() == frozenset()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"timeout_ms": "a"}, "expected timeout_ms to be a number of ms, found 'a'"),
        ({"timeout_ms": None}, "expected timeout_ms to be a number of ms, found None"),
        ({"timeout_ms": float("nan")}, "expected timeout_ms to be a number of ms, found nan"),
        ({"max_records": 0}, "expected max_records to be a number of 1 or more, found 0"),
        ({"max_records": "9"}, "expected max_records to be a number of 1 or more, found '9'"),
        ({"max_records": 1.5}, "expected max_records to be a number of 1 or more, found 1.5"),
    ],
)
def test_arguments_of_polls(arguments: dict[str, Any], message: str) -> None:
    async def polls() -> None:
        async with AsyncConsumer(ANYWHERE) as consumer:
            for poll in (consumer.poll, consumer.poll_records, consumer.poll_table):
                with pytest.raises(InvalidSetting, match=message):
                    await poll(**arguments)

    asyncio.run(polls())
    with Consumer(ANYWHERE) as consumer:
        for poll in (consumer.poll, consumer.poll_records, consumer.poll_table):
            with pytest.raises(InvalidSetting, match=message):
                poll(**arguments)


@pytest.mark.parametrize(
    "wait", [lambda future: future.result(), lambda future: future.exception()]
)
def test_a_callback_that_waits_for_a_future_of_its_own_thread(
    bootstrap: str, wait: Callable[[Future[RecordMetadata]], object]
) -> None:
    """It would wait for ever."""
    raised: Future[ClientError] = Future()

    def submit_again(metadata: RecordMetadata, failure: Exception | None) -> None:
        future = producer.submit("pages", b"two")
        with pytest.raises(ClientError, match="use send or submit in it") as refused:
            wait(future)
        raised.set_result(refused.value)

    with Producer(bootstrap) as producer:
        first = producer.submit("pages", b"one", on_delivery=submit_again)
    assert raised.done()
    assert first.result().offset >= 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"workers": "8"}, "expected workers to be a number of 1 or more, found '8'"),
        ({"retry": 3}, r"expected retry to be a RetryPolicy\(attempts=...\), found 3"),
        ({"dead_letter": "dlq"}, "expected dead_letter to be None or a DeadLetter.*found 'dlq'"),
        ({"fn": None}, "expected a function to call on records, found None"),
        ({"topics": ANYWHERE}, "each of topics to be a topic's name .*, found 'localhost:9092'"),
        ({"topics": print}, "the address, then topics, then the function; found <built-in"),
        ({"sink": "a b"}, "expected sink to be a topic's name .*, found 'a b'"),
        ({"worker": 3}, "unknown argument 'worker': the nearest is 'workers'"),
        ({"fetch_min_byte": 3}, "unknown setting 'fetch_min_byte': the nearest is 'fetch_min_b"),
        ({"value_serializer": "json"}, "expected value_serializer to be a function of topic, da"),
    ],
)
def test_arguments_of_a_parallel_consumer(settings: dict[str, Any], message: str) -> None:
    arguments = {"topics": ["pages"], "fn": print, "group_id": "typed", **settings}
    with pytest.raises(InvalidSetting, match=message):
        ParallelConsumer(ANYWHERE, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": 3}, "unknown argument 'task': the nearest is 'tasks'"),
        ({"worker": 3}, "unknown argument 'worker': the nearest is 'workers'"),
        ({"source": print}, "expected source to be a topic or several, found <built-in"),
        ({"sink": print}, "expected sink to be a topic's name .*, found <built-in"),
        ({"source": "out", "fn": "in"}, "expected a function to call on records, found 'in'"),
    ],
)
def test_arguments_of_process(arguments: dict[str, Any], message: str) -> None:
    usual = {"source": "in", "sink": "out", "fn": print, "group": "typed", "config": ANYWHERE}
    with pytest.raises(InvalidSetting, match=message):
        process(**{**usual, **arguments})


@pytest.mark.parametrize("kind", [Producer, Consumer, AsyncProducer])
@pytest.mark.parametrize(
    "wrong", ["json", json.dumps, str.encode, bytes, lambda data: b"", lambda *, data: b""]
)
def test_serializer_must_be_a_function(kind: type, wrong: object) -> None:
    name = "key_deserializer" if kind is Consumer else "value_serializer"
    with pytest.raises(InvalidSetting, match=f"expected {name} to be a function of topic, data"):
        kind(ANYWHERE, **{name: wrong})


def test_single_topic_in_place_of_a_list_is_refused(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        with pytest.raises(
            TypeError, match=r"expected a list of NewTopic, found NewTopic\(.* alone"
        ):
            admin.create_topics(NewTopic("pages"))  # type: ignore[arg-type]  # what is tested
        with pytest.raises(TypeError, match="expected a list of NewTopic, found 'pages' alone"):
            admin.create_topics("pages")  # type: ignore[arg-type]  # as above
