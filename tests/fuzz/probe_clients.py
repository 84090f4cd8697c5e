"""The good clients of a campaign, in a process of their own: the fuzzer's work does not delay them.

`python -m tests.fuzz.probe_clients HOST:PORT --topic T --gateway PID` prints a line when it has
begun, asks until its input ends, and prints what it has seen as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from typing import Annotated

import typer

from tests.cluster.malformed import GoodClient
from tests.fuzz.health import Probe

END_TIMEOUT_S = 120.0


@dataclass(slots=True)
class Seen:
    """What good clients have seen."""

    failures: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    """How much they did, and how long it took."""


class ProbeClients:
    """Good clients in another process, as long as the context lasts."""

    def __init__(self, address: str, topic: str, gateway: int) -> None:
        """`gateway` is the process that the clients talk to, 0 if it is not on this machine."""
        self._command = [
            sys.executable,
            "-m",
            "tests.fuzz.probe_clients",
            address,
            "--topic",
            topic,
        ]
        self._command += ["--gateway", str(gateway)]
        self._process: subprocess.Popen[str] | None = None
        self.seen = Seen()

    def __enter__(self) -> ProbeClients:
        """Begin, and wait until every kind of coordinator was asked once."""
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, text=True)
        assert self._process.stdout is not None
        self._process.stdout.readline()
        return self

    def __exit__(self, *_: object) -> None:
        """End them, and take in what they have seen."""
        assert self._process is not None
        try:
            said, _errors = self._process.communicate(timeout=END_TIMEOUT_S)
            self.seen = Seen(**json.loads(said))
        except (subprocess.TimeoutExpired, json.JSONDecodeError) as failure:
            self._process.kill()
            self._process.wait()
            self.seen.failures.append(f"the good clients' process: {failure!r}")


def main(
    address: Annotated[str, typer.Argument()],
    topic: Annotated[str, typer.Option()],
    gateway: Annotated[int, typer.Option()] = 0,
) -> None:
    """Ask until the input ends."""
    with Probe(address, gateway) as probe, GoodClient(address, topic) as good:
        typer.echo("begun")
        sys.stdin.read()
    seen = Seen([f"probe: {text}" for text in probe.failures])
    seen.failures += [f"good client: {text}" for text in good.failures]
    seen.lines = [
        f"good client: {good.rounds} rounds, slowest {good.slowest_s:.2f} s",
        f"probe: {probe.rounds} groups and transactions, slowest {probe.slowest_work_s:.2f} s",
        f"{probe.pings} ApiVersions: {probe.delays()}",
    ]
    typer.echo(json.dumps(asdict(seen)))


if __name__ == "__main__":
    typer.run(main)
