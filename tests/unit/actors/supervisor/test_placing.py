"""Which broker goes to which node: labels, unlabelled nodes, existing directories."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raylog.actors.broker.identity import Identity
from raylog.actors.metadata.records import BrokerWanted
from raylog.actors.places import NODE_ID_LABEL, NodeEntry
from raylog.actors.supervisor.placing import (
    LABEL,
    PlacementAsked,
    SurveyedNode,
    first_voters,
    is_misplaced,
    placed,
    settled,
    surviving,
)
from raylog.actors.supervisor.rules.desired import DesiredCluster
from raylog.actors.supervisor.survey import NodeFacts
from raylog.wire.errors import InconsistentClusterId, InvalidConfig

ASKED = PlacementAsked("/srv/raylog", 9092, insecure=True)


def node(number: int, label: str | None = None, *identities: Identity) -> SurveyedNode:
    labels = {NODE_ID_LABEL: f"id{number}"} | ({} if label is None else {LABEL: label})
    entry = NodeEntry(f"id{number}", f"10.0.0.{number}", labels)
    return SurveyedNode(entry, NodeFacts("build", identities))


def listeners(brokers: list[BrokerWanted]) -> list[str]:
    return [one.settings["listeners"] for one in brokers]


def test_labelled_nodes_get_the_brokers_of_their_labels() -> None:
    found = placed(ASKED, [node(1, "7"), node(2), node(3, "4")])
    assert [(one.broker_id, one.labels) for one in found] == [(4, {LABEL: "4"}), (7, {LABEL: "7"})]
    assert listeners(found) == ["PLAINTEXT://{node.host}:9092"] * 2
    assert [one.directory for one in found] == ["/srv/raylog/broker-4", "/srv/raylog/broker-7"]
    assert {one.directory_id for one in found} == {""}


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (("1", "1"), "id1 and id2 are both labelled raylog-broker=1"),
        (("one", "2"), "raylog-broker=one, expected a broker's id"),
    ],
)
def test_labels_that_cannot_be_meant_are_refused(labels: tuple[str, str], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        placed(ASKED, [node(1, labels[0]), node(2, labels[1])])


def test_more_brokers_than_labelled_nodes_are_refused() -> None:
    asked = replace(ASKED, brokers=3)
    with pytest.raises(InvalidConfig, match="3 brokers were asked for, and 2 nodes"):
        placed(asked, [node(1, "0"), node(2, "1")])


def test_unlabelled_nodes_get_one_each_held_by_their_ids() -> None:
    found = placed(replace(ASKED, first_broker_id=5, racks=("a", "b")), [node(2), node(1)])
    assert [(one.broker_id, one.labels) for one in found] == [
        (5, {NODE_ID_LABEL: "id1"}),
        (6, {NODE_ID_LABEL: "id2"}),
    ]
    assert [one.settings["broker.rack"] for one in found] == ["a", "b"]


def test_two_on_one_node_have_to_be_meant() -> None:
    asked = replace(ASKED, brokers=3)
    with pytest.raises(InvalidConfig, match="2 nodes: with --same-node"):
        placed(asked, [node(1), node(2)])
    found = placed(replace(asked, same_node=True), [node(1), node(2)])
    assert [one.labels[NODE_ID_LABEL] for one in found] == ["id1", "id2", "id1"]
    assert listeners(found) == [
        "PLAINTEXT://{node.host}:9092",
        "PLAINTEXT://{node.host}:9092",
        "PLAINTEXT://{node.host}:9093",
    ]


def test_a_directory_stays_with_its_broker() -> None:
    found = placed(ASKED, [node(1), node(2, None, Identity("c", 8, "d"))])
    assert {one.broker_id: one.labels[NODE_ID_LABEL] for one in found} == {0: "id1", 8: "id2"}


def test_new_nodes_are_given_brokers_beside_the_known_ones() -> None:
    first = placed(ASKED, [node(1, "0"), node(2, "1")])
    more = placed(ASKED, [node(1, "0"), node(2, "1"), node(3, "2")], first)
    assert [one.broker_id for one in more] == [2]


def test_an_address_of_all_interfaces_is_reported_as_the_nodes_own() -> None:
    (found,) = placed(replace(ASKED, host="0.0.0.0"), [node(1)])
    assert found.settings["advertised.listeners"] == "PLAINTEXT://{node.host}:9092"


def test_other_machines_are_let_in_only_if_that_is_asked_for() -> None:
    with pytest.raises(InvalidConfig):
        placed(replace(ASKED, insecure=False), [node(1)])


def test_directories_tell_of_a_cluster_that_ray_has_forgotten() -> None:
    (broker,) = placed(ASKED, [node(1, "0")])
    old = DesiredCluster("c", (), ((0, "d"),), 5)
    new = DesiredCluster("c", (broker,), ((0, "d"),), 6)
    nodes = [
        replace(node(n), facts=NodeFacts("build", (Identity("c", n, "d"),), (copy.to_bytes(),)))
        for n, copy in ((1, old), (2, new))
    ]
    assert surviving(nodes) == new
    bare = [node(1, "0", Identity("c", 0, "d", ((0, "d"),)))]
    assert surviving(bare) == DesiredCluster("c", (), ((0, "d"),))
    assert surviving([node(1)]) is None
    with pytest.raises(InconsistentClusterId, match="different clusters: b, c"):
        surviving([node(1, None, Identity("c", 0, "d")), node(2, None, Identity("b", 1, "e"))])


def test_a_broker_held_by_a_node_id_follows_its_directory() -> None:
    held = placed(ASKED, [node(1)])
    labelled = placed(ASKED, [node(2, "5")])
    cluster = DesiredCluster("c", (*held, *labelled), ())
    back = node(9, None, Identity("c", held[0].broker_id, "d"), Identity("c", 5, "e"))
    assert [one.labels for one in settled(cluster, [back])] == [
        {NODE_ID_LABEL: "id9"},
        {LABEL: "5"},
    ]


def test_a_cluster_asked_for_before_labelled_nodes_came_is_placed_anew_if_it_never_ran() -> None:
    early = DesiredCluster("c", tuple(placed(ASKED, [node(0)])), ((0, "d"),))
    labelled = [node(1, "0"), node(2, "1")]
    assert is_misplaced(early, labelled)
    assert not is_misplaced(early, [node(0)])
    assert not is_misplaced(replace(early, offset=5), labelled)
    assert not is_misplaced(replace(early, is_in_metadata=True), labelled)
    assert not is_misplaced(early, [*labelled, node(3, "2", Identity("c", 0, "d"))])
    held = placed(ASKED, labelled)
    assert not is_misplaced(replace(early, brokers=tuple(held)), labelled)


def test_three_brokers_or_one_hold_the_first_metadata() -> None:
    brokers = placed(ASKED, [node(n) for n in range(5)])
    assert first_voters(brokers) == [0, 1, 2]
    assert first_voters(brokers[:2]) == [0]
