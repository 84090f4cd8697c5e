"""Which leader a client at the wrong broker is sent to."""

from __future__ import annotations

import pytest

from raylog.actors.gateway.rules.leader_hints import leader_hint, node_endpoints
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import BrokerRegistered, PartitionCreated, TopicCreated
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.leader_hints import LeaderIdAndEpoch
from tests.worlds.gateway.actor import topic_id

T = topic_id("t")


def image() -> MetadataImage:
    """One partition, led by broker 2; broker 1 is known as well."""
    found = MetadataImage()
    found.apply_all([TopicCreated(T, "t"), PartitionCreated(T, 0, (2,), (2,), 2)])
    for broker_id in (1, 2):
        found.apply(
            BrokerRegistered(
                broker_id, 1, f"h{broker_id}", 9092 + broker_id, f"r{broker_id}", "", "", False
            )
        )
    return found


@pytest.mark.parametrize(
    ("partition", "code", "expected"),
    [
        (0, ErrorCode.NOT_LEADER_OR_FOLLOWER, LeaderIdAndEpoch(leader_id=2, leader_epoch=0)),
        (0, ErrorCode.FENCED_LEADER_EPOCH, LeaderIdAndEpoch(leader_id=2, leader_epoch=0)),
        (0, ErrorCode.NONE, None),
        (0, ErrorCode.UNKNOWN_LEADER_EPOCH, None),
        (1, ErrorCode.NOT_LEADER_OR_FOLLOWER, None),
    ],
)
def test_a_leader_is_named_where_that_helps(
    partition: int, code: ErrorCode, expected: LeaderIdAndEpoch | None
) -> None:
    assert leader_hint(image().topics[T], partition, int(code)) == expected
    assert leader_hint(None, partition, int(code)) is None


def test_addresses_are_those_of_the_leaders_that_are_known_each_once() -> None:
    hints = [LeaderIdAndEpoch(leader_id=one, leader_epoch=0) for one in (2, 7, 1, 2, -1)]
    found = node_endpoints(image(), [None, *hints], "PLAINTEXT")
    assert [(one.node_id, one.host, one.port, one.rack) for one in found] == [
        (1, "h1", 9093, "r1"),
        (2, "h2", 9094, "r2"),
    ]


def test_clients_of_a_listener_are_told_no_addresses_of_another() -> None:
    found = image()
    endpoints = (("X", "in", 1), ("Y", "out", 2))
    found.apply(BrokerRegistered(2, 1, "in", 1, None, "", "", fenced=False, endpoints=endpoints))
    hints = [LeaderIdAndEpoch(leader_id=one, leader_epoch=0) for one in (1, 2)]
    given = {
        listener: [
            (one.node_id, one.host, one.port) for one in node_endpoints(found, hints, listener)
        ]
        for listener in ("PLAINTEXT", "X", "Y", "Z")
    }
    assert given == {
        "PLAINTEXT": [(1, "h1", 9093)],
        "X": [(2, "in", 1)],
        "Y": [(2, "out", 2)],
        "Z": [],
    }
