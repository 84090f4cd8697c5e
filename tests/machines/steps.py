"""What is done to the machines, one function a step, each of which leaves the cluster whole."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from rich.console import Console

from tests.machines.machine import Machine
from tests.machines.site import Site
from tests.support.ray_clusters import wait_until

HEAD_AWAY_S = 30.0


@dataclass(slots=True)
class Scene:
    """A run of steps."""

    site: Site
    console: Console
    began_s: float

    def say(self, text: str) -> None:
        """Progress."""
        elapsed_s = time.monotonic() - self.began_s
        load = os.getloadavg()[0]
        self.console.print(f"[{elapsed_s:5.0f} s, load {load:4.1f}] {text}", markup=False)

    def run(self, name: str) -> None:
        """One step, by its name."""
        STEPS[name](self)


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
    scene.say(f"{machine.name} replaced by an empty one: a live node after {back_s:.1f} s")


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


STEPS: dict[str, Callable[[Scene], None]] = {
    "up": up,
    "machine-away": machine_away,
    "machine-replaced": machine_replaced,
    "head-away": head_away,
    "changed-file": changed_file,
    "down": down,
    "up-again": up_again,
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
