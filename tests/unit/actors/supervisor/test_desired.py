"""Copies of the desired state: read as written, refused when damaged, and the newest counts."""

from dataclasses import replace

import pytest

from raylog.actors.metadata.records import BrokerWanted
from raylog.actors.places import Place, Share
from raylog.actors.supervisor.rules.desired import DesiredCluster, newest, place_of, read_desired
from raylog.wire.errors import KafkaStorageError

BROKER = BrokerWanted(1, {"raylog-broker": "1"}, "/srv", {"broker.rack": "a"}, 0.5, 9, "d", ("e",))
CLUSTER = DesiredCluster("c", (BROKER,), ((1, "d"),), 7, "ray:c")


def test_desired_state_round_trips() -> None:
    assert read_desired(CLUSTER.to_bytes(), "x") == CLUSTER
    stopped = replace(CLUSTER, stopped=True)
    assert read_desired(stopped.to_bytes(), "x") == stopped
    assert (CLUSTER.broker(1), CLUSTER.broker(2)) == (BROKER, None)


@pytest.mark.parametrize(
    "contents",
    [b"", b"[]", b"{}", b'{"version": "1"}', CLUSTER.to_bytes().replace(b"labels", b"colours")],
)
def test_damaged_desired_state_is_named_in_the_error(contents: bytes) -> None:
    with pytest.raises(KafkaStorageError, match=r"/srv/wanted\.json says no brokers"):
        read_desired(contents, "/srv/wanted.json")


def test_a_newer_format_is_refused() -> None:
    with pytest.raises(KafkaStorageError, match="format 2, this build knows 1"):
        read_desired(CLUSTER.to_bytes().replace(b'"version": 1', b'"version": 2'), "x")


def test_the_newest_metadata_counts() -> None:
    newer = replace(CLUSTER, offset=8)
    assert newest([CLUSTER, newer, CLUSTER]) is newer
    assert newest([]) is None


def test_a_broker_has_a_share_of_the_node_with_its_label() -> None:
    assert place_of("c", BROKER) == Place({"raylog-broker": "1"}, Share("c/broker/1/0", 0.5, 9))
