"""Steps that change the cluster: start, grow, shrink and stop it."""

from __future__ import annotations

import time
from functools import partial

from tests.machines import commands
from tests.machines.machine import Machine
from tests.machines.step_run import StepRun
from tests.support.ray_clusters import wait_until

ROLL_S = 900.0
RESTARTED_S = 300.0
FIRST_FOR_EXECUTORS = 3
"""Machines from this index on have room for a Spark executor next to a broker."""


def up(run: StepRun) -> None:
    """Switch all machines on and start Ray on them, with a label for every broker's machine."""
    here = run.cluster
    first = here.machines[: len(here.machines) - len(here.spare)]
    for machine in first:
        machine.broker_id = machine.index - 1 if machine.index else None
        machine.cpus = _cpus(machine.index)
        machine.new_disk()
        machine.switch_on()
    run.say(f"{len(first)} machines answer")
    here.operate("ray", "get-auth-token", "--generate")
    here.write_file([machine.index for machine in first[1:]])
    here.pretend_built()
    for machine in first:
        machine.pretend_installed()
    began = time.monotonic()
    took_s = here.ray_up()
    _until_all_live(run)
    all_s = time.monotonic() - began
    run.say(f"ray up: {took_s:.1f} s; all machines live with their labels: {all_s:.1f} s")
    run.say(f"memory of all processes: {here.memory_bytes() / 2**20:,.0f} MiB")


def _cpus(index: int) -> int:
    """The CPUs of a machine in Ray: none on the head, too few for an executor on two others."""
    return min(index, 1) if index < FIRST_FOR_EXECUTORS else 2


def brokers(run: StepRun) -> None:
    """Start a broker on each labelled machine, and clients that work until the judgement."""
    began = time.monotonic()
    said = run.cluster.head.run(commands.RAYLOG_UP)
    run.bootstrap = said.split()[-1]
    run.say(f"raylog up: {run.bootstrap} after {time.monotonic() - began:.1f} s")
    run.start_load()


def pipeline(run: StepRun) -> None:
    """Start a Spark job that copies from topic to topic exactly once, until the judgement."""
    run.start_pipeline()


def add(run: StepRun) -> None:
    """Start brokers on two more machines."""
    here = run.cluster
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
    live_s = took_s + _until_all_live(run)
    began = time.monotonic()
    here.head.run(commands.BROKERS_ADD)
    run.say(
        f"{len(here.spare)} machines more: live after {live_s:.1f} s; raylog brokers add: "
        f"{time.monotonic() - began:.1f} s"
    )
    here.spare = ()


def rebalance(run: StepRun) -> None:
    """Move replicas and leadership to the new brokers."""
    began = time.monotonic()
    run.cluster.head.run(f"{commands.REBALANCE} --yes")
    run.say(f"raylog rebalance: {time.monotonic() - began:.1f} s")


def drain(run: StepRun) -> None:
    """Drain two brokers, unregister them, and remove their machines."""
    here = run.cluster
    leaving = here.members()[-4:-2]
    for machine in leaving:
        began = time.monotonic()
        given = {"broker": machine.broker_id, "bootstrap": run.bootstrap}
        here.head.run(commands.BROKERS_DRAIN.format(**given))
        drained_s = time.monotonic() - began
        here.head.run(commands.BROKERS_REMOVE.format(**given) + " --yes")
        removed_s = time.monotonic() - began - drained_s
        run.say(
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


def roll(run: StepRun) -> None:
    """Restart all brokers in turn, and the controller."""
    began = time.monotonic()
    run.cluster.head.run(commands.BROKERS_RESTART, ROLL_S)
    run.say(f"raylog brokers restart --all: {time.monotonic() - began:.1f} s")


def serviced(run: StepRun) -> None:
    """Take a machine down for maintenance, and switch it on again."""
    here = run.cluster
    machine = here.machines[here.workers[-1]]
    began = time.monotonic()
    machine.run(commands.BROKERS_STOP_HERE)
    stopped_s = time.monotonic() - began
    machine.switch_off()
    here.until_live([one for one in here.members() if one is not machine])
    machine.switch_on()
    back_s = _until_all_live(run)
    run.say(
        f"{machine.name} serviced: its broker and Ray stopped in {stopped_s:.1f} s; switched on "
        f"again, a live node after {back_s:.1f} s"
    )


def changed_file(run: StepRun) -> None:
    """Change the cluster file and run `ray up` again, which restarts Ray on all machines."""
    here = run.cluster
    before = {machine.name: machine.raylet() for machine in here.members()}

    def is_restarted() -> bool:
        return all(one.raylet() not in ("", before[one.name]) for one in here.members())

    here.change_file("head_start_ray_commands", "worker_start_ray_commands")
    took_s = here.ray_up()
    began = time.monotonic()
    wait_until(is_restarted, "Ray to start again on all machines", RESTARTED_S)
    _until_all_live(run)
    live_s = took_s + time.monotonic() - began
    run.say(f"ray up with a changed file: {took_s:.1f} s; all live after {live_s:.1f} s")
    if run.bootstrap:
        run.say(f"all brokers managed again {run.until_managed():.1f} s later")


def down(run: StepRun) -> None:
    """Stop Ray on all machines, and check that no process is left."""
    here = run.cluster
    if run.bootstrap:
        here.head.run(commands.RAYLOG_DOWN)
    took_s = here.ray_down()
    for machine in here.members():
        wait_until(partial(_has_no_ray, machine), f"Ray to end on {machine.name}")
    run.say(f"ray down, and ray stop on each worker: {took_s:.1f} s")


def up_again(run: StepRun) -> None:
    """Start Ray again."""
    took_s = run.cluster.ray_up()
    all_s = took_s + _until_all_live(run)
    run.say(f"ray up again: {took_s:.1f} s; all machines live: {all_s:.1f} s")
    if run.bootstrap:
        began = time.monotonic()
        run.cluster.head.run(commands.RAYLOG_UP)
        run.say(f"raylog up again: {time.monotonic() - began:.1f} s")


def _until_all_live(run: StepRun) -> float:
    """Wait until all machines of the file are live nodes with their labels. Returns the seconds."""
    here = run.cluster
    took_s = here.until_live(here.members())
    for machine in here.members():
        if machine.broker_id is not None:
            took_s += here.until_labelled(machine)
    return took_s


def _has_no_ray(machine: Machine) -> bool:
    return not machine.raylet()
