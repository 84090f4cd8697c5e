"""Whole supervised clusters under virtual time: founded, disturbed, changed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from raylog.actors.cluster import replace_controller, stop_broker
from raylog.actors.controller.messages import CreateTopics, NewTopic
from raylog.actors.metadata.records import BrokerUnwanted
from raylog.actors.names import broker_name, rival_name, supervisor_name
from raylog.actors.places import NODE_ID_LABEL
from raylog.actors.supervisor.notes import HOLD, hold, holds_of, note_key, release
from raylog.actors.supervisor.rolling import restart_wanted
from raylog.actors.supervisor.rules.desired import read_desired
from raylog.actors.supervisor.rules.holds import Hold
from raylog.wire.errors import BrokerNotAvailable
from tests.worlds.broker.supervised import CLUSTER, LABEL, Site, labelled, tell
from tests.worlds.decorators import in_world


@in_world(tell)
async def test_the_metadata_and_its_copies_say_what_is_wanted(site: Site) -> None:
    desired = site.desired()
    assert desired.offset > 0
    assert [one.labels for one in desired.brokers] == [{LABEL: str(n)} for n in range(3)]
    await site.runtime.sleep(5)
    for machine in site.machines:
        contents = machine.disk.contents("/srv/raylog/wanted.json")
        assert read_desired(contents, "x").brokers == desired.brokers


@in_world(tell)
async def test_a_machine_that_returns_under_another_id_gets_its_broker_back(site: Site) -> None:
    machine = site.machine_of(1)
    site.world.stop_machine(machine, power=True)
    site.world.end_for_good(broker_name(CLUSTER, 1))
    await site.until_trouble(1, "no live node carries raylog-broker=1")
    machine.labels[NODE_ID_LABEL] = "another"
    site.world.start_machine(machine)
    await site.all_serve()
    assert await site.troubles() == {}


@in_world(tell)
async def test_change_in_rays_copy_is_written_to_the_metadata(site: Site) -> None:
    site.machine_of(1).labels["other"] = "1"
    desired = site.desired()
    assert desired.is_in_metadata
    moved = desired.brokers[1]._replace(labels={"other": "1"})
    changed = (desired.brokers[0], moved, desired.brokers[2])
    known = replace(desired, brokers=changed, is_in_metadata=False)
    await site.runtime.kv_put(known.key, known.to_bytes())
    await site.until(lambda: site.desired().is_in_metadata)
    assert site.desired().brokers == changed
    assert site.desired().offset > desired.offset


@in_world(tell)
async def test_a_label_on_two_nodes_starts_nobody(site: Site) -> None:
    site.machine_of(0).labels["other"] = site.machine_of(0).labels.pop(LABEL)
    site.machine_of(0).labels[LABEL] = "1"
    await site.until_trouble(1, "expected one node with raylog-broker=1, found 2")
    site.world.end_for_good(broker_name(CLUSTER, 1))
    await site.runtime.sleep(20)
    assert not await site.serves(1)


@in_world(tell)
async def test_a_disk_that_is_not_mounted_is_not_formatted(site: Site) -> None:
    machine, empty = site.machine_of(1), site.world.add_machine("stand-in").disk
    site.world.kill(broker_name(CLUSTER, 1), restart=False)
    site.world.end_for_good(broker_name(CLUSTER, 1))
    mounted, machine.disk = machine.disk, empty
    await site.until_trouble(1, "Is its disk mounted?")
    with pytest.raises(FileNotFoundError):  # nothing is written where the disk should be
        empty.listdir("/srv")
    machine.disk = mounted
    await site.all_serve()


@in_world(tell)
async def test_a_replaced_broker_begins_with_an_empty_directory(site: Site) -> None:
    machine, empty = site.machine_of(1), site.world.add_machine("stand-in").disk
    old = site.desired().brokers[1]
    site.world.end_for_good(broker_name(CLUSTER, 1))
    site.world.stop_machine(machine, power=True)
    lost, machine.disk = machine.disk, empty
    site.world.start_machine(machine)
    await site.until_trouble(1, "raylog brokers replace 1")
    await site.want(old._replace(directory_id="", replaced=(old.directory_id,)))
    await site.all_serve()
    await site.until(lambda: bool(site.desired().brokers[1].directory_id))
    new_id = site.desired().brokers[1].directory_id
    assert new_id != old.directory_id
    await site.until(lambda: (1, new_id) in site.desired().voters)
    assert len(site.desired().voters) == 3

    site.world.end_for_good(broker_name(CLUSTER, 1))
    site.world.stop_machine(machine, power=True)
    machine.disk = lost
    site.world.start_machine(machine)
    await site.until_trouble(1, "which was replaced: its records are old")
    machine.disk = empty
    await site.all_serve()


@in_world(tell)
async def test_an_unwanted_broker_is_not_started(site: Site) -> None:
    await site.want(BrokerUnwanted(2))
    await site.until(lambda: site.desired().broker(2) is None)
    site.world.end_for_good(broker_name(CLUSTER, 2))
    await site.runtime.sleep(20)
    assert not await site.serves(2)
    await site.want(labelled(2))
    await site.all_serve()


@in_world(tell)
async def test_a_supervisor_that_is_gone_is_created_by_a_broker_that_starts(site: Site) -> None:
    site.world.end_for_good(supervisor_name(CLUSTER))
    site.world.kill(broker_name(CLUSTER, 2))
    await site.all_serve()
    await site.runtime.sleep(5)
    assert await site.troubles() == {}


@in_world(tell)
async def test_a_stopped_cluster_stays_so(site: Site) -> None:
    stopped = replace(site.desired(), stopped=True)
    await site.runtime.kv_put(stopped.key, stopped.to_bytes())
    await site.runtime.sleep(5)
    site.world.end_for_good(broker_name(CLUSTER, 2))
    await site.runtime.sleep(20)
    assert not await site.serves(2)
    assert site.desired() == stopped


@in_world(tell)
async def test_a_held_broker_stays_stopped_until_it_is_released(site: Site) -> None:
    await hold(site.runtime, CLUSTER, Hold(1, "stopped by hand"))
    assert await stop_broker(site.runtime, CLUSTER, 1) is None
    await site.until_trouble(1, "is held: stopped by hand")
    await site.runtime.sleep(60)
    assert not await site.serves(1)
    await release(site.runtime, CLUSTER, 1)
    await site.all_serve()
    assert await site.troubles() == {}


@in_world(tell)
async def test_a_hold_for_a_machine_ends_when_it_is_back(site: Site) -> None:
    machine = site.machine_of(1)
    node_id = machine.labels[NODE_ID_LABEL]
    await hold(site.runtime, CLUSTER, Hold(1, "its machine goes down", node_id))
    assert await stop_broker(site.runtime, CLUSTER, 1) is None
    await site.runtime.sleep(20)
    assert not await site.serves(1)
    site.world.stop_machine(machine, power=True)
    await site.runtime.sleep(20)
    machine.labels[NODE_ID_LABEL] = "another"
    site.world.start_machine(machine)
    await site.all_serve()
    assert await holds_of(site.runtime, CLUSTER) == {}


@in_world(tell)
async def test_a_hold_that_nobody_can_read_holds_its_broker_alone(site: Site) -> None:
    await site.runtime.kv_put(note_key(HOLD, CLUSTER, 1), b'{"version": 99}')
    for broker_id in (1, 2):
        assert await stop_broker(site.runtime, CLUSTER, broker_id) is None
    await site.all_serve(2)
    await site.until_trouble(1, "has format 99, this build knows 1")
    await release(site.runtime, CLUSTER, 1)
    await site.all_serve()


@in_world(tell)
async def test_a_hold_that_was_made_meanwhile_is_not_released(site: Site) -> None:
    before, again = Hold(1, "down", "node-1"), Hold(1, "down again", "node-2")
    await hold(site.runtime, CLUSTER, again)
    await release(site.runtime, CLUSTER, 1, before)
    assert await holds_of(site.runtime, CLUSTER) == {1: again}
    await release(site.runtime, CLUSTER, 1, again)
    assert await holds_of(site.runtime, CLUSTER) == {}


@pytest.mark.parametrize("already_stopping", [False, True])
@in_world(tell)
async def test_a_broker_that_is_held_is_not_restarted(
    site: Site, *, already_stopping: bool
) -> None:
    desired, held = site.desired(), Hold(1, "stopped by hand")
    if already_stopping:
        restart = asyncio.ensure_future(
            restart_wanted(site.runtime, desired, labelled(1), timeout_ms=60_000)
        )
        await asyncio.sleep(0)
    await hold(site.runtime, CLUSTER, held)
    assert await stop_broker(site.runtime, CLUSTER, 1) is None
    if not already_stopping:
        restart = asyncio.ensure_future(
            restart_wanted(site.runtime, desired, labelled(1), timeout_ms=60_000)
        )
    with pytest.raises(BrokerNotAvailable, match="broker 1 is held: stopped by hand"):
        await restart
    await site.runtime.sleep(20)
    assert not await site.serves(1)


@in_world(tell)
async def test_the_controller_is_replaced_by_command_without_waiting_for_the_lease(
    site: Site,
) -> None:
    name = await site.runtime.call(broker_name(CLUSTER, 0), "controller", timeout_ms=5_000)
    before = (await site.runtime.find(name)).instance
    began_ms = site.runtime.monotonic_ms()
    for broker_id in (2, 1, 0):
        assert await replace_controller(site.runtime, CLUSTER, [broker_id]) == name
    assert site.runtime.monotonic_ms() - began_ms < 3 * 1_500
    assert (await site.runtime.find(name)).instance != before
    await site.all_serve()


@in_world(tell)
async def test_a_controller_is_replaced_by_the_first_broker_that_answers(site: Site) -> None:
    site.world.stop_machine(site.machine_of(2), power=True)
    await replace_controller(site.runtime, CLUSTER, [2, 0])
    with pytest.raises(BrokerNotAvailable, match="no broker starts a controller"):
        await replace_controller(site.runtime, CLUSTER, [2], timeout_ms=1_000)


def lose(site: Site, broker_id: int, *, actor_too: bool) -> None:
    """A broker's machine comes back with an empty disk."""
    machine, empty = site.machine_of(broker_id), site.world.add_machine("stand-in").disk
    if actor_too:
        site.world.end_for_good(broker_name(CLUSTER, broker_id))
    site.world.stop_machine(machine, power=True)
    machine.disk = empty
    site.world.start_machine(machine)


@pytest.mark.parametrize("actor_too", [True, False])
@in_world(tell)
async def test_a_broker_whose_disk_is_gone_is_replaced_after_a_delay(
    site: Site, *, actor_too: bool
) -> None:
    old = site.desired().brokers[1]
    settings = {**old.settings, "broker.replacement.delay.ms": "600000"}
    await site.want(old._replace(settings=settings))
    await site.until(lambda: site.desired().brokers[1].settings == settings)
    lose(site, 1, actor_too=actor_too)
    await site.until_trouble(1, "raylog brokers replace 1")
    await site.runtime.sleep(500)
    assert site.desired().brokers[1].directory_id == old.directory_id, "the disk may come back"
    await site.runtime.sleep(150)
    await site.all_serve()
    await site.until(lambda: site.desired().brokers[1].directory_id not in ("", old.directory_id))
    assert site.desired().brokers[1].replaced == (old.directory_id,)
    await site.until(lambda: len(site.desired().voters) == 3)
    await site.runtime.sleep(5)
    assert await site.troubles() == {}


@in_world(tell)
async def test_a_broker_is_replaced_though_another_names_a_controller_that_is_gone(
    site: Site, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stale() -> str:
        return rival_name(CLUSTER, 9, 9)

    old = site.desired().brokers[1]
    settings = {**old.settings, "broker.replacement.delay.ms": "1000"}
    await site.want(old._replace(settings=settings))
    await site.until(lambda: site.desired().brokers[1].settings == settings)
    first = site.world.resident(broker_name(CLUSTER, 0)).actor
    monkeypatch.setattr(first, "controller", stale)
    lose(site, 1, actor_too=True)
    await site.until(lambda: site.desired().brokers[1].directory_id != old.directory_id)


@pytest.mark.long
@in_world(tell)
async def test_without_the_setting_nobody_is_replaced(site: Site) -> None:
    old = site.desired().brokers[1]
    lose(site, 1, actor_too=True)
    await site.until_trouble(1, "raylog brokers replace 1")
    await site.runtime.sleep(3_600)
    assert site.desired().brokers[1].directory_id == old.directory_id
    assert not await site.serves(1)


@in_world(tell)
async def test_the_last_eligible_copy_is_not_replaced(site: Site) -> None:
    old = site.desired().brokers[1]
    await site.want(old._replace(settings={**old.settings, "broker.replacement.delay.ms": "1000"}))
    controller = await site.runtime.call(broker_name(CLUSTER, 0), "controller", timeout_ms=5_000)
    only = CreateTopics([NewTopic("only", assignments={0: (1,)})])
    await site.runtime.call(controller, "create_topics", only, timeout_ms=5_000)
    await site.runtime.sleep(10)
    lose(site, 1, actor_too=True)
    await site.until_trouble(1, "no other broker is known to hold all of only:0")
    await site.runtime.sleep(600)
    assert site.desired().brokers[1].directory_id == old.directory_id
    assert not await site.serves(1)
