"""Five machines of namespaces and a Ray cluster on them by `ray up`: `make deploy`.

Each machine has namespaces, a disk, an address and an sshd of its own. `ray up deploy/local.yaml`
runs for real, over ssh; only addresses and the ssh key in the file are changed. From `brokers` on
clients write and read all the while, from `pipeline` on a Spark job copies from topic to topic. In
the end the history checker judges what all of them saw, and each step by the longest time for which
a partition was not written: 0 if nothing was wrong and none too long; else logs are kept in
.cache/machines. The whole takes 20 minutes.

Needs Java 17 and Maven for the pipeline, root, and
Debian's packages openssh-server, rsync, redis-server, iproute2 and nftables. What is missing is
named, not installed: with openssh-server Debian would start an sshd. Nothing is left at the end, or
after SIGINT or SIGTERM; SIGKILL leaves the disks, /var/tmp/raylog-machines-….
"""

from __future__ import annotations

import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Annotated

import typer
from confluent_kafka import KafkaException
from rich.console import Console

from raylog.raydp_jobs.jars import JarsMissing
from raylog.raydp_jobs.java import JavaMissing
from tests.machines import hub
from tests.machines.machine import CommandError
from tests.machines.pipeline import fetch_jars
from tests.machines.scene import Scene
from tests.machines.site import OperatorError, site
from tests.machines.steps import BARE, STEPS, chosen

MACHINES = 5
SPARE = 2
"""That `add` switches on."""
EVIDENCE = Path(__file__).parents[2] / ".cache" / "machines"


def main(
    steps: Annotated[
        str, typer.Option(help=f"all, or some with commas, in this order: {', '.join(STEPS)}.")
    ] = BARE,
    machines: Annotated[int, typer.Option(min=3)] = MACHINES,
    hold: Annotated[bool, typer.Option(help="Keep the machines, until Ctrl-C.")] = False,
) -> None:
    """Make machines and do to them what the steps say."""
    console = Console(highlight=False, soft_wrap=True, width=110)
    wanted = chosen(steps)
    folder = hub.folder_of_hub()
    if folder is None:
        try:
            if "pipeline" in wanted:
                fetch_jars()
            sys.exit(hub.run_in_hub())
        except (hub.NoMachinesError, JarsMissing, JavaMissing) as missing:
            console.print(str(missing), markup=False)
            raise typer.Exit(2) from None
    began = time.monotonic()
    with site(folder, machines, SPARE) as here:
        scene = Scene(here, console, began)
        _play(scene, wanted)
        try:
            scene.judge()
        except AssertionError as broken:
            scene.failures.append(str(broken))
        if scene.failures:
            scene.failures.append(f"logs of all machines: {_kept_logs(folder)}")
        if hold:
            scene.say("the machines stay until Ctrl-C")
            signal.pause()
    console.print(f"{time.monotonic() - began:.0f} s in all")
    for failure in scene.failures:
        console.print(failure, style="red", markup=False)
    raise typer.Exit(1 if scene.failures else 0)


def _play(scene: Scene, wanted: Sequence[str]) -> None:
    """Take the steps; after one that fails none comes, and what was seen till then is judged."""
    for name in wanted:
        try:
            scene.run(name, STEPS[name])
        except (
            AssertionError,
            CommandError,
            OperatorError,
            KafkaException,
            TimeoutExpired,
        ) as failure:
            scene.failures.append(f"{name}: {failure}")
            scene.say(f"{name} failed: {failure}")
            return


def _kept_logs(folder: Path) -> Path:
    """Where the logs of Ray's processes and brokers' journals stay when the machines go."""
    shutil.rmtree(EVIDENCE, ignore_errors=True)
    for pattern in ("m*/tmp/ray/session_2*/logs", "m*/var/lib/raylog/broker-*/journal"):
        for found in folder.glob(pattern):
            shutil.copytree(
                found, EVIDENCE / found.relative_to(folder), ignore_dangling_symlinks=True
            )
    return EVIDENCE


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()
