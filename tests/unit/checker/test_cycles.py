"""Components and cycles of graphs."""

from itertools import pairwise
from random import Random

import pytest

from tests.checker.cycles import Edge, Graph, components, short_cycle

EDGE = Edge("ww", "came before")


def graph_of(edges: list[tuple[str, str]]) -> Graph:
    graph: Graph = {}
    for first, second in edges:
        graph.setdefault(first, {})[second] = EDGE
    return graph


def reachable(graph: Graph, start: str) -> set[str]:
    """What can be reached in one step or more."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = set(graph.get(waiting.pop(), ())) - found
        found |= new
        waiting += new
    return found


@pytest.mark.parametrize("seed", range(60))
def test_components_are_those_who_reach_each_other(seed: int) -> None:
    random = Random(seed)
    nodes = [str(n) for n in range(random.randint(2, 25))]
    pairs = [(random.choice(nodes), random.choice(nodes)) for _ in range(random.randint(1, 45))]
    graph = graph_of([(first, second) for first, second in pairs if first != second])
    reach = {node: reachable(graph, node) for node in nodes}
    expected = {
        frozenset(other for other in nodes if other in reach[node] and node in reach[other])
        for node in nodes
        if node in reach[node]
    }
    found = components(graph)
    assert {frozenset(component) for component in found} == expected
    assert len(found) == len(expected)
    for component in found:
        cycle = short_cycle(graph, component)
        assert len(cycle) == len(set(cycle)) > 1
        assert all(second in graph[first] for first, second in pairwise([*cycle, cycle[0]]))


def test_a_long_chain_needs_no_deep_recursion() -> None:
    count = 50_000
    edges = [(str(n), str(n + 1)) for n in range(count)]
    assert components(graph_of(edges)) == []
    (component,) = components(graph_of([*edges, (str(count), "0")]))
    assert len(component) == count + 1


def test_the_cycle_shown_is_a_shortest_one() -> None:
    ring = [(str(n), str((n + 1) % 10)) for n in range(10)]
    graph = graph_of([*ring, ("4", "3")])
    (component,) = components(graph)
    assert sorted(short_cycle(graph, component)) == ["3", "4"]
