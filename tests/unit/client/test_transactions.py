"""All requests of a transaction use version 2, or all use version 1."""

import pytest

from raylog.client.channel import Channel
from raylog.client.connection import Connection
from raylog.client.errors import NotSupported
from raylog.client.transactions import FIRST, SECOND, Protocol, protocol_for
from raylog.wire.api import ApiKey
from tests.worlds.client.cluster import FakeCluster, FakeIo, FakeTransport

BOTH = (ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN)


def version(protocol: Protocol, api_key: ApiKey, newest: int) -> int:
    """The version for a broker that speaks up to `newest`."""
    channel = Channel(
        Connection("me"), FakeTransport(FakeIo(FakeCluster()), 1, Connection("me")), ("h", 1)
    )
    channel.versions = {api_key: range(newest + 1)}
    at_least, at_most = protocol.versions[api_key]
    return channel.version_for(api_key, at_most, at_least)


@pytest.mark.parametrize(("level", "protocol"), [(0, FIRST), (1, FIRST), (2, SECOND), (3, SECOND)])
def test_the_finalized_feature_decides(level: int, protocol: Protocol) -> None:
    assert protocol_for(level) is protocol


@pytest.mark.parametrize(
    ("api_key", "first", "second"),
    [(ApiKey.PRODUCE, 11, 12), (ApiKey.TXN_OFFSET_COMMIT, 4, 5), (ApiKey.END_TXN, 4, 5)],
)
def test_versions_are_of_one_protocol_on_a_broker_that_speaks_both(
    api_key: ApiKey, first: int, second: int
) -> None:
    """Mixed, they would let a zombie's batch into the next commit."""
    assert version(FIRST, api_key, 99) == first
    assert version(SECOND, api_key, 99) == second


@pytest.mark.parametrize("api_key", BOTH)
def test_version_2_is_not_mixed_with_an_old_broker(api_key: ApiKey) -> None:
    (first, _) = SECOND.versions[api_key]
    with pytest.raises(NotSupported, match=api_key.name):
        version(SECOND, api_key, first - 1)
