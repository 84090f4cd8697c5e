"""Five machines of namespaces and a Ray cluster on them by `ray up`: `make deploy`.

Each machine has namespaces, a disk, an address and an sshd of its own. `ray up deploy/local.yaml`
runs for real, over ssh; only addresses and the ssh key in the file are changed. Needs root and
Debian's packages openssh-server, rsync, redis-server, iproute2 and nftables. What is missing is
named, not installed: with openssh-server Debian would start an sshd. Nothing is left at the end, or
after SIGINT or SIGTERM; SIGKILL leaves the disks, /var/tmp/raylog-machines-….
"""

from __future__ import annotations

import signal
import sys
import time
from typing import Annotated

import typer
from rich.console import Console

from tests.machines import hub
from tests.machines.site import site
from tests.machines.steps import STEPS, Scene, chosen

MACHINES = 5
BARE = "up,machine-away,head-away"
"""Ray alone, without brokers."""


def main(
    steps: Annotated[
        str, typer.Option(help=f"Which, with commas, in this order: {', '.join(STEPS)}.")
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
            sys.exit(hub.run_in_hub())
        except hub.NoMachinesError as missing:
            console.print(str(missing), markup=False)
            raise typer.Exit(2) from None
    began = time.monotonic()
    with site(folder, machines) as here:
        scene = Scene(here, console, began)
        try:
            for name in wanted:
                scene.run(name)
        finally:
            if hold:
                scene.say("the machines stay until Ctrl-C")
                signal.pause()
    console.print(f"{time.monotonic() - began:.0f} s in all")


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()
