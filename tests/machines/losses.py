"""Steps that lose something: a machine, its disk, its network, the head."""

from __future__ import annotations

import os
import time

from tests.cluster.faults_network import pairs
from tests.machines import commands
from tests.machines.changes import FIRST_FOR_EXECUTORS
from tests.machines.contents import STATE
from tests.machines.machine import Machine
from tests.machines.machine_cluster import MachineCluster
from tests.machines.step_run import StepRun

HEAD_AWAY_S = float(os.environ.get("HEAD_AWAY") or 30.0)
CUT_S = 15.0
OPERATOR_S = 30.0
"""The time until an operator notices the loss of a machine."""


def machine_away(run: StepRun) -> None:
    """Cut the power of a machine, and switch it on again with its disk."""
    here = run.cluster
    machine = _executors_machine(here) or _victim(here)
    machine.run(f"echo kept > {STATE}/note")
    what = _leads(run, machine)
    machine.switch_off()
    dead_s = here.until_live(_others(here, machine))
    machine.switch_on()
    back_s = here.until_live(here.members())
    here.until_labelled(machine)
    assert machine.run(f"cat {STATE}/note") == "kept\n", "the disk came back"
    run.say(
        f"power of {what} cut: dead for Ray after {dead_s:.1f} s; switched on again, "
        f"a live node by itself after {back_s:.1f} s"
    )


def machine_replaced(run: StepRun) -> None:
    """Replace a machine by one with the same address and label and an empty disk.

    `ray up` restarts Ray's head, without which followers do not find leaders that are new to them.
    In the first seconds there is no operator to do that.
    """
    here = run.cluster
    machine = _victim(here)
    everyone = here.workers
    what = _leads(run, machine)
    machine.switch_off()
    if run.bootstrap:
        led_s = run.until_led_without(machine.broker_id)
        run.say(f"{machine.name} lost; every partition has a leader {led_s:.1f} s later")
        time.sleep(OPERATOR_S)  # the reaction time, not a wait for something
    here.write_file([index for index in everyone if index != machine.index])
    here.ray_up()  # else Ray takes the new machine for the one that it had set up
    here.until_live(here.members())
    machine.new_disk()
    machine.switch_on()
    machine.pretend_installed()
    here.write_file(everyone)
    up_s = here.ray_up()
    back_s = up_s + here.until_live(here.members())
    here.until_labelled(machine)
    run.say(f"{what} replaced by an empty one: a live node after {back_s:.1f} s")
    if run.bootstrap:
        began = time.monotonic()
        command = commands.BROKERS_REPLACE.format(broker=machine.broker_id)
        here.head.run(f"{command} --yes")
        run.say(f"raylog brokers replace: {time.monotonic() - began:.1f} s")


def machine_cut(run: StepRun) -> None:
    """Isolate a machine from all others for a while, but not from the clients."""
    here = run.cluster
    machine = here.machines[here.workers[0]]
    others = _others(here, machine)
    what = _leads(run, machine)
    for way in pairs(machine.index, [one.index for one in others]):
        here.network.cut(*way)
    dead_s = here.until_live(others)
    time.sleep(CUT_S)  # the duration of the outage, not a wait for something
    here.network.heal()
    back_s = here.until_live(here.members())
    here.until_labelled(machine)
    run.say(
        f"{what} cut off from the others, not from clients: dead for Ray after "
        f"{dead_s:.1f} s; {CUT_S:.0f} s later healed, a live node after {back_s:.1f} s"
    )


def head_away(run: StepRun) -> None:
    """Cut the head's power for a while. `ray up` brings it back, and the workers keep running.

    Meanwhile a broker loses the process that hosts most of its partitions.
    """
    here = run.cluster
    workers = here.members()[1:]
    before = {machine.name: machine.raylet() for machine in workers}
    victim = _replica(run) if run.bootstrap else None
    here.head.switch_off()
    began = time.monotonic()
    if victim is not None:
        time.sleep(HEAD_AWAY_S / 3)  # a duration, not a wait for something; so is the one below
        machine, pid = victim
        machine.run(f"kill -9 {pid}")
        run.say(f"head away; process {pid} of the broker on {machine.name} killed")
    time.sleep(max(0.0, began + HEAD_AWAY_S - time.monotonic()))
    here.head.switch_on()
    took_s = here.ray_up()
    back_s = took_s + here.until_live(here.members())
    after = {machine.name: machine.raylet() for machine in workers}
    kept = sum(before[name] == after[name] for name in before)
    run.say(
        f"head away for {HEAD_AWAY_S:.0f} s and back: ray up {took_s:.1f} s, all live after "
        f"{back_s:.1f} s; {kept} of {len(workers)} raylets kept their process"
    )
    if kept != len(workers):
        run.failures.append("head-away: Ray on a worker did not survive")
    if run.bootstrap:
        run.say(f"all brokers managed again {run.until_managed():.1f} s later")


def head_lost(run: StepRun) -> None:
    """Replace the head by a machine with its address and an empty disk: Ray's state is lost."""
    here = run.cluster
    here.head.switch_off()
    here.head.new_disk()
    here.head.switch_on()
    here.head.pretend_installed()
    here.forget_cluster()
    took_s = here.ray_up()
    back_s = took_s + here.until_live(here.members())
    run.say(f"head lost with its disk: ray up {took_s:.1f} s, all live after {back_s:.1f} s")
    if run.bootstrap:
        began = time.monotonic()
        here.head.run(commands.RAYLOG_UP)
        run.say(f"raylog up, with all directories as they were: {time.monotonic() - began:.1f} s")


def _victim(here: MachineCluster) -> Machine:
    return here.machines[here.workers[-1]]


def _leads(run: StepRun, machine: Machine) -> str:
    """A description of what is lost with a machine."""
    if run.workload is None:
        return machine.name
    return f"{machine.name}, whose broker leads {run.led_by(machine)} partitions of the clients,"


def _executors_machine(here: MachineCluster) -> Machine | None:
    """The machine of Spark's executor, if there is one. Others have no room for it."""
    for machine in here.members()[FIRST_FOR_EXECUTORS:]:
        if machine.run("pgrep -f io.ray.runtime.runner.worker.DefaultWorker || true").strip():
            return machine
    return None


def _others(here: MachineCluster, machine: Machine) -> list[Machine]:
    return [one for one in here.members() if one is not machine]


def _replica(run: StepRun) -> tuple[Machine, int]:
    """The replica process that hosts most partitions, with its machine."""
    replicas = [one for one in run.status()["actors"] if one["role"] == "replica"]
    most = max(replicas, key=lambda one: one["partitions"])
    return run.machine_of(most["broker"]), most["pid"]
