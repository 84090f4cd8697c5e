"""The requests themselves: dealt completely, determined by a seed, harmless to others."""

from __future__ import annotations

from random import Random

import pytest

from raylog.actors.gateway.handlers.table import served_versions
from raylog.wire.api import ApiKey
from raylog.wire.frame import LENGTH_BYTES, decode_request, decode_request_header
from raylog.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from raylog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raylog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raylog.wire.messages.unregister_broker import UnregisterBrokerRequest
from tests.fuzz.field_values import BROKER, TOPIC
from tests.fuzz.requests import Made, Maker, deck_of
from tests.fuzz.safety import tame
from tests.fuzz.values import ENDS, spoiled_array
from tests.fuzz.world import Cluster, Topic, World

SERVED = served_versions(two_phase_commit=True)
CLUSTER = Cluster(
    base=[Topic("base-0", b"\x01" * 16, 2)],
    cluster_id="c",
    broker_ids=[0],
    topic_settings=[("retention.ms", "1000")],
    features=[("group.version", 1)],
)


def made(seed: int) -> list[Made]:
    deck = deck_of(SERVED, seed)
    maker = Maker(Random(seed), World(CLUSTER, "s0"), SERVED, deck, huge=50)
    return list(iter(maker.next, None))


def test_every_announced_version_is_dealt() -> None:
    asked = {(one.api_key, one.version) for one in made(1)}
    announced = {(key, version) for key, versions in SERVED.items() for version in versions}
    assert asked >= announced


def test_a_seed_determines_the_requests() -> None:
    frames = [one.frame for one in made(2)]
    assert frames == [one.frame for one in made(2)]
    assert frames != [one.frame for one in made(3)]


@pytest.mark.parametrize("seed", range(3))
def test_generated_requests_are_well_formed(seed: int) -> None:
    for one in made(seed):
        body = one.frame[LENGTH_BYTES:]
        header, position = decode_request_header(body)
        assert (header.api_key, header.api_version) == (one.api_key, one.version)
        decode_request(header, body, position)


@pytest.mark.long
def test_few_generated_requests_exceed_their_limits() -> None:
    deck = deck_of(SERVED, 2)
    maker = Maker(Random(2), World(CLUSTER, "s0"), SERVED, deck * 2, huge=20_000)
    beyond = [one.exceeds_limit for one in iter(maker.next, None)]
    assert 0 < sum(beyond) < 0.05 * len(beyond)


@pytest.mark.long
def test_generated_huge_request_has_a_bounded_size() -> None:
    deck = deck_of(SERVED, 1)
    maker = Maker(Random(1), World(CLUSTER, "s0"), SERVED, deck * 4, huge=5_000)
    sizes = [len(one.frame) for one in iter(maker.next, None)]
    assert 20_000 < max(sizes) < 32 << 20


def test_generated_values_include_the_integer_bounds() -> None:
    for name, bits in (("int8", 7), ("int16", 15), ("int32", 31), ("int64", 63)):
        assert {-(2**bits), 2**bits - 1, 0, -1} <= set(ENDS[name])


def test_arrays_become_empty_doubled_and_huge() -> None:
    rng = Random(1)
    sizes = {len(spoiled_array(rng, [1, 2], "int32", most=500)) for _ in range(3_000)}
    assert {0, 1, 3, 100, 500} <= sizes


def test_topics_that_others_need_are_not_deleted() -> None:
    request = DeleteTopicsRequest(
        topics=[
            DeleteTopicState(name="__consumer_offsets"),
            DeleteTopicState(topic_id=b"\x01" * 16),
        ],
        topic_names=["base-0", "scratch-1"],
    )
    tame(ApiKey.DELETE_TOPICS, request, 6, CLUSTER)
    assert [topic.name for topic in request.topics] == ["scratch-0", None]
    assert request.topics[1].topic_id == bytes(16)
    assert request.topic_names == ["scratch-1"]


def test_a_broker_is_not_unregistered() -> None:
    request = UnregisterBrokerRequest(broker_id=0)
    tame(ApiKey.UNREGISTER_BROKER, request, 0, CLUSTER)
    assert request.broker_id != 0


@pytest.mark.parametrize(
    ("resource_type", "name", "only_validated"),
    [(TOPIC, "scratch-0", False), (TOPIC, "base-0", True), (BROKER, "", True)],
)
def test_settings_that_others_need_are_only_validated(
    resource_type: int, name: str, only_validated: bool
) -> None:
    resource = AlterConfigsResource(resource_type=resource_type, resource_name=name)
    request = AlterConfigsRequest(resources=[resource])
    tame(ApiKey.ALTER_CONFIGS, request, 2, CLUSTER)
    assert request.validate_only == only_validated


def test_topics_of_many_partitions_are_only_validated() -> None:
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=10_000)])
    tame(ApiKey.CREATE_TOPICS, request, 7, CLUSTER)
    assert request.validate_only
