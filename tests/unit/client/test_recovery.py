"""Brokers of all versions since Kafka 2.1, and clusters that go away and come back elsewhere."""

import pytest

from raylog.client.core import Core
from raylog.client.errors import ConnectionLost, NotConnected, NotSupported
from raylog.client.io import run_blocking
from raylog.client.retries import Backoff
from raylog.client.settings import ClientSettings
from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.worlds.client.cluster import LATENCY_MS, FakeCluster, FakeIo, core_of

KAFKA = {
    "2.1": {
        ApiKey.API_VERSIONS: 2,
        ApiKey.PRODUCE: 7,
        ApiKey.FETCH: 10,
        ApiKey.METADATA: 7,
        ApiKey.JOIN_GROUP: 3,
        ApiKey.OFFSET_COMMIT: 6,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: -1,
    },
    "2.8": {
        ApiKey.API_VERSIONS: 3,
        ApiKey.PRODUCE: 9,
        ApiKey.FETCH: 12,
        ApiKey.METADATA: 11,
        ApiKey.JOIN_GROUP: 7,
        ApiKey.OFFSET_COMMIT: 8,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: -1,
    },
    "3.6": {
        ApiKey.API_VERSIONS: 3,
        ApiKey.PRODUCE: 9,
        ApiKey.FETCH: 15,
        ApiKey.METADATA: 12,
        ApiKey.JOIN_GROUP: 9,
        ApiKey.OFFSET_COMMIT: 8,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: -1,
    },
}


@pytest.mark.parametrize("release", KAFKA)
def test_brokers_from_kafka_2_1_on(release: str) -> None:
    """Each request in the newest version of the broker's; ApiVersions itself by KIP-511."""
    newest = KAFKA[release]
    core = core_of(FakeCluster(newest=newest))
    run_blocking(core.refresh([]))
    for key, version in newest.items():
        if version < 0:
            with pytest.raises(NotSupported, match=f"does not serve {key.name}"):
                run_blocking(core.version_on(1, key))
        elif key is not ApiKey.API_VERSIONS:
            assert run_blocking(core.version_on(1, key)) == version


def test_pauses_double_up_to_a_bound_give_or_take_a_fifth() -> None:
    low, middle = Backoff(50, 1_000, lambda: 0.0), Backoff(50, 1_000, lambda: 0.5)
    high = Backoff(50, 1_000, lambda: 1.0)
    assert [middle.next_ms() for _ in range(7)] == [50, 100, 200, 400, 800, 1_000, 1_000]
    assert [round(low.next_ms()) for _ in range(2)] == [40, 80]
    assert [round(high.next_ms()) for _ in range(2)] == [60, 120]


def test_a_broker_that_refused_is_left_alone_for_a_while() -> None:
    """reconnect.backoff.ms: no connection is tried before the pause is over."""
    cluster = FakeCluster(2)
    core = core_of(cluster)
    run_blocking(core.refresh([]))
    cluster.down = {2}
    with pytest.raises(NotConnected, match="fake:9002 refused"):
        run_blocking(core.api_versions(2))
    cluster.down = set()
    before = cluster.connections
    with pytest.raises(NotConnected, match="fake:9002 refused"):
        run_blocking(core.api_versions(2))
    assert cluster.connections == before
    run_blocking(core.io.pause(51))
    assert run_blocking(core.api_versions(2))


def test_a_broker_that_ends_each_connection_at_once_is_left_alone_for_longer_each_time() -> None:
    """As behind a proxy whose broker is gone: it answers ApiVersions, then closes."""
    cluster = FakeCluster(2)
    core = core_of(cluster)
    run_blocking(core.refresh([]))
    cluster.closing = {2}
    before, began_ms = cluster.connections, core.io.now_ms()
    with pytest.raises(NotConnected, match="fake:9002 ended the connection without an answer"):
        run_blocking(core.repeat(lambda: core.api_versions(2), timeout_ms=10_000))
    assert core.io.now_ms() - began_ms > 8_000
    assert 5 < cluster.connections - before < 20
    cluster.closing = set()
    run_blocking(core.io.pause(1_500))
    assert run_blocking(core.api_versions(2))


def test_a_connection_that_was_of_use_is_made_anew_at_once() -> None:
    cluster = FakeCluster(1)
    core = core_of(cluster)
    for _ in range(10):
        run_blocking(core.refresh([]))
        core._channels[next(iter(core._channels))].end(ConnectionLost("gone"))
    assert core.io.now_ms() < 1_000 + 10 * 5 * LATENCY_MS


def test_a_broker_may_send_its_clients_back_to_the_bootstrap_servers() -> None:
    """KIP-1102: REBOOTSTRAP_REQUIRED."""
    cluster = FakeCluster(2)
    answers = [int(ErrorCode.REBOOTSTRAP_REQUIRED)]

    def answer(_: int, request: object) -> MetadataResponse:
        assert isinstance(request, MetadataRequest)
        if answers:
            return MetadataResponse(error_code=answers.pop())
        return cluster.metadata(request)

    cluster.handlers[ApiKey.METADATA] = answer
    core = core_of(cluster)
    run_blocking(core.refresh([]))
    assert cluster.connections == 2
    assert sorted(core.cluster.nodes) == [1, 2]


@pytest.mark.parametrize(("strategy", "found"), [("rebootstrap", True), ("none", False)])
def test_when_no_known_broker_answers_the_bootstrap_servers_are_asked(
    strategy: str, found: bool
) -> None:
    """KIP-899."""
    cluster = FakeCluster(3)
    settings = ClientSettings((("fake", 9003),), metadata_recovery_strategy=strategy)
    core = Core(FakeIo(cluster), settings)
    run_blocking(core.refresh([]))
    del core.cluster.nodes[3]
    core.close()
    cluster.down = {1, 2}
    if found:
        run_blocking(core.refresh([]))
    else:
        with pytest.raises(NotConnected, match=r"no broker can be reached: .*9001.*9002"):
            run_blocking(core.refresh([]))
