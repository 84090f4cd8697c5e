"""What the internal topics are made like."""

import pytest

from raylog.actors.config import BrokerSettings
from raylog.actors.controller.api import CreateTopics, NewTopic
from raylog.actors.controller.internal_topics import internal_topic
from raylog.actors.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tests.support.controllers import Controlled


def test_the_offsets_topic_is_kafkas() -> None:
    assert internal_topic(OFFSETS_TOPIC, BrokerSettings(), 5) == NewTopic(
        OFFSETS_TOPIC,
        50,
        3,
        configs={
            "cleanup.policy": "compact",
            "segment.bytes": "104857600",
            "compression.type": "producer",
        },
    )


def test_the_transactions_topic_is_kafkas() -> None:
    settings = BrokerSettings({"transaction.state.log.num.partitions": "7"})
    assert internal_topic(TRANSACTIONS_TOPIC, settings, 3) == NewTopic(
        TRANSACTIONS_TOPIC,
        7,
        3,
        configs={
            "cleanup.policy": "compact",
            "segment.bytes": "104857600",
            "compression.type": "uncompressed",
            "min.insync.replicas": "2",
            "unclean.leader.election.enable": "false",
        },
    )


@pytest.mark.parametrize("name", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
def test_one_broker_is_enough(name: str) -> None:
    asked = internal_topic(name, BrokerSettings(), 1)
    assert asked.replication_factor == 1
    assert asked.configs.get("min.insync.replicas", "1") == "1"
    (outcome,) = Controlled().machine.topics.create(CreateTopics([asked])).response
    assert (outcome.error, outcome.message) == (0, None)


def test_no_other_topic_is_internal() -> None:
    with pytest.raises(AssertionError, match="t is no internal topic"):
        internal_topic("t", BrokerSettings(), 1)
