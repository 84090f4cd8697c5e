"""Holds: what keeps a broker stopped, and what ends a hold."""

from __future__ import annotations

import pytest

from raylog.actors.metadata.records import BrokerWanted
from raylog.actors.names import broker_name
from raylog.actors.places import NodeEntry
from raylog.actors.supervisor.rules.desired import DesiredCluster
from raylog.actors.supervisor.rules.holds import Hold
from raylog.actors.supervisor.rules.machine import SupervisorMachine

WANTED = tuple(BrokerWanted(one, {"raylog-broker": str(one)}, "/srv", {}, 0.5, 1) for one in (0, 1))
CLUSTER = DesiredCluster("c", WANTED, ((0, "d"),))
BY_HAND = Hold(1, "stopped by hand")
FOR_A_MACHINE = Hold(1, "its machine goes down", "node-1")
RUNNING = {broker_name("c", 0)}


def node(broker_id: int, node_id: str = "") -> NodeEntry:
    name = node_id or f"node-{broker_id}"
    return NodeEntry(name, "10.0.0.1", {"raylog-broker": str(broker_id), "ray.io/node-id": name})


@pytest.mark.parametrize("hold", [BY_HAND, FOR_A_MACHINE])
def test_a_held_broker_is_not_started_and_that_is_reported(hold: Hold) -> None:
    machine = SupervisorMachine()
    assert machine.decide(CLUSTER, [node(0), node(1)], RUNNING, 0, {1: hold}) == []
    assert machine.troubles == {1: f"is held: {hold.why}"}
    assert machine.decide(CLUSTER, [node(0)], RUNNING, 1, {1: hold}) == [], "its machine is away"
    assert machine.troubles == {1: f"is held: {hold.why}"}
    assert machine.ended == []
    assert machine.decide(CLUSTER, [node(0), node(1)], RUNNING, 2, {}) == [WANTED[1]]
    assert machine.troubles == {}


def test_a_hold_for_a_machine_ends_when_that_is_back_under_another_id() -> None:
    machine = SupervisorMachine()
    back = [node(0), node(1, "again")]
    assert machine.decide(CLUSTER, back, RUNNING, 0, {1: FOR_A_MACHINE}) == [WANTED[1]]
    assert machine.ended == [1]
    assert machine.troubles == {}


def test_ray_may_still_list_the_node_that_has_ended() -> None:
    machine = SupervisorMachine()
    both = [node(0), node(1), node(1, "again")]
    assert machine.decide(CLUSTER, both, RUNNING, 0, {1: FOR_A_MACHINE}) == []
    assert machine.ended == []


def test_a_hold_by_hand_outlives_its_machine() -> None:
    machine = SupervisorMachine()
    assert machine.decide(CLUSTER, [node(0), node(1, "again")], RUNNING, 0, {1: BY_HAND}) == []
    assert machine.ended == []


def test_the_hold_of_a_broker_that_is_not_wanted_ends() -> None:
    machine = SupervisorMachine()
    nobody = Hold(7, "stopped by hand")
    assert machine.decide(CLUSTER, [node(0), node(1)], RUNNING, 0, {7: nobody}) == [WANTED[1]]
    assert machine.ended == [7]
    assert machine.troubles == {}
