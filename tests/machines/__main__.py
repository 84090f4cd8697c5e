"""Five machines made of namespaces, and a Ray cluster on them by `ray up`: `make deploy`.

Each machine has its own namespaces, disk, address and sshd. `ray up deploy/local.yaml` runs for
real, over ssh. Only addresses and the ssh key in the file are changed. From the step `brokers` on,
clients write and read, and from `pipeline` on a Spark job copies from topic to topic. At the end
the history checker judges what all of them saw, and each step is judged by the longest time in
which a partition was not written. The exit code is 0 if nothing was wrong and no time was too long,
otherwise logs are kept in .cache/machines. All steps take 20 minutes.

Needs Java 17 and Maven for the pipeline, root, and Debian's packages openssh-server, rsync,
redis-server, iproute2 and nftables. Missing ones are named, not installed, because Debian would
start an sshd with openssh-server. Nothing is left at the end, or after SIGINT or SIGTERM. SIGKILL
leaves the disks, /var/tmp/raylog-machines-….
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
from tests.machines import namespaces
from tests.machines.machine import CommandError
from tests.machines.machine_cluster import OperatorError, machine_cluster
from tests.machines.pipeline import fetch_jars
from tests.machines.step_run import StepRun
from tests.machines.steps import BARE, STEPS, chosen

MACHINES = 5
SPARE = 2
"""Machines that the step `add` switches on."""
EVIDENCE = Path(__file__).parents[2] / ".cache" / "machines"


def main(
    steps: Annotated[
        str, typer.Option(help=f"all, or some with commas, in this order: {', '.join(STEPS)}.")
    ] = BARE,
    machines: Annotated[int, typer.Option(min=3)] = MACHINES,
    hold: Annotated[bool, typer.Option(help="Keep the machines, until Ctrl-C.")] = False,
) -> None:
    """Create machines and run the steps on them."""
    console = Console(highlight=False, soft_wrap=True, width=110)
    wanted = chosen(steps)
    folder = namespaces.machines_folder()
    if folder is None:
        try:
            if "pipeline" in wanted:
                fetch_jars()
            sys.exit(namespaces.run_in_namespaces())
        except (namespaces.NoMachinesError, JarsMissing, JavaMissing) as missing:
            console.print(str(missing), markup=False)
            raise typer.Exit(2) from None
    began = time.monotonic()
    with machine_cluster(folder, machines, SPARE) as here:
        run = StepRun(here, console, began)
        _play(run, wanted)
        try:
            run.judge()
        except AssertionError as broken:
            run.failures.append(str(broken))
        if run.failures:
            run.failures.append(f"logs of all machines: {_kept_logs(folder)}")
        if hold:
            run.say("the machines stay until Ctrl-C")
            signal.pause()
    console.print(f"{time.monotonic() - began:.0f} s in all")
    for failure in run.failures:
        console.print(failure, style="red", markup=False)
    raise typer.Exit(1 if run.failures else 0)


def _play(run: StepRun, wanted: Sequence[str]) -> None:
    """Run the steps up to the first that fails, and judge what was seen until then."""
    for name in wanted:
        try:
            run.run(name, STEPS[name])
        except (
            AssertionError,
            CommandError,
            OperatorError,
            KafkaException,
            TimeoutExpired,
        ) as failure:
            run.failures.append(f"{name}: {failure}")
            run.say(f"{name} failed: {failure}")
            return


def _kept_logs(folder: Path) -> Path:
    """Where the logs of Ray's processes and brokers are kept when the machines are removed."""
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
