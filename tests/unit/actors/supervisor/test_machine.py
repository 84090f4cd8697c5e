"""The supervisor's decisions: which broker starts where, which does not, and why."""

from raylog.actors.backoff import LOSSES_AT_ONCE
from raylog.actors.metadata.records import BrokerWanted
from raylog.actors.names import broker_name
from raylog.actors.places import NodeEntry
from raylog.actors.supervisor.rules.desired import DesiredCluster
from raylog.actors.supervisor.rules.machine import SupervisorMachine


def labelled(broker_id: int) -> BrokerWanted:
    return BrokerWanted(broker_id, {"raylog-broker": str(broker_id)}, "/srv", {}, 0.5, 1)


WANTED = [labelled(number) for number in range(3)]
CLUSTER = DesiredCluster("c", tuple(WANTED), ((0, "d"),))


def node(broker_id: int, node_id: str = "") -> NodeEntry:
    name = node_id or f"node-{broker_id}"
    return NodeEntry(name, "10.0.0.1", {"raylog-broker": str(broker_id), "ray.io/node-id": name})


def running(*broker_ids: int) -> set[str]:
    return {broker_name("c", one) for one in broker_ids}


def test_brokers_are_started_where_a_node_carries_their_label() -> None:
    machine = SupervisorMachine()
    nodes = [node(0), node(1), NodeEntry("x", "10.0.0.9", {})]
    assert machine.decide(CLUSTER, nodes, running(0), 0) == [WANTED[1]]
    assert machine.troubles == {2: "no live node carries raylog-broker=2"}
    assert machine.decide(CLUSTER, nodes, running(0), 1) == [], "it is being started"
    machine.started(1)
    assert machine.decide(CLUSTER, nodes, running(0, 1), 2) == []


def test_a_node_that_returns_under_another_id_gets_its_broker_back() -> None:
    machine = SupervisorMachine()
    assert machine.decide(CLUSTER, [node(0), node(2)], running(0, 2), 0) == []
    assert machine.decide(CLUSTER, [node(0), node(1, "new"), node(2)], running(0, 2), 9) == [
        WANTED[1]
    ]
    assert machine.troubles == {}


def test_two_nodes_with_one_label_are_refused() -> None:
    machine = SupervisorMachine()
    nodes = [node(0), node(1, "a"), node(1, "b")]
    assert machine.decide(CLUSTER, nodes, running(0, 2), 0) == []
    assert machine.troubles == {1: "expected one node with raylog-broker=1, found 2: a, b"}
    assert machine.decide(CLUSTER, nodes, running(0, 1, 2), 0) == []
    assert set(machine.troubles) == {1}, "that is told while it runs, too"


def test_running_or_restarting_processes_are_left_alone() -> None:
    machine = SupervisorMachine()
    assert machine.decide(CLUSTER, [], running(0, 1, 2), 0) == []
    assert machine.troubles == {}


def test_a_broker_that_does_not_start_is_tried_ever_more_slowly() -> None:
    machine = SupervisorMachine()
    starts, now_ms = [], 0
    for now_ms in range(0, 30_000, 100):
        for _ in machine.decide(CLUSTER, [node(0)], running(1, 2), now_ms):
            starts.append(now_ms)
            machine.failed(0, "the port is taken", now_ms)
    assert machine.troubles == {0: "the port is taken"}
    assert starts[:LOSSES_AT_ONCE] == [100 * number for number in range(LOSSES_AT_ONCE)]
    assert len(starts) < 3 * LOSSES_AT_ONCE
    machine.failed(0, "again", now_ms)
    machine.started(0)
    machine.decide(CLUSTER, [node(0)], running(0, 1, 2), now_ms)
    assert machine.troubles == {}
