"""Steps in which something is lost: a machine, its disk, its network, the head."""

from __future__ import annotations

import os
import time

from tests.cluster.faults_network import pairs
from tests.machines import commands
from tests.machines.changes import FIRST_FOR_EXECUTORS
from tests.machines.contents import STATE
from tests.machines.machine import Machine
from tests.machines.scene import Scene
from tests.machines.site import Site

HEAD_AWAY_S = float(os.environ.get("HEAD_AWAY") or 30.0)
CUT_S = 15.0
OPERATOR_S = 30.0
"""Until somebody has seen that a machine is lost."""


def machine_away(scene: Scene) -> None:
    """Cut the power of a machine, and switch it on again with its disk."""
    here = scene.site
    machine = _executors_machine(here) or _victim(here)
    machine.run(f"echo kept > {STATE}/note")
    what = _leads(scene, machine)
    machine.switch_off()
    dead_s = here.until_live(_others(here, machine))
    machine.switch_on()
    back_s = here.until_live(here.members())
    here.until_labelled(machine)
    assert machine.run(f"cat {STATE}/note") == "kept\n", "the disk came back"
    scene.say(
        f"power of {what} cut: dead for Ray after {dead_s:.1f} s; switched on again, "
        f"a live node by itself after {back_s:.1f} s"
    )


def machine_replaced(scene: Scene) -> None:
    """Replace a machine by one with the same address and label and an empty disk.

    `ray up` starts Ray's head anew, without which followers do not find leaders that are new to
    them: nobody is there to do that in the first seconds.
    """
    here = scene.site
    machine = _victim(here)
    everyone = here.workers
    what = _leads(scene, machine)
    machine.switch_off()
    if scene.bootstrap:
        led_s = scene.until_led_without(machine.broker_id)
        scene.say(f"{machine.name} lost; every partition has a leader {led_s:.1f} s later")
        time.sleep(OPERATOR_S)  # not a wait for something
    here.write_file([index for index in everyone if index != machine.index])
    here.ray_up()  # or Ray takes the new machine for the one that it had set up
    here.until_live(here.members())
    machine.new_disk()
    machine.switch_on()
    machine.pretend_installed()
    here.write_file(everyone)
    up_s = here.ray_up()
    back_s = up_s + here.until_live(here.members())
    here.until_labelled(machine)
    scene.say(f"{what} replaced by an empty one: a live node after {back_s:.1f} s")
    if scene.bootstrap:
        began = time.monotonic()
        command = commands.BROKERS_REPLACE.format(broker=machine.broker_id)
        here.head.run(f"{command} --yes")
        scene.say(f"raylog brokers replace: {time.monotonic() - began:.1f} s")


def machine_cut(scene: Scene) -> None:
    """Cut a machine off from all others for a while, but not from the clients, who are here."""
    here = scene.site
    machine = here.machines[here.workers[0]]
    others = _others(here, machine)
    what = _leads(scene, machine)
    for way in pairs(machine.index, [one.index for one in others]):
        here.network.cut(*way)
    dead_s = here.until_live(others)
    time.sleep(CUT_S)  # not a wait for something: that is how long it lasts
    here.network.heal()
    back_s = here.until_live(here.members())
    here.until_labelled(machine)
    scene.say(
        f"{what} cut off from the others, not from clients: dead for Ray after "
        f"{dead_s:.1f} s; {CUT_S:.0f} s later healed, a live node after {back_s:.1f} s"
    )


def head_away(scene: Scene) -> None:
    """Cut the head's power for a while; `ray up` brings it back, and the workers live on.

    Meanwhile a broker loses the process that holds most of its partitions.
    """
    here = scene.site
    workers = here.members()[1:]
    before = {machine.name: machine.raylet() for machine in workers}
    victim = _replica(scene) if scene.bootstrap else None
    here.head.switch_off()
    began = time.monotonic()
    if victim is not None:
        time.sleep(HEAD_AWAY_S / 3)  # not a wait for something, nor the one below
        machine, pid = victim
        machine.run(f"kill -9 {pid}")
        scene.say(f"head away; process {pid} of the broker on {machine.name} killed")
    time.sleep(max(0.0, began + HEAD_AWAY_S - time.monotonic()))
    here.head.switch_on()
    took_s = here.ray_up()
    back_s = took_s + here.until_live(here.members())
    after = {machine.name: machine.raylet() for machine in workers}
    kept = sum(before[name] == after[name] for name in before)
    scene.say(
        f"head away for {HEAD_AWAY_S:.0f} s and back: ray up {took_s:.1f} s, all live after "
        f"{back_s:.1f} s; {kept} of {len(workers)} raylets kept their process"
    )
    if kept != len(workers):
        scene.failures.append("head-away: Ray on a worker did not survive")
    if scene.bootstrap:
        scene.say(f"all brokers managed again {scene.until_managed():.1f} s later")


def head_lost(scene: Scene) -> None:
    """Replace the head by a machine with its address and an empty disk: Ray knows nothing."""
    here = scene.site
    here.head.switch_off()
    here.head.new_disk()
    here.head.switch_on()
    here.head.pretend_installed()
    here.forget_cluster()
    took_s = here.ray_up()
    back_s = took_s + here.until_live(here.members())
    scene.say(f"head lost with its disk: ray up {took_s:.1f} s, all live after {back_s:.1f} s")
    if scene.bootstrap:
        began = time.monotonic()
        here.head.run(commands.RAYLOG_UP)
        scene.say(f"raylog up, with all directories as they were: {time.monotonic() - began:.1f} s")


def _victim(here: Site) -> Machine:
    return here.machines[here.workers[-1]]


def _leads(scene: Scene, machine: Machine) -> str:
    """How much is lost with a machine, in words."""
    if scene.workload is None:
        return machine.name
    return f"{machine.name}, whose broker leads {scene.led_by(machine)} partitions of the clients,"


def _executors_machine(here: Site) -> Machine | None:
    """The machine of Spark's executor, if there is one; others have no room for it."""
    for machine in here.members()[FIRST_FOR_EXECUTORS:]:
        if machine.run("pgrep -f io.ray.runtime.runner.worker.DefaultWorker || true").strip():
            return machine
    return None


def _others(here: Site, machine: Machine) -> list[Machine]:
    return [one for one in here.members() if one is not machine]


def _replica(scene: Scene) -> tuple[Machine, int]:
    """The replica process that holds most partitions, with its machine."""
    replicas = [one for one in scene.status()["actors"] if one["role"] == "replica"]
    most = max(replicas, key=lambda one: one["partitions"])
    return scene.machine_of(most["broker"]), most["pid"]
