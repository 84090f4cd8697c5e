"""What is done to the machines, one function a step, each of which leaves the cluster whole."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from confluent_kafka.admin import AdminClient
from rich.console import Console

from tests.checker.report import show
from tests.checker.workload import QUICK, Plan, Workload
from tests.cluster.faults_network import pairs
from tests.machines.contents import STATE
from tests.machines.machine import Machine
from tests.machines.site import Site
from tests.support.ray_clusters import wait_until

HEAD_AWAY_S = 30.0
CUT_S = 15.0
LEVEL_S = 300.0
"""For all replicas to be in sync again."""
LOAD = Plan(
    producers=2,
    consumers=1,
    members=2,
    partitions=6,
    replicas=3,
    min_insync=2,
    records_per_s=20,
)


@dataclass(slots=True)
class Scene:
    """A run of steps."""

    site: Site
    console: Console
    began_s: float
    bootstrap: str = ""
    """Of the brokers; empty before there are any."""
    workload: Workload | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    def say(self, text: str) -> None:
        """Progress."""
        elapsed_s = time.monotonic() - self.began_s
        load = os.getloadavg()[0]
        self.console.print(f"[{elapsed_s:5.0f} s, load {load:4.1f}] {text}", markup=False)

    def run(self, name: str) -> None:
        """One step, by its name; then all replicas are in sync, if there are brokers."""
        STEPS[name](self)
        if self.workload is not None and name != "down":
            self.say(f"all replicas in sync {self.until_level():.1f} s later")

    def start_load(self) -> None:
        """Have clients write and read, from here, a place of its own, until `end_load`."""
        folder = self.site.folder / "clients"
        folder.mkdir()
        self.workload = self._stack.enter_context(Workload(self.bootstrap, folder, LOAD))

    def end_load(self) -> Workload:
        """End the clients; what they saw."""
        assert self.workload is not None, "clients are at work"
        done = self.workload
        self._stack.close()
        self.workload = None
        return done

    def until_level(self) -> float:
        """Wait until every partition has all replicas in sync; the seconds it took."""
        began = time.monotonic()
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUICK})

        def look() -> bool:
            time.sleep(0.5)
            topics = admin.list_topics(timeout=10).topics.values()
            found = [one for topic in topics for one in topic.partitions.values()]
            return all(len(one.isrs) == len(one.replicas) and one.leader >= 0 for one in found)

        wait_until(look, "all replicas in sync", LEVEL_S)
        return time.monotonic() - began


def up(scene: Scene) -> None:
    """Switch all machines on and bring up Ray on them; every broker's machine has its label."""
    here = scene.site
    for machine in here.machines:
        machine.broker_id = machine.index - 1 if machine.index else None
        machine.new_disk()
        machine.switch_on()
    scene.say(f"{len(here.machines)} machines answer")
    here.operate("ray", "get-auth-token", "--generate")
    here.write_file([machine.index for machine in here.machines[1:]])
    _pretend_installed(here)
    began = time.monotonic()
    took_s = here.ray_up()
    here.until_live(here.members())
    for machine in here.members()[1:]:
        here.until_labelled(machine)
    all_s = time.monotonic() - began
    scene.say(f"ray up: {took_s:.1f} s; all machines live with their labels: {all_s:.1f} s")
    scene.say(f"memory of all processes: {here.memory_bytes() / 2**20:,.0f} MiB")


def _pretend_installed(here: Site) -> None:
    """Note the environment, which all machines share, as installed from the wheel."""
    wheel = here.folder / "operator" / "dist" / "raylog-0-py3-none-any.whl"
    wheel.write_bytes(b"")
    for machine in here.machines:
        pretend_installed(machine)


def pretend_installed(machine: Machine) -> None:
    """Note on a new disk that what `ray up` installs is there."""
    machine.run(
        "mkdir -p raylog/dist && touch raylog/dist/raylog-0-py3-none-any.whl && "
        "sha256sum ~/raylog/dist/raylog-*.whl > raylog/installed"
    )


RAYLOG_UP = f"raylog up --address auto --data {STATE} --insecure"


def brokers(scene: Scene) -> None:
    """Start a broker on each labelled machine, and clients that work until `judge`."""
    began = time.monotonic()
    said = scene.site.head.run(RAYLOG_UP)
    scene.bootstrap = said.split()[-1]
    scene.say(f"raylog up: {scene.bootstrap} after {time.monotonic() - began:.1f} s")
    scene.start_load()


def judge(scene: Scene) -> None:
    """End the clients, have one read everything, and judge what all of them saw."""
    done = scene.end_load()
    show(done.verdict, scene.console)
    assert done.verdict.valid, "the history checker found nothing wrong"
    assert not done.failures, done.failures


def machine_away(scene: Scene) -> None:
    """Cut the power of a machine, and switch it on again with its disk."""
    here = scene.site
    machine = here.machines[-1]
    here.machines[-1].run("echo kept > /var/lib/raylog/note")
    machine.switch_off()
    dead_s = here.until_live([one for one in here.members() if one is not machine])
    machine.switch_on()
    back_s = here.until_live(here.members())
    here.until_labelled(machine)
    assert machine.run("cat /var/lib/raylog/note") == "kept\n", "the disk came back"
    scene.say(
        f"power of {machine.name} cut: dead for Ray after {dead_s:.1f} s; switched on again, "
        f"a live node by itself after {back_s:.1f} s"
    )


def machine_replaced(scene: Scene) -> None:
    """Replace a machine by one with the same address and label and an empty disk."""
    here = scene.site
    machine = here.machines[-1]
    machine.switch_off()
    here.until_live([one for one in here.members() if one is not machine])
    machine.new_disk()
    machine.switch_on()
    pretend_installed(machine)
    back_s = here.until_live(here.members())
    here.until_labelled(machine)
    if scene.bootstrap:
        here.head.run(f"raylog brokers replace {machine.broker_id} --yes --data {STATE}")
    scene.say(f"{machine.name} replaced by an empty one: a live node after {back_s:.1f} s")


def machine_cut(scene: Scene) -> None:
    """Cut a machine off from all others for a while, but not from the clients, who are here."""
    here = scene.site
    machine = here.machines[1]
    others = [one for one in here.members() if one is not machine]
    for way in pairs(machine.index, [one.index for one in others]):
        here.network.cut(*way)
    dead_s = here.until_live(others)
    time.sleep(CUT_S)  # not a wait for something: that is how long it lasts
    here.network.heal()
    back_s = here.until_live(here.members())
    here.until_labelled(machine)
    scene.say(
        f"{machine.name} cut off from the others, not from clients: dead for Ray after "
        f"{dead_s:.1f} s; {CUT_S:.0f} s later healed, a live node after {back_s:.1f} s"
    )


def head_away(scene: Scene) -> None:
    """Cut the head's power for a while; `ray up` brings it back, and the workers live on."""
    here = scene.site
    workers = here.members()[1:]
    before = {machine.name: _raylet(machine) for machine in workers}
    here.head.switch_off()
    time.sleep(HEAD_AWAY_S)  # not a wait for something: that is how long it is away
    here.head.switch_on()
    took_s = here.ray_up()
    back_s = took_s + here.until_live(here.members())
    after = {machine.name: _raylet(machine) for machine in workers}
    kept = sum(before[name] == after[name] for name in before)
    scene.say(
        f"head away for {HEAD_AWAY_S:.0f} s and back: ray up {took_s:.1f} s, all live after "
        f"{back_s:.1f} s; {kept} of {len(workers)} raylets kept their process"
    )


def _has_no_ray(machine: Machine) -> bool:
    return not _raylet(machine)


def _raylet(machine: Machine) -> str:
    """The process id of a machine's raylet."""
    return machine.run("pgrep -o -x raylet || true").strip()


def changed_file(scene: Scene) -> None:
    """Take a machine out of the cluster file and put it in again; `ray up` each time."""
    here = scene.site
    everyone = list(here.workers)
    here.write_file(everyone[:-1])
    fewer_s = here.ray_up("--no-restart")
    fewer_s += here.until_live(here.members())
    here.write_file(everyone)
    more_s = here.ray_up("--no-restart")
    more_s += here.until_live(here.members())
    scene.say(f"a machine less in the file: gone after {fewer_s:.1f} s; back: {more_s:.1f} s")


def down(scene: Scene) -> None:
    """End Ray on all machines; no process of it is left."""
    here = scene.site
    if scene.bootstrap:
        here.head.run("raylog down --address auto")
    took_s = here.ray_down()
    for machine in here.members():
        wait_until(partial(_has_no_ray, machine), f"Ray to end on {machine.name}")
    scene.say(f"ray down, and ray stop on each worker: {took_s:.1f} s")


def up_again(scene: Scene) -> None:
    """Bring Ray up again after it was ended."""
    here = scene.site
    took_s = here.ray_up()
    all_s = took_s + here.until_live(here.members())
    scene.say(f"ray up again: {took_s:.1f} s; all machines live: {all_s:.1f} s")
    if scene.bootstrap:
        here.head.run(RAYLOG_UP)


STEPS: dict[str, Callable[[Scene], None]] = {
    "up": up,
    "brokers": brokers,
    "machine-away": machine_away,
    "machine-replaced": machine_replaced,
    "machine-cut": machine_cut,
    "head-away": head_away,
    "changed-file": changed_file,
    "down": down,
    "up-again": up_again,
    "judge": judge,
}


def chosen(names: str) -> list[str]:
    """Steps by a list of names with commas, in the order of the table.

    Raises ValueError for a name that is none.
    """
    wanted = names.split(",")
    unknown = [name for name in wanted if name not in STEPS]
    if unknown:
        raise ValueError(f"no step is called {', '.join(unknown)}; there are {', '.join(STEPS)}")
    return [name for name in STEPS if name in wanted]
