"""The only voter's directory is lost or restored from an older copy, while others run or start."""

import shutil
from pathlib import Path

import pytest

from raylog.actors.broker.followed import NOTE_MS
from raylog.actors.broker.spec import broker_spec
from raylog.actors.metadata.followed import MetadataLost, MetadataRefused
from raylog.actors.names import broker_name
from raylog.wire.errors import BrokerNotAvailable
from tests.worlds.broker.virtual_brokers import VirtualBrokers, play
from tests.worlds.decorators import TMP_PATH, Fixture, in_world

SEEDS = range(3)


def directory(cluster: VirtualBrokers, broker_id: int) -> Path:
    return next(one.directory for one in cluster.plan.brokers if one.broker_id == broker_id)


def replicas(cluster: VirtualBrokers, broker_id: int) -> list[str]:
    """The partitions' directories of a broker."""
    return sorted(path.name for path in (directory(cluster, broker_id) / "topics").iterdir())


def saved(cluster: VirtualBrokers, broker_id: int, name: str) -> Path:
    """A copy of a broker's directory."""
    copy = cluster.data / name
    shutil.copytree(directory(cluster, broker_id), copy)
    return copy


async def made(cluster: VirtualBrokers, *names: str) -> None:
    """Create topics with a replica on each broker, and wait until these have made directories."""
    for name in names:
        await cluster.create(name, at=0, replicas=2)
    await cluster.agree_on(*names)
    await cluster.until(lambda: all(len(replicas(cluster, one)) == len(names) for one in (0, 1)))


async def end(cluster: VirtualBrokers, *broker_ids: int) -> None:
    """End brokers with their children, and the controller."""
    for broker_id in broker_ids:
        cluster.lose(broker_id)
        for name in cluster.names_of(broker_id):
            cluster.world.drop(name)
    for name in cluster.controllers():
        cluster.world.drop(name)


def put(cluster: VirtualBrokers, broker_id: int, copy: Path) -> None:
    """Put a copy in a directory's place."""
    shutil.rmtree(directory(cluster, broker_id), ignore_errors=True)
    shutil.copytree(copy, directory(cluster, broker_id))


async def ready(cluster: VirtualBrokers, broker_id: int, timeout_ms: int = 10_000) -> None:
    name = broker_name(cluster.plan.cluster_id, broker_id)
    await cluster.runtime.call(name, "ready", timeout_ms, timeout_ms=2 * timeout_ms)


def topics(cluster: VirtualBrokers, broker_id: int) -> set[str]:
    return set(cluster.broker(broker_id)._machine.image.topic_ids)


@pytest.mark.parametrize("seed", SEEDS)
@in_world(play, TMP_PATH, Fixture("seed"), brokers=2)
async def test_brokers_that_live_keep_all_when_the_only_voter_comes_back_empty(
    cluster: VirtualBrokers,
) -> None:
    await made(cluster, "t")
    before = replicas(cluster, 1)
    copy = saved(cluster, 0, "copy")
    await end(cluster, 0)
    shutil.rmtree(directory(cluster, 0))
    await cluster.come_back(0)
    with pytest.raises(
        MetadataLost,
        match=r"No voter .* have data of it: broker 1: 1 partition, metadata",
    ):
        await ready(cluster, 0)
    await cluster.runtime.sleep(60)
    assert replicas(cluster, 1) == before
    assert topics(cluster, 1) == {"t"}
    await end(cluster, 0)
    put(cluster, 0, copy)
    await cluster.come_back(0)
    await ready(cluster, 0)
    await cluster.create("u", at=1, replicas=2)
    await cluster.agree_on("t", "u")


@pytest.mark.parametrize("seed", SEEDS)
@in_world(play, TMP_PATH, Fixture("seed"), brokers=2)
async def test_the_controller_alone_ends_and_the_voters_log_is_gone(
    cluster: VirtualBrokers,
) -> None:
    """Neither may a restart of the controller, by the runtime, found anything."""

    await made(cluster, "t")
    before = replicas(cluster, 0), replicas(cluster, 1)
    copy = saved(cluster, 0, "copy")
    cluster.lose(0)
    shutil.rmtree(directory(cluster, 0) / "metadata")
    await cluster.come_back(0)
    for name in cluster.controllers():
        cluster.world.drop(name)
    with pytest.raises(
        MetadataLost,
        match=r"broker 0: 1 partition, metadata .*; broker 1: 1 partition, metadata",
    ):
        await ready(cluster, 0, 30_000)
    await cluster.runtime.sleep(30)
    assert (replicas(cluster, 0), replicas(cluster, 1)) == before
    await end(cluster, 0)
    shutil.copytree(copy / "metadata", directory(cluster, 0) / "metadata", dirs_exist_ok=True)
    await cluster.come_back(0)
    await ready(cluster, 0)
    await cluster.agree_on("t")


@in_world(play, TMP_PATH, 0, brokers=2)
async def test_an_empty_voter_that_starts_alone_waits_for_the_others(
    cluster: VirtualBrokers,
) -> None:
    await made(cluster, "t")
    before = replicas(cluster, 1)
    copy = saved(cluster, 0, "copy")
    await end(cluster, 0, 1)
    shutil.rmtree(directory(cluster, 0))
    await cluster.come_back(0)
    waits = "no voter has any metadata, and broker 1 has not said yet that it knows none"
    with pytest.raises(BrokerNotAvailable, match=f"broker 0 is still starting: .*{waits}"):
        await ready(cluster, 0)
    await cluster.come_back(1)
    with pytest.raises(MetadataLost):
        await ready(cluster, 1)
    assert replicas(cluster, 1) == before
    await end(cluster, 0, 1)
    put(cluster, 0, copy)
    await cluster.come_back(0)
    await cluster.come_back(1)
    await ready(cluster, 1)
    await cluster.agree_on("t")


@pytest.mark.parametrize("topics_made", [0, 40])
@in_world(play, TMP_PATH, 0, brokers=2)
async def test_a_cluster_founded_behind_a_brokers_back_is_refused_for_ever(
    cluster: VirtualBrokers, *, topics_made: int
) -> None:
    """Whoever started it did not know of the others, and its metadata may be longer by now."""

    await made(cluster, "t")
    before = replicas(cluster, 1)
    copy = saved(cluster, 0, "copy")
    await end(cluster, 0, 1)
    shutil.rmtree(directory(cluster, 0))
    plan = cluster.plan.brokers[0]
    alone = broker_spec(
        cluster_id=cluster.plan.cluster_id,
        broker_id=0,
        data=plan.directory,
        settings=plan.settings,
        broker_ids=[0],
        initial_voters=list(cluster.plan.initial_voters),
    )
    await cluster.runtime.spawn(alone)
    await ready(cluster, 0)
    for number in range(topics_made):
        await cluster.create(f"new-{number}", at=0, replicas=1)
    await cluster.come_back(1)
    with pytest.raises(MetadataRefused, match=r"broker 1 cannot follow .*: it is metadata "):
        await ready(cluster, 1)
    await cluster.runtime.sleep(30)
    assert replicas(cluster, 1) == before
    await end(cluster, 0)
    put(cluster, 0, copy)
    await cluster.come_back(0)
    await ready(cluster, 0)
    await cluster.until(lambda: cluster.broker(1)._state == "running", 30)
    await cluster.agree_on("t")


@pytest.mark.parametrize("alive", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
@in_world(play, TMP_PATH, Fixture("seed"), brokers=2)
async def test_an_older_copy_of_the_voters_directory_is_refused(
    cluster: VirtualBrokers, *, alive: bool
) -> None:
    older = saved(cluster, 0, "older")
    await made(cluster, "t", "u", "v")
    await cluster.runtime.sleep(2 * NOTE_MS / 1000)
    before = replicas(cluster, 1)
    newer = saved(cluster, 0, "newer")
    await end(cluster, *((0,) if alive else (0, 1)))
    put(cluster, 0, older)
    await cluster.come_back(0)
    if not alive:
        await cluster.come_back(1)
        with pytest.raises(MetadataRefused, match=r"up to offset .*the broker has followed"):
            await ready(cluster, 1, 30_000)
    else:
        await cluster.runtime.sleep(60)
        assert topics(cluster, 1) == {"t", "u", "v"}
    assert replicas(cluster, 1) == before
    await end(cluster, 0)
    put(cluster, 0, newer)
    await cluster.come_back(0)
    await cluster.agree_on("t", "u", "v")
