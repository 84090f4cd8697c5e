"""Steps in which somebody changes the cluster: starts it, grows it, shrinks it, ends it."""

from __future__ import annotations

import time
from functools import partial

from tests.machines import commands
from tests.machines.machine import Machine
from tests.machines.scene import Scene
from tests.support.ray_clusters import wait_until

ROLL_S = 900.0
RESTARTED_S = 300.0
FIRST_FOR_EXECUTORS = 3
"""Machines from this one on have room for an executor of Spark beside a broker."""


def up(scene: Scene) -> None:
    """Switch all machines on and bring up Ray on them; every broker's machine has its label."""
    here = scene.site
    first = here.machines[: len(here.machines) - len(here.spare)]
    for machine in first:
        machine.broker_id = machine.index - 1 if machine.index else None
        machine.cpus = _cpus(machine.index)
        machine.new_disk()
        machine.switch_on()
    scene.say(f"{len(first)} machines answer")
    here.operate("ray", "get-auth-token", "--generate")
    here.write_file([machine.index for machine in first[1:]])
    here.pretend_built()
    for machine in first:
        machine.pretend_installed()
    began = time.monotonic()
    took_s = here.ray_up()
    _until_all_live(scene)
    all_s = time.monotonic() - began
    scene.say(f"ray up: {took_s:.1f} s; all machines live with their labels: {all_s:.1f} s")
    scene.say(f"memory of all processes: {here.memory_bytes() / 2**20:,.0f} MiB")


def _cpus(index: int) -> int:
    """What Ray is told that a machine has: none on the head, no room for an executor on two."""
    return min(index, 1) if index < FIRST_FOR_EXECUTORS else 2


def brokers(scene: Scene) -> None:
    """Start a broker on each labelled machine, and clients that work until all is judged."""
    began = time.monotonic()
    said = scene.site.head.run(commands.RAYLOG_UP)
    scene.bootstrap = said.split()[-1]
    scene.say(f"raylog up: {scene.bootstrap} after {time.monotonic() - began:.1f} s")
    scene.start_load()


def pipeline(scene: Scene) -> None:
    """Start a Spark job that copies from topic to topic, exactly once, until all is judged."""
    scene.start_pipeline()


def add(scene: Scene) -> None:
    """Start a broker on each of two machines more."""
    here = scene.site
    first_id = 1 + max(one.broker_id for one in here.members() if one.broker_id is not None)
    for broker_id, index in enumerate(here.spare, first_id):
        machine = here.machines[index]
        machine.broker_id = broker_id
        machine.cpus = _cpus(index)
        machine.new_disk()
        machine.switch_on()
        machine.pretend_installed()
    here.write_file([*here.workers, *here.spare])
    took_s = here.ray_up()
    live_s = took_s + _until_all_live(scene)
    began = time.monotonic()
    here.head.run(commands.BROKERS_ADD)
    scene.say(
        f"{len(here.spare)} machines more: live after {live_s:.1f} s; raylog brokers add: "
        f"{time.monotonic() - began:.1f} s"
    )
    here.spare = ()


def rebalance(scene: Scene) -> None:
    """Have the new brokers hold and lead their part."""
    began = time.monotonic()
    scene.site.head.run(f"{commands.REBALANCE} --yes")
    scene.say(f"raylog rebalance: {time.monotonic() - began:.1f} s")


def drain(scene: Scene) -> None:
    """Move everything away from two brokers, forget them, take their machines away."""
    here = scene.site
    leaving = here.members()[-4:-2]
    for machine in leaving:
        began = time.monotonic()
        given = {"broker": machine.broker_id, "bootstrap": scene.bootstrap}
        here.head.run(commands.BROKERS_DRAIN.format(**given))
        drained_s = time.monotonic() - began
        here.head.run(commands.BROKERS_REMOVE.format(**given) + " --yes")
        removed_s = time.monotonic() - began - drained_s
        scene.say(
            f"broker {machine.broker_id}: drained in {drained_s:.1f} s, removed in "
            f"{removed_s:.1f} s"
        )
    here.write_file([index for index in here.workers if here.machines[index] not in leaving])
    for machine in leaving:
        machine.run(commands.RAY_STOP)
    here.ray_up()
    here.until_live(here.members())
    for machine in leaving:
        machine.switch_off()


def roll(scene: Scene) -> None:
    """Restart all brokers, one after the other, and the controller."""
    began = time.monotonic()
    scene.site.head.run(commands.BROKERS_RESTART, ROLL_S)
    scene.say(f"raylog brokers restart --all: {time.monotonic() - began:.1f} s")


def serviced(scene: Scene) -> None:
    """Take a machine down as one does for a repair, and switch it on again."""
    here = scene.site
    machine = here.machines[here.workers[-1]]
    began = time.monotonic()
    machine.run(commands.BROKERS_STOP_HERE)
    stopped_s = time.monotonic() - began
    machine.switch_off()
    here.until_live([one for one in here.members() if one is not machine])
    machine.switch_on()
    back_s = _until_all_live(scene)
    scene.say(
        f"{machine.name} serviced: its broker and Ray stopped in {stopped_s:.1f} s; switched on "
        f"again, a live node after {back_s:.1f} s"
    )


def changed_file(scene: Scene) -> None:
    """Change the cluster file and run `ray up` again: Ray is started again on all machines."""
    here = scene.site
    before = {machine.name: machine.raylet() for machine in here.members()}

    def is_restarted() -> bool:
        return all(one.raylet() not in ("", before[one.name]) for one in here.members())

    here.change_file("head_start_ray_commands", "worker_start_ray_commands")
    took_s = here.ray_up()
    began = time.monotonic()
    wait_until(is_restarted, "Ray to start again on all machines", RESTARTED_S)
    _until_all_live(scene)
    live_s = took_s + time.monotonic() - began
    scene.say(f"ray up with a changed file: {took_s:.1f} s; all live after {live_s:.1f} s")
    if scene.bootstrap:
        scene.say(f"all brokers managed again {scene.until_managed():.1f} s later")


def down(scene: Scene) -> None:
    """End Ray on all machines; no process of it is left."""
    here = scene.site
    if scene.bootstrap:
        here.head.run(commands.RAYLOG_DOWN)
    took_s = here.ray_down()
    for machine in here.members():
        wait_until(partial(_has_no_ray, machine), f"Ray to end on {machine.name}")
    scene.say(f"ray down, and ray stop on each worker: {took_s:.1f} s")


def up_again(scene: Scene) -> None:
    """Bring Ray up again after it was ended."""
    took_s = scene.site.ray_up()
    all_s = took_s + _until_all_live(scene)
    scene.say(f"ray up again: {took_s:.1f} s; all machines live: {all_s:.1f} s")
    if scene.bootstrap:
        began = time.monotonic()
        scene.site.head.run(commands.RAYLOG_UP)
        scene.say(f"raylog up again: {time.monotonic() - began:.1f} s")


def _until_all_live(scene: Scene) -> float:
    """Wait until all machines of the file are live nodes with their labels; the seconds."""
    here = scene.site
    took_s = here.until_live(here.members())
    for machine in here.members():
        if machine.broker_id is not None:
            took_s += here.until_labelled(machine)
    return took_s


def _has_no_ray(machine: Machine) -> bool:
    return not machine.raylet()
