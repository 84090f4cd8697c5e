"""All requests of transaction version 2, or all of version 1."""

import asyncio

import pytest

from raylog.client.errors import NotSupported
from raylog.raydp_jobs.protocol import FIRST, SECOND, Protocol, protocol_for
from raylog.wire.api import ApiKey
from raylog.wire.messages.end_txn import EndTxnRequest
from raylog.wire.messages.init_producer_id import InitProducerIdRequest
from raylog.wire.messages.produce import ProduceRequest
from raylog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

REQUESTS = {
    ApiKey.PRODUCE: ProduceRequest(acks=-1, timeout_ms=1),
    ApiKey.TXN_OFFSET_COMMIT: TxnOffsetCommitRequest(
        transactional_id="x", group_id="g", producer_id=1, producer_epoch=0
    ),
    ApiKey.END_TXN: EndTxnRequest(
        transactional_id="x", producer_id=1, producer_epoch=0, committed=True
    ),
}


class _Broker:
    """A client's core that knows one broker by its newest versions."""

    def __init__(self, newest: int) -> None:
        self._newest = newest

    async def version_on(self, node_id: int, api_key: ApiKey, at_most: int | None = None) -> int:
        assert at_most is not None
        return min(self._newest, at_most)


def version(protocol: Protocol, api_key: ApiKey, newest: int) -> int | None:
    """The version for a broker that speaks up to `newest`."""
    asked = protocol.version_for(_Broker(newest), 0, REQUESTS[api_key])  # type: ignore[arg-type]  # a fake
    return asyncio.run(asked)


@pytest.mark.parametrize(("level", "protocol"), [(0, FIRST), (1, FIRST), (2, SECOND), (3, SECOND)])
def test_the_finalized_feature_decides(level: int, protocol: Protocol) -> None:
    assert protocol_for(level) is protocol


@pytest.mark.parametrize(
    ("api_key", "first", "second"),
    [(ApiKey.PRODUCE, 11, 12), (ApiKey.TXN_OFFSET_COMMIT, 4, 5), (ApiKey.END_TXN, 4, 5)],
)
def test_versions_are_of_one_kind_on_a_broker_that_speaks_both(
    api_key: ApiKey, first: int, second: int
) -> None:
    """Mixed, they would let a zombie's batch into the next commit."""
    assert version(FIRST, api_key, 99) == first
    assert version(SECOND, api_key, 99) == second


@pytest.mark.parametrize("api_key", list(REQUESTS))
def test_version_2_is_not_mixed_with_an_old_broker(api_key: ApiKey) -> None:
    (first, _) = SECOND.versions[api_key]
    with pytest.raises(NotSupported, match=api_key.name):
        version(SECOND, api_key, first - 1)


def test_other_requests_take_the_newest_version() -> None:
    request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1)
    asked = SECOND.version_for(_Broker(9), 0, request)  # type: ignore[arg-type]  # a fake
    assert asyncio.run(asked) is None
