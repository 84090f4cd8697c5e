"""Brokers that begin to hold the metadata log, and brokers that lose it, under virtual time."""

import itertools
import shutil
from pathlib import Path

import pytest

from raylog.actors.broker.identity import read_identity
from raylog.actors.controller.messages import AddVoter, QuorumDescription, RemoveVoter
from raylog.simulation.loop import run_in_virtual_time
from raylog.wire.errors import DuplicateVoter, RequestTimedOut, VoterNotFound
from tests.worlds.broker.virtual_brokers import ROLES, VirtualBrokers, play
from tests.worlds.decorators import TMP_PATH, in_world
from tests.worlds.virtual_time import VirtualWorld

SEEDS = range(3)


def directory(cluster: VirtualBrokers, broker_id: int) -> str:
    """The id of the directory that a broker has."""
    return cluster.broker(broker_id)._data.identity.directory_id


async def add(cluster: VirtualBrokers, broker_id: int, *, at: int = 0) -> None:
    asked = AddVoter(broker_id, directory(cluster, broker_id), 2_000)
    await cluster.ask("add_voter", asked, at=at)


async def voters(cluster: VirtualBrokers, *, at: int = 0) -> list[int]:
    described: QuorumDescription = await cluster.ask("describe_quorum", at=at)
    return [one.broker_id for one in described.voters]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lost_voter_is_replaced_and_another_one_may_go(tmp_path: Path, seed: int) -> None:
    async def story(cluster: VirtualBrokers) -> None:
        await cluster.create("before")
        lost = directory(cluster, 2)
        path = cluster.broker(2)._path
        cluster.lose(2)
        shutil.rmtree(path)
        await cluster.create("meanwhile", at=0, replicas=2)
        await cluster.come_back(2)
        await cluster.until(lambda: cluster.broker(2)._state == "running", 30)
        assert directory(cluster, 2) != lost
        described: QuorumDescription = await cluster.ask("describe_quorum", at=0)
        assert (2, lost) in [one[:2] for one in described.voters]
        assert [one[:2] for one in described.observers] == [(2, directory(cluster, 2))]
        with pytest.raises(DuplicateVoter):
            await add(cluster, 2)
        await cluster.ask("remove_voter", RemoveVoter(2, lost), at=0)
        assert await voters(cluster) == [0, 1]
        await add(cluster, 2)
        assert await voters(cluster) == [0, 1, 2]
        cluster.lose(0)
        await cluster.create("after", at=2, replicas=2)
        assert await voters(cluster, at=2) == [0, 1, 2]
        await cluster.come_back(0)
        await cluster.agree_on("before", "meanwhile", "after")
        await cluster.until(lambda: all(noted(cluster, one) for one in range(3)))

    def noted(cluster: VirtualBrokers, broker_id: int) -> bool:
        identity = read_identity(cluster.broker(broker_id)._path)
        return identity is not None and (2, directory(cluster, 2)) in identity.voters

    play(story, tmp_path, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_grows_from_one_voter_to_three(tmp_path: Path, seed: int) -> None:
    seeds = itertools.count(10 * seed)

    async def main() -> None:
        cluster = VirtualBrokers(VirtualWorld(lambda role: ROLES[role], next(seeds)), tmp_path)
        await cluster.start(1)
        await cluster.create("alone", at=0, replicas=1)
        await cluster.stop()
        cluster = VirtualBrokers(VirtualWorld(lambda role: ROLES[role], next(seeds)), tmp_path)
        await cluster.start(3, controller_quorum_auto_join_enable="false")
        assert await voters(cluster) == [0]
        assert [cluster.broker(one)._votes for one in range(3)] == [True, False, False]
        await add(cluster, 1)
        await add(cluster, 2)
        assert await voters(cluster) == [0, 1, 2]
        # The controller was started when broker 0 alone was known to vote.
        cluster.lose(0)
        cluster.world.drop(cluster.serving()[0])
        await cluster.create("without-it", at=1, replicas=2)
        await cluster.come_back(0)
        await cluster.agree_on("alone", "without-it")
        await cluster.stop()
        cluster = VirtualBrokers(VirtualWorld(lambda role: ROLES[role], next(seeds)), tmp_path)
        await cluster.start(3)
        assert await voters(cluster) == [0, 1, 2]
        await cluster.agree_on("alone", "without-it")
        await cluster.stop()

    run_in_virtual_time(lambda _: main())


@in_world(play, TMP_PATH, 0)
async def test_any_voter_can_be_removed_down_to_one_and_come_again(cluster: VirtualBrokers) -> None:
    for broker_id in (0, 1):
        asked = RemoveVoter(broker_id, directory(cluster, broker_id))
        await cluster.ask("remove_voter", asked)
        await cluster.create(f"without-{broker_id}")
    assert await voters(cluster) == [2]
    last = RemoveVoter(2, directory(cluster, 2))
    with pytest.raises(VoterNotFound):
        await cluster.ask("remove_voter", last)
    await cluster.runtime.sleep(5)
    assert [cluster.broker(one)._votes for one in range(3)] == [False, False, True]
    cluster.lose(0)
    await cluster.create("one-is-enough", replicas=2)
    await cluster.come_back(0)
    await cluster.until(lambda: cluster.broker(0)._state == "running", 30)
    await add(cluster, 0, at=2)
    assert await voters(cluster) == [2, 0]
    await cluster.agree_on("without-0", "without-1", "one-is-enough")


@in_world(play, TMP_PATH, 1)
async def test_the_voter_beside_the_controller_is_removed_like_any_other(
    cluster: VirtualBrokers,
) -> None:
    cluster.world.drop(cluster.first)
    await cluster.create("t")
    [name] = cluster.serving()
    starter = int(name.rpartition("/")[2].partition(".")[0])
    at = (starter + 1) % 3
    await cluster.ask("remove_voter", RemoveVoter(starter, directory(cluster, starter)), at=at)
    await cluster.create("u", at=at)
    assert cluster.serving() == [name]
    assert len(await voters(cluster, at=at)) == 2
    cluster.lose(starter)
    cluster.world.drop(name)
    await cluster.create("v", at=at, replicas=2)
    await cluster.come_back(starter)
    await cluster.agree_on("t", "u", "v")


@in_world(play, TMP_PATH, 2)
async def test_absent_voter_is_not_added_and_removed_voter_causes_no_election(
    cluster: VirtualBrokers,
) -> None:
    with pytest.raises(RequestTimedOut, match="broker 9 is not registered"):
        await cluster.ask("add_voter", AddVoter(9, "d9", 500), at=0)
    for name in cluster.names_of(2):
        cluster.world.cut_off(name)
    await cluster.ask("remove_voter", RemoveVoter(2, directory(cluster, 2)), at=0)
    epoch = cluster.images()[0].controller_epoch
    await cluster.runtime.sleep(20)  # it looks for a controller, and starts one
    with pytest.raises(RequestTimedOut, match="lagging behind"):
        await add(cluster, 2)
    cluster.world.cut.clear()
    await cluster.create("t", at=0)
    await cluster.until(lambda: not cluster.broker(2)._votes)
    assert cluster.images()[0].controller_epoch == epoch
    await add(cluster, 2)
    assert await voters(cluster) == [0, 1, 2]


def test_voters_join_by_themselves(tmp_path: Path) -> None:
    async def main() -> None:
        cluster = VirtualBrokers(VirtualWorld(lambda role: ROLES[role], 1), tmp_path)
        await cluster.start(1)
        await cluster.stop()
        cluster = VirtualBrokers(VirtualWorld(lambda role: ROLES[role], 2), tmp_path)
        await cluster.start(3)

        def three_vote() -> bool:
            return all(cluster.broker(one)._votes for one in range(3))

        await cluster.until(three_vote, 30)
        path, lost = cluster.broker(1)._path, directory(cluster, 1)
        cluster.lose(1)
        shutil.rmtree(path)
        await cluster.runtime.sleep(10)
        await cluster.come_back(1)
        await cluster.until(lambda: cluster.broker(1)._state == "running", 30)
        await cluster.until(three_vote, 30)
        assert directory(cluster, 1) != lost
        assert sorted(await voters(cluster)) == [0, 1, 2]
        await cluster.stop()

    run_in_virtual_time(lambda _: main())
