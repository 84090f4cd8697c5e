"""Brokers and their files report the decisions of all actors; crashes are kept."""

from __future__ import annotations

import asyncio

import pytest

from raylog.actors.decisions import BROKER, CONTROLLER, ELECTION, FENCING, PROCESS
from raylog.actors.journal import JournalAsked, Noted, merged
from raylog.actors.names import REPLICA, broker_name
from raylog.actors.runtime.evidence import read_journal
from tests.support.load import Writer
from tests.support.ray_clusters import NewCluster, RayCluster, create, wait_until

TOPIC = "decided"
PARTITIONS = 3
"""Each broker leads one of them."""
ALL = JournalAsked(crashes=True)


def kept(cluster: RayCluster) -> list[Noted]:
    """What the files of all brokers tell."""
    return merged(
        read_journal(cluster.data / f"broker-{one}", ALL).noted for one in cluster.broker_ids
    )


@pytest.mark.long
def test_decisions_and_crashes_are_reported_and_outlive_the_cluster(
    new_cluster: NewCluster,
) -> None:
    cluster = new_cluster(brokers=3, settings={"default.replication.factor": "3"})
    cluster.start()
    create(cluster.bootstrap, TOPIC, PARTITIONS)
    with Writer(cluster.bootstrap, TOPIC, PARTITIONS) as writer:
        writer.until_acknowledged(10)
        killed = cluster.kill(REPLICA)
        cluster.until_succeeded(REPLICA, killed)
        writer.until_acknowledged(10)
        writer.finish()
    wait_until(lambda: {ELECTION, FENCING} <= {one.kind for one in kept(cluster)}, "the journal")
    decisions = asyncio.run(_asked(cluster))
    assert {CONTROLLER, BROKER, ELECTION, FENCING, PROCESS} <= {one.kind for one in decisions}
    elections = [one for one in decisions if one.kind == ELECTION]
    assert any(one.subject.startswith(f"{TOPIC}-") for one in elections)
    assert len({(one.subject, one.text) for one in elections}) == len(elections), "each once"
    assert cluster.stop() == {}
    crashes = {
        (crash.process, crash.pid)
        for one in cluster.broker_ids
        for crash in read_journal(cluster.data / f"broker-{one}", ALL).crashes
    }
    assert [pid for _, pid in crashes] == [killed], crashes
    assert set(decisions) <= set(kept(cluster)), "the files outlive the cluster"


async def _asked(cluster: RayCluster) -> list[Noted]:
    """What the brokers say themselves."""
    runtime = cluster.runtime
    journals = [
        await runtime.journal(broker_name(cluster.cluster_id, one), ALL, 10_000)
        for one in cluster.broker_ids
    ]
    return merged(one.noted for one in journals)
