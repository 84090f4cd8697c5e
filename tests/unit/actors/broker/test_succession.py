"""Three voters under virtual time: when each starts a controller, and that only one wins."""

import asyncio
from pathlib import Path

import pytest

from raylog.actors.controller.actor import ControllerActor
from raylog.actors.controller.messages import CreateTopics, NewTopic
from raylog.actors.controller.term import Term
from raylog.actors.peers import metadata_copies as snapshots
from raylog.wire.errors import NotController
from tests.worlds.broker.virtual_brokers import VirtualBrokers, play
from tests.worlds.decorators import TMP_PATH, Fixture, in_world

SEEDS = range(3)


@in_world(play, TMP_PATH, 0)
async def test_the_first_three_brokers_of_a_new_cluster_hold_the_metadata_log(
    trio: VirtualBrokers,
) -> None:
    assert [broker_id for broker_id, _ in trio.plan.initial_voters] == [0, 1, 2]
    await trio.create("t")
    await trio.agree_on("t")
    for image in trio.images():
        assert image.voters == trio.plan.initial_voters
        assert (image.controller_epoch, image.controller) == (1, trio.first)
    assert trio.controllers() == [trio.first]


@pytest.mark.parametrize("seed", SEEDS)
@in_world(play, TMP_PATH, Fixture("seed"))
async def test_a_controller_that_is_gone_is_replaced_under_another_name(
    trio: VirtualBrokers,
) -> None:
    await trio.create("before")
    trio.world.drop(trio.first)
    began = asyncio.get_running_loop().time()
    await trio.create("after")
    assert asyncio.get_running_loop().time() - began < 6
    await trio.agree_on("before", "after")
    for image in trio.images():
        assert image.controller.startswith(f"{trio.first}/")
        assert all(broker.is_live for broker in image.brokers.values())


def test_a_controller_that_loads_for_longer_than_the_lease_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_lease = ControllerActor._keep_lease

    async def slowly(controller: ControllerActor, term: Term) -> None:
        await keep_lease(controller, term)
        await controller._runtime.sleep(0.25)

    async def story(trio: VirtualBrokers) -> None:
        for number in range(4):
            await trio.create(f"t{number}")
        monkeypatch.setattr(snapshots, "SLICE_RECORDS", 1)
        monkeypatch.setattr(ControllerActor, "_keep_lease", slowly)
        trio.world.drop(trio.first)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await trio.until(lambda: bool(trio.serving()), 30)
        assert loop.time() - began > 6, "it takes several leases"
        await trio.create("later")
        await trio.agree_on(*(f"t{number}" for number in range(4)), "later")
        epoch = trio.images()[0].controller_epoch
        assert epoch <= 3, "two may begin at once; while one loads no other begins"

    play(story, tmp_path, 1)


@pytest.mark.parametrize("seed", SEEDS)
@in_world(play, TMP_PATH, Fixture("seed"))
async def test_decisions_of_a_cut_off_controller_are_never_committed(trio: VirtualBrokers) -> None:
    await trio.create("before")
    zombie = trio.world.resident(trio.first).actor
    assert isinstance(zombie, ControllerActor)
    trio.world.cut_off(trio.first)
    creating = asyncio.ensure_future(zombie.create_topics(CreateTopics([NewTopic("lost")])))
    await trio.until(lambda: bool(trio.serving()) and trio.first not in trio.serving())
    with pytest.raises(NotController):
        await creating
    await trio.create("after")
    trio.world.cut.clear()
    await trio.until(lambda: trio.first not in trio.controllers(), 20)
    await trio.agree_on("before", "after")
    assert len(trio.serving()) == 1


@pytest.mark.parametrize("seed", SEEDS)
@in_world(play, TMP_PATH, Fixture("seed"))
async def test_never_do_two_controllers_serve(trio: VirtualBrokers) -> None:
    names = {trio.first}
    for _ in range(3):
        trio.world.cut_off(trio.serving()[0])
        for _ in range(800):
            await asyncio.sleep(0.01)
            assert len(trio.serving()) <= 1
            names.update(trio.serving())
        trio.world.cut.clear()
        await trio.until(lambda: len(trio.serving()) == 1)
    assert len(names) >= 2
    await trio.create("t")


@in_world(play, TMP_PATH, 0)
async def test_a_cluster_goes_on_where_it_was_with_two_of_its_voters(trio: VirtualBrokers) -> None:
    await trio.create("t")
    trio.lose(1)
    trio.world.drop(trio.first)
    await trio.create("u")
    await trio.come_back(1)
    await trio.agree_on("t", "u")
