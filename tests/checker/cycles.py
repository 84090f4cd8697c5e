"""Cycles of dependencies between transactions, after Adya: G0 and G1c.

An edge leads from a committed transaction to another one that must come after it:

| edge | reason |
|---|---|
| ww | it wrote before the other in the same partition |
| wr | the other read (read committed) what it wrote |
| process | one process did both, it first |

Kafka isolates reads, not writes: transactions interleave differently in each partition. So cycles
that need ww edges are legal unless `Options.write_isolation` is set. A cycle of wr and process
edges alone never is: a read follows the commit of what it reads and precedes its own commit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from tests.checker.anomalies import Anomaly, Kind, Options
from tests.checker.index import Fate, Index
from tests.checker.offsets import name_of
from tests.checker.operations import Partition

_STARTS_MAX = 16
"""The most members of a component from which to search for a short cycle."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Why one transaction comes before another."""

    kind: str
    why: str
    partition: Partition | None = None
    values: tuple[str, ...] = ()


Graph = dict[str, dict[str, Edge]]
"""By transaction, those that come after it."""


def check_cycles(index: Index, options: Options) -> Iterator[Anomaly]:
    """One anomaly per strongly connected component, with a short cycle of it."""
    writes, reads = _write_edges(index), _read_edges(index)
    order = _process_edges(index) if options.process_order else {}
    explained: set[str] = set()
    for kind, graph in (
        (Kind.G1C, _union(reads, order)),
        (Kind.G0, _union(writes, order)),
        (Kind.G1C_WITH_WRITES, _union(reads, writes, order)),
    ):
        for component in components(graph):
            if kind is Kind.G1C_WITH_WRITES and not explained.isdisjoint(component):
                continue
            explained.update(component)
            yield _anomaly(kind, graph, short_cycle(graph, component))


def _is_committed(index: Index, name: str) -> bool:
    transaction = index.transactions.get(name)
    return transaction is not None and transaction.fate is Fate.COMMITTED


def _link(graph: Graph, first: str, second: str, edge: Edge) -> None:
    if first != second:
        graph.setdefault(first, {}).setdefault(second, edge)


def _write_edges(index: Index) -> Graph:
    """From each transactional record's transaction to that of the next one in the partition."""
    graph: Graph = {}
    for partition, log in index.logs.items():
        written = []
        for send in log.sends:
            name = send.transaction
            offset = send.offset if send.offset is not None else log.offset_of.get(send.value)
            if name is not None and offset is not None and _is_committed(index, name):
                written.append((offset, name, send.value))
        written.sort()
        for (at, first, value), (next_at, second, next_value) in pairwise(written):
            if first != second:
                why = f"wrote {value} at {at} of {name_of(partition)}, before {next_value} at "
                edge = Edge("ww", f"{why}{next_at} of", partition, (value, next_value))
                _link(graph, first, second, edge)
    return graph


def _read_edges(index: Index) -> Graph:
    """From the transaction that wrote a record to one that read it."""
    graph: Graph = {}
    for poll in index.history.polls:
        reader = poll.transaction
        if reader is None or not poll.read_committed or not _is_committed(index, reader):
            continue
        for partition, _, values in poll.batches:
            for value in values:
                send = index.writer.get(value)
                writer = None if send is None else send.transaction
                if writer is not None and writer != reader and _is_committed(index, writer):
                    why = f"wrote {value} to {name_of(partition)}, which was read by"
                    _link(graph, writer, reader, Edge("wr", why, partition, (value,)))
    return graph


def _process_edges(index: Index) -> Graph:
    """From each transaction of a process to the next one."""
    graph: Graph = {}
    last: dict[str, str] = {}
    for begin in index.history.begins:
        if not _is_committed(index, begin.transaction):
            continue
        before = last.get(begin.process)
        if before is not None:
            edge = Edge("process", f"came in {begin.process} before")
            _link(graph, before, begin.transaction, edge)
        last[begin.process] = begin.transaction
    return graph


def _union(*graphs: Graph) -> Graph:
    union: Graph = {}
    for graph in graphs:
        for first, edges in graph.items():
            for second, edge in edges.items():
                _link(union, first, second, edge)
    return union


def components(graph: Graph) -> list[list[str]]:
    """Strongly connected components of more than one member (Tarjan), without recursion."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    waiting: list[str] = []
    on_stack: set[str] = set()
    found: list[list[str]] = []
    for root in graph:
        if root in number:
            continue
        path = [(root, iter(graph[root]))]
        _enter(root, number, low, waiting, on_stack)
        while path:
            node, successors = path[-1]
            for successor in successors:
                if successor not in number:
                    _enter(successor, number, low, waiting, on_stack)
                    path.append((successor, iter(graph.get(successor, ()))))
                    break
                if successor in on_stack:
                    low[node] = min(low[node], number[successor])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == number[node]:
                    component = _leave(node, waiting, on_stack)
                    if len(component) > 1:
                        found.append(component)
    return found


def _enter(
    node: str, number: dict[str, int], low: dict[str, int], waiting: list[str], on_stack: set[str]
) -> None:
    number[node] = low[node] = len(number)
    waiting.append(node)
    on_stack.add(node)


def _leave(node: str, waiting: list[str], on_stack: set[str]) -> list[str]:
    """Pop a complete component from the stack."""
    component: list[str] = []
    while not component or component[-1] != node:
        component.append(waiting.pop())
        on_stack.discard(component[-1])
    return component


def short_cycle(graph: Graph, component: list[str]) -> list[str]:
    """A short cycle within a component. Its first member is not repeated at the end."""
    members = set(component)
    shortest: list[str] = []
    for start in component[:_STARTS_MAX]:
        cycle = _cycle_through(graph, members, start)
        if not shortest or len(cycle) < len(shortest):
            shortest = cycle
    return shortest


def _cycle_through(graph: Graph, members: set[str], start: str) -> list[str]:
    """The shortest cycle through a member of a component, by breadth-first search."""
    came_from: dict[str, str] = {}
    queue = deque([start])
    while start not in came_from:
        node = queue.popleft()
        for successor in graph[node]:
            if successor in members and successor not in came_from:
                came_from[successor] = node
                queue.append(successor)
    cycle = [start]
    while (node := came_from[cycle[-1]]) != start:
        cycle.append(node)
    return cycle[::-1]


def _anomaly(kind: Kind, graph: Graph, cycle: list[str]) -> Anomaly:
    edges = [graph[first][second] for first, second in pairwise([*cycle, cycle[0]])]
    steps = [f"{name} {edge.why}" for name, edge in zip(cycle, edges, strict=True)]
    partitions = [edge.partition for edge in edges if edge.partition is not None]
    return Anomaly(
        kind,
        "; ".join(
            f"{step} {after}" for step, after in zip(steps, [*cycle[1:], cycle[0]], strict=True)
        ),
        partitions[0] if partitions else None,
        tuple(value for edge in edges for value in edge.values),
        transactions=tuple(cycle),
    )
