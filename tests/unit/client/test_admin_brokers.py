"""Requests to one broker by its id, with brokers in memory."""

from __future__ import annotations

from collections.abc import Callable, Coroutine

import pytest

from raylog.client import Resource, ResourceType, TopicPartition
from raylog.client.admin.replicas import ReplicaAdmin
from raylog.client.admin.topics import TopicAdmin
from raylog.client.admin.transactions import TransactionAdmin, transactions_on
from raylog.client.core import Core
from raylog.client.io import run_blocking
from raylog.wire.api import ApiKey
from raylog.wire.errors import BrokerIdNotRegistered
from raylog.wire.messages import describe_configs as described_configs
from raylog.wire.messages import describe_log_dirs as log_dirs
from raylog.wire.messages import describe_producers as producers
from raylog.wire.messages import describe_transactions as described_transactions
from tests.worlds.client.cluster import LOST, FakeCluster, core_of

P0 = TopicPartition("t", 0)
ASKED = {
    "describe_configs": (
        ApiKey.DESCRIBE_CONFIGS,
        lambda core, broker: TopicAdmin(core).describe_configs(
            Resource(ResourceType.BROKER, str(broker))
        ),
        described_configs.DescribeConfigsResponse(
            results=[described_configs.DescribeConfigsResult(resource_type=4, resource_name="2")]
        ),
    ),
    "describe_log_dirs": (
        ApiKey.DESCRIBE_LOG_DIRS,
        lambda core, broker: TopicAdmin(core).describe_log_dirs([broker]),
        log_dirs.DescribeLogDirsResponse(results=[log_dirs.DescribeLogDirsResult(log_dir="/a")]),
    ),
    "describe_producers": (
        ApiKey.DESCRIBE_PRODUCERS,
        lambda core, broker: TransactionAdmin(core).describe_producers([P0], broker_id=broker),
        producers.DescribeProducersResponse(
            topics=[producers.TopicResponse(name="t", partitions=[producers.PartitionResponse()])]
        ),
    ),
    "transactions_on": (
        ApiKey.DESCRIBE_TRANSACTIONS,
        lambda core, broker: transactions_on(core, broker, ["t"]),
        described_transactions.DescribeTransactionsResponse(
            transaction_states=[described_transactions.TransactionState(transactional_id="t")]
        ),
    ),
}
CHANGED = {
    "alter_configs": lambda core, broker: TopicAdmin(core).alter_configs(
        Resource(ResourceType.BROKER, str(broker)), {"log.cleaner.threads": "2"}
    ),
    "alter_replica_log_dirs": lambda core, broker: ReplicaAdmin(core).alter_replica_log_dirs(
        broker, {P0: "/a"}
    ),
}


@pytest.mark.parametrize(("key", "call", "answer"), ASKED.values(), ids=ASKED.keys())
def test_one_broker_is_asked_again_when_its_answer_was_lost(
    key: ApiKey, call: Callable[[Core, int], Coroutine[object, object, object]], answer: object
) -> None:
    answers = [LOST, answer]
    cluster = FakeCluster(2, handlers={key: lambda *_: answers.pop(0)})
    run_blocking(call(core_of(cluster), 2))
    assert [broker for broker, request in cluster.seen][-2:] == [2, 2]


@pytest.mark.parametrize("broker", [9, -2])
@pytest.mark.parametrize(
    "call",
    [*(call for _, call, _ in ASKED.values()), *CHANGED.values()],
    ids=[*ASKED, *CHANGED],
)
def test_a_broker_that_is_not_in_the_cluster(
    call: Callable[[Core, int], Coroutine[object, object, object]], broker: int
) -> None:
    """-2 stands for a bootstrap server inside the client."""
    with pytest.raises(
        BrokerIdNotRegistered, match=f"expected one of the live brokers 1, 2, found '?{broker}'?$"
    ):
        run_blocking(call(core_of(FakeCluster(2)), broker))


def test_a_broker_that_leaves_the_cluster_while_it_is_asked() -> None:
    cluster = FakeCluster(2, down={2})
    core = core_of(cluster)
    run_blocking(core.refresh([]))
    cluster.brokers = 1
    with pytest.raises(BrokerIdNotRegistered, match="expected one of the live brokers 1, found 2"):
        run_blocking(TopicAdmin(core).describe_log_dirs([2]))
