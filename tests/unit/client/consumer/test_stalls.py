"""A broker that accepts no connections, or missing metadata, holds up nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from raylog.client import EARLIEST, Admin, AsyncConsumer, AsyncProducer, NewTopic, TopicPartition
from raylog.testing import EmbeddedBroker
from tests.worlds.decorators import in_loop
from tests.worlds.servers.black_hole import BlackHole

PATIENCE_S = 30


@pytest.fixture(scope="module")
def brokers() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(brokers=2) as running:
        yield running


@pytest.fixture
def topic(brokers: EmbeddedBroker) -> str:
    """Of two partitions, each on a broker of its own."""
    name = f"t-{uuid4()}"
    with Admin(brokers.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 2)])
    return name


async def read(consumer: AsyncConsumer[bytes, bytes], count: int) -> list[tuple[int, bytes | None]]:
    """So many records, by their partitions."""
    found: list[tuple[int, bytes | None]] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            found += [(one.partition, one.value) for one in await consumer.poll_records(100)]
    return found


async def swallowed(hole: BlackHole, consumer: AsyncConsumer[bytes, bytes]) -> None:
    """Poll until the consumer tries to connect to the hole."""
    async with asyncio.timeout(PATIENCE_S):
        while not hole.waiting:
            assert await consumer.poll(10) == []


async def send(producer: AsyncProducer[Any, Any], topic: str, partition: int, value: bytes) -> None:
    await producer.send_and_wait(topic, value, partition=partition)


@in_loop
async def test_a_broker_that_cannot_be_connected_to_holds_up_its_own_partitions_only(
    brokers: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hole = BlackHole(monkeypatch)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with (
        AsyncProducer(brokers.bootstrap) as producer,
        AsyncConsumer(brokers.bootstrap) as consumer,
    ):
        for partition in (0, 1):
            await send(producer, topic, partition, b"x")
        consumer.assign({zero: 0, one: 0})
        await read(consumer, 2)
        for core in (consumer.core._fetches, consumer.core.control):
            hole.swallow(core, zero)
        await send(producer, topic, 0, b"held")
        await swallowed(hole, consumer)
        for value in (b"1", b"2", b"3"):
            await send(producer, topic, 1, value)
            assert await read(consumer, 1) == [(1, value)]
        hole.opened.set()
        assert await read(consumer, 1) == [(0, b"held")]


@in_loop
async def test_a_broker_that_cannot_be_asked_for_positions_holds_up_its_own_partitions_only(
    brokers: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hole = BlackHole(monkeypatch)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with (
        AsyncProducer(brokers.bootstrap) as producer,
        AsyncConsumer(brokers.bootstrap) as consumer,
    ):
        for partition in (0, 1):
            await send(producer, topic, partition, b"x")
        control = consumer.core.control
        await control.refresh([topic])
        await control.api_versions(control.cluster.leader_of(one))
        hole.swallow(control, zero)
        consumer.assign({zero: EARLIEST, one: EARLIEST})
        assert await read(consumer, 1) == [(1, b"x")]
        consumer.seek(one, EARLIEST)
        assert await read(consumer, 1) == [(1, b"x")]
        assert hole.waiting
        hole.opened.set()
        assert await read(consumer, 1) == [(0, b"x")]


@in_loop
async def test_metadata_that_does_not_come_holds_up_no_fetch(
    brokers: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        AsyncProducer(brokers.bootstrap) as producer,
        AsyncConsumer(brokers.bootstrap) as consumer,
    ):
        await send(producer, topic, 1, b"x")
        consumer.assign({TopicPartition(topic, 1): 0})
        await read(consumer, 1)
        comes, asked = asyncio.Event(), asyncio.Event()
        refresh = consumer.core.control.refresh

        async def refreshed(topics: list[str]) -> None:
            asked.set()
            await comes.wait()
            await refresh(topics)

        monkeypatch.setattr(consumer.core.control, "refresh", refreshed)
        await send(producer, topic, 0, b"held")
        consumer.core.control.cluster.forget([topic])
        consumer.seek(TopicPartition(topic, 0), 0)
        await asyncio.wait_for(asked.wait(), PATIENCE_S)
        await send(producer, topic, 1, b"y")
        assert await read(consumer, 1) == [(1, b"y")]
        comes.set()
        assert await read(consumer, 1) == [(0, b"held")]


@in_loop
async def test_closing_ends_what_waits_for_a_connection(
    brokers: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hole = BlackHole(monkeypatch)
    key = TopicPartition(topic, 0)
    consumer = AsyncConsumer(brokers.bootstrap)
    await consumer.core.control.refresh([topic])
    hole.swallow(consumer.core.control, key)
    consumer.assign({key: 0})
    await swallowed(hole, consumer)
    await asyncio.wait_for(consumer.close(), PATIENCE_S)
    alone = asyncio.all_tasks() - {asyncio.current_task()}
    assert not {task for task in alone if not task.cancelling()}, "no attempt goes on"
