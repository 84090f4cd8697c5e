"""`raylog status`: every actor and every partition."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from raylog.cli.failures import EXIT_UNREACHABLE, CommandFailed
from raylog.cli.options import DEFAULT_DATA, Data, Json
from raylog.cli.output import human_bytes, print_json, print_table

if TYPE_CHECKING:
    from raylog.actors.broker.api import BrokerStatus
    from raylog.cli.cluster_record import ClusterRecord

Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """A cluster as it stands."""

    cluster_id: str
    bootstrap: list[str]
    actors: list[Row]
    partitions: list[Row]


def status(data: Data = DEFAULT_DATA, as_json: Json = False) -> None:
    """Show every actor and every partition of the cluster that runs on a data directory."""
    found = read_status(data)
    if as_json:
        print_json(
            {
                "cluster_id": found.cluster_id,
                "bootstrap": found.bootstrap,
                "actors": found.actors,
                "partitions": found.partitions,
            }
        )
        return
    typer.echo(f"cluster {found.cluster_id} at {','.join(found.bootstrap)}")
    print_table(
        "actors",
        ["role", "broker#", "pid#", "state", "restarts#", "partitions#", "node", "name"],
        [list(row.values()) for row in found.actors],
    )
    print_table(
        "partitions",
        ["topic", "partition#", "leader#", "epoch#", "in sync", "first#", "end#", "size#"],
        [
            (*list(row.values())[:7], human_bytes(int(str(row["size_bytes"]))))
            for row in found.partitions
        ],
    )


def read_status(data: Path) -> ClusterStatus:
    """Ask the brokers that were started on a data directory."""
    from raylog.actors.runtime.base import PeerLost, PeerTimeout
    from raylog.cli.cluster_record import read_record
    from raylog.cli.local_cluster import is_up, statuses

    run = data.absolute() / "run"
    record = read_record(run)
    if record is None or not is_up(run):
        raise CommandFailed(
            f"no cluster is running on {data}",
            f"Start it with: raylog up --data {data}",
            EXIT_UNREACHABLE,
        )
    try:
        brokers = statuses(record)
    except (PeerLost, PeerTimeout) as failure:
        raise CommandFailed(
            f"a broker does not answer: {failure}",
            f"It may be restarting; its logs are under {run / 'ray' / 'session_latest' / 'logs'}",
            EXIT_UNREACHABLE,
        ) from failure
    return ClusterStatus(
        record.cluster_id,
        record.bootstrap,
        [row for broker in brokers for row in _actor_rows(broker)],
        _partition_rows(brokers, _in_sync(record)),
    )


def summary(record: ClusterRecord) -> str:
    """The cluster in one line, for the foreground."""
    from raylog.actors.runtime.base import PeerLost, PeerTimeout
    from raylog.cli.local_cluster import statuses

    try:
        brokers = statuses(record)
    except (PeerLost, PeerTimeout):
        return "a broker does not answer; it may be restarting"
    running = sum(broker.state == "running" for broker in brokers)
    led = [at for broker in brokers for at in broker.partitions if at.is_leader]
    restarts = sum(child.restarts for broker in brokers for child in broker.children)
    return (
        f"{running} of {len(brokers)} brokers running, {len(led)} partitions, "
        f"{human_bytes(sum(at.size_bytes for at in led))}, {restarts} restarts"
    )


def _actor_rows(broker: BrokerStatus) -> list[Row]:
    """A broker and its children."""
    own: Row = {
        "role": "broker",
        "broker": broker.broker_id,
        "pid": broker.pid,
        "state": broker.state,
        "restarts": broker.restarts,
        "partitions": len(broker.partitions),
        "node": None,
        "name": f"{broker.cluster_id}/broker/{broker.broker_id}/0",
    }
    children: list[Row] = [
        {
            "role": child.role,
            "broker": broker.broker_id,
            "pid": child.pid,
            "state": child.state,
            "restarts": child.restarts,
            "partitions": child.partitions,
            "node": child.node_id[:8],
            "name": child.name,
        }
        for child in broker.children
    ]
    return [own, *children]


def _in_sync(record: ClusterRecord) -> dict[tuple[str, int], tuple[int, list[int]]]:
    """Leader and in-sync replicas of each partition, as clients are told."""
    from raylog.client import BlockingClient

    with BlockingClient(record.bootstrap) as client:
        topics = client.metadata().topics
    return {
        (name, index): (view.leader, list(view.isr))
        for name, topic in topics.items()
        for index, view in topic.partitions.items()
    }


def _partition_rows(
    brokers: list[BrokerStatus], in_sync: dict[tuple[str, int], tuple[int, list[int]]]
) -> list[Row]:
    """Each partition as its leader has it; those without a leader at the end."""
    led = {
        (at.topic, at.partition): at
        for broker in brokers
        for at in broker.partitions
        if at.is_leader
    }
    rows: list[Row] = []
    for (topic, partition), (leader, isr) in sorted(in_sync.items()):
        at = led.get((topic, partition))
        rows.append(
            {
                "topic": topic,
                "partition": partition,
                "leader": leader if leader >= 0 else None,
                "leader_epoch": at.leader_epoch if at else None,
                "isr": isr,
                "log_start_offset": at.log_start_offset if at else None,
                "high_watermark": at.high_watermark if at else None,
                "size_bytes": at.size_bytes if at else -1,
                "segments": at.segments if at else None,
            }
        )
    return rows
