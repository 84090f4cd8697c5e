"""No request of a client can end an actor of the broker.

A bug that raises in a call ends the actor (`runtime.calls`), so anything that a client can shape
must be refused or answered. Here a whole broker runs in one process, connections send requests of
every API with hostile values, and no actor may end.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.actors.cluster import plan_cluster, start_cluster, stop_cluster
from raylog.actors.config import KEYS_OF, ConfigKey, ConfigType, ResourceType
from raylog.actors.gateway.handlers.table import served_versions
from raylog.actors.roles import role_class
from raylog.actors.runtime.inproc import InprocWorld
from raylog.testing.embedded import TEST_SETTINGS
from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode
from raylog.wire.frame import decode_response, encode_request
from raylog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from raylog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raylog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from raylog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from raylog.wire.messages.registry import request_class
from tests.support.batches import raw_batch, raw_record
from tests.support.messages import BOUNDED, Messages
from tests.worlds.decorators import in_world
from tests.worlds.gateway.producing import produce

TOPIC = "t"
GROUP = "g"
SET, DELETE = 0, 1
ANSWER_S = 0.3
"""How long to wait for a response. Some come later, or only after another request."""
SERVED = served_versions()
ASKED = [ApiKey(key) for key in SERVED if key not in (ApiKey.PRODUCE, ApiKey.FETCH)]
"""`tests/cluster/malformed.py` covers the others."""
DIGITS = "9" * 5_000
"""More digits than Python converts to an integer."""
NAMES = st.sampled_from(
    [TOPIC, "", ".", "t\0", "ü", "a" * 300, "0", "-1", "7", DIGITS, "٣", "__consumer_offsets"]
)
COUNTS = st.sampled_from([-(2**31), -2, -1, 0, 1, 2, 10_001, 2**31 - 1])
SMALL = st.sampled_from([-(2**31), -1, 0, 1, 2, 2**31 - 1])
TIMES = st.sampled_from([-(2**31), -1, 0, 1, 100])
VALUES = st.sampled_from(
    ["", "0", "-1", "1", "true", "compact", "*", "0:0", "x", DIGITS, "-" + DIGITS, "1e400", "nan"]
    + [str(sign * 2**bits - 1) for bits in (31, 63, 64, 200) for sign in (1, -1)]
)
KEYS = st.sampled_from(
    ["", "x", "raylog.interceptor.x", *(key for keys in KEYS_OF.values() for key in keys)]
)
OVERRIDES: dict[str, st.SearchStrategy[Any]] = {
    "num_partitions": COUNTS,
    "count": COUNTS,
    "replication_factor": st.sampled_from([-(2**15), -1, 0, 1, 2, 2**15 - 1]),
    "timeout_ms": TIMES,
    "rebalance_timeout_ms": TIMES,
    "session_timeout_ms": st.sampled_from([-1, 0, 6_000, 2**31 - 1]),
    "broker_ids": st.lists(SMALL, max_size=3),
    "replicas": st.lists(SMALL, max_size=3),
    "partition_index": SMALL,
    "partition_indexes": st.lists(SMALL, max_size=3),
    "topic_name": NAMES,
    "topic": NAMES,
    "resource_name": NAMES,
    "resource_type": st.sampled_from([-1, 0, 2, 4, 8, 16, 32, 127]),
    "config_operation": st.sampled_from([-1, 0, 1, 2, 3, 127]),
    "broker_id": SMALL,
    "voter_id": SMALL,
    "group_id": NAMES,
    "transactional_id": NAMES,
}
"""Strategies for fields by name, with values closer to valid ones than the field's type."""


def overrides(api_key: ApiKey) -> dict[str, st.SearchStrategy[Any]]:
    """The strategies for fields of one API. `name` and `value` have another meaning in each."""
    extra: dict[str, st.SearchStrategy[Any]] = {"name": NAMES}
    if api_key in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS):
        extra = {"name": KEYS, "value": VALUES}
    if api_key is ApiKey.CREATE_TOPICS:
        extra = {"name": NAMES | KEYS, "value": VALUES}
    return OVERRIDES | extra


@st.composite
def requests(draw: st.DrawFn) -> tuple[ApiKey, int, Any]:
    """Any request that the broker supports."""
    api_key = draw(st.sampled_from(ASKED))
    version = draw(st.sampled_from(list(SERVED[api_key])))
    cls = request_class(api_key)
    return api_key, version, draw(Messages(version, overrides(api_key)).of(cls))


class Client:
    """Opens a connection for each request."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def ask(
        self, api_key: ApiKey, version: int, request: Any, within_s: float = ANSWER_S
    ) -> Any:
        """The response; None if the broker closes the connection, or does not answer for now."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(b"".join(encode_request(api_key, version, 1, "c", request)))
            async with asyncio.timeout(within_s):
                length = int.from_bytes(await reader.readexactly(4), "big")
                return decode_response(api_key, version, await reader.readexactly(length))[1]
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            return None
        finally:
            writer.close()


def with_broker(story: Callable[[Client], Awaitable[None]], **options: str) -> None:
    """Run a story against a broker with a topic. No actor may end."""

    async def main(data: Path) -> None:
        world = InprocWorld(role_class)
        runtime = world.runtime()
        given = {**TEST_SETTINGS, **options}
        plan = plan_cluster(data, runtime, host="127.0.0.1", ports=[0], settings=given)
        (status,) = await start_cluster(runtime, plan)
        names = {one.ref.instance for one in world.residents()}
        try:
            await story(Client(status.endpoints[0].port))
            left = {one.ref.instance for one in world.residents()}
            assert world.failures == []
            assert names <= left, "an actor has ended"
        finally:
            await stop_cluster(runtime, plan.cluster_id, [0])
            await world.stop()

    with tempfile.TemporaryDirectory() as data:
        asyncio.run(main(Path(data)))


async def create(client: Client) -> None:
    topic = CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1)
    asked = CreateTopicsRequest(topics=[topic], timeout_ms=5_000)
    answer = await client.ask(ApiKey.CREATE_TOPICS, 5, asked, within_s=60)
    assert answer.topics[0].error_code == 0


@settings(BOUNDED, max_examples=10)
@given(asked=st.lists(requests(), min_size=25, max_size=25))
def test_no_request_ends_an_actor(asked: list[tuple[ApiKey, int, Any]]) -> None:
    async def story(client: Client) -> None:
        await create(client)
        await asyncio.gather(*(client.ask(*one) for one in asked))

    with_broker(story)


@in_world(with_broker)
async def test_a_broker_named_by_more_digits_than_python_reads_is_refused(client: Client) -> None:
    assert not await alter(client, ResourceType.BROKER, DIGITS, "log.cleaner.threads", SET, "1")
    resource = DescribeConfigsResource(resource_type=ResourceType.BROKER, resource_name=DIGITS)
    asked = DescribeConfigsRequest(resources=[resource])
    answer = await client.ask(ApiKey.DESCRIBE_CONFIGS, 4, asked, within_s=60)
    assert answer.results[0].error_code == ErrorCode.INVALID_REQUEST


# ---- settings that are accepted ----------------------------------------------------------------


def extremes(key: ConfigKey) -> Iterator[str]:
    """Values of a key at its limits and beyond."""
    match key.type:
        case ConfigType.BOOLEAN:
            yield from ("true", " FALSE ")
        case ConfigType.LIST | ConfigType.STRING:
            yield from (*key.choices, " ", "x", DIGITS, f"{DIGITS}:0", f"0:{DIGITS}", "*")
        case _:
            for bits in (31, 63):
                yield from (str(2**bits - 1), str(-(2**bits)))
            yield from ("0", "1", "-1", " 7 ", "1_0", "1e308", "5e-324")
            yield from (str(end) for end in (key.low, key.high) if end is not None)


def names_of(kind: ResourceType) -> list[str]:
    """The resources of a kind whose settings are changed."""
    return {ResourceType.TOPIC: [TOPIC], ResourceType.GROUP: [GROUP]}.get(kind, ["0", ""])


async def alter(
    client: Client, kind: ResourceType, name: str, key: str, operation: int, value: str | None
) -> bool:
    """Change one setting. Returns whether that was accepted."""
    config = AlterableConfig(name=key, config_operation=operation, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    asked = IncrementalAlterConfigsRequest(resources=[resource])
    answer = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked, within_s=60)
    return bool(answer.responses[0].error_code == 0)


async def use(client: Client) -> None:
    """Write to the topic, and join the group."""
    written = produce((0, raw_batch(raw_record())), (1, raw_batch(raw_record())), topic=TOPIC)
    await client.ask(ApiKey.PRODUCE, 9, written)
    beat = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, beat)


@pytest.mark.long
def test_no_setting_that_is_accepted_ends_an_actor() -> None:
    accepted = 0

    async def story(client: Client) -> None:
        nonlocal accepted
        await create(client)
        for kind, keys in KEYS_OF.items():
            for name in names_of(kind):
                for key in keys.values():
                    if key.name.startswith("max.connections"):
                        continue  # it would lock this client out
                    for value in dict.fromkeys(extremes(key)):
                        if await alter(client, kind, name, key.name, SET, value):
                            accepted += 1
                            await use(client)
                    await alter(client, kind, name, key.name, DELETE, None)

    with_broker(story)
    assert accepted > 200
