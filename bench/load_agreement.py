"""Whether several load processes measure the same as one: `make loadtest-agreement`.

A broker on three Ray nodes is loaded by one process, by four, and by one on each node, in turn,
with the same scenario. The medians over all rounds are compared with those of one process:
throughput within 5 %, p50 within 10 %. The exit code is 1 if they differ by more. Run it on an idle
machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from raylog.loadtest.histograms import added_up
from raylog.loadtest.results import Result

COMMAND = (sys.executable, "-m", "raylog.cli")
NODES = 3
WAYS: dict[str, tuple[str, ...]] = {
    "one process": (),
    "4 processes": ("--processes", "4"),
    f"{NODES} Ray nodes": ("--on-ray", str(NODES)),
}
ONE = next(iter(WAYS))
THROUGHPUT_OFF = 0.05
P50_OFF = 0.10
_OPERATIONS = ("produce", "end-to-end")


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Runs of each kind.")] = 5,
    seconds: Annotated[float, typer.Option(min=5.0, help="Of each run.")] = 30.0,
    rate: Annotated[
        float, typer.Option(min=1.0, help="Records/s: at most 30 % of what the broker can take.")
    ] = 200.0,
) -> None:
    """Compare and print a table."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in WAYS}
    with _cluster() as data:
        for number in range(rounds):
            for name, options in WAYS.items():
                figures = _figures(_run(data, options, seconds, rate))
                found[name].append(figures)
                figures_text = ", ".join(f"{key} {value:,.2f}" for key, value in figures.items())
                print(f"round {number + 1}, {name}: {figures_text}", flush=True)
    medians = {
        name: {key: median(one[key] for one in runs) for key in runs[0]}
        for name, runs in found.items()
    }
    print(json.dumps(medians, indent=1))
    differing = list(_differing(medians))
    print("\n".join(differing) or "all agree")
    raise typer.Exit(1 if differing else 0)


@contextmanager
def _cluster() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="load-") as folder:
        data = Path(folder)
        options = ["--brokers", "1", "--nodes", str(NODES), "--port", "0", "--detach"]
        subprocess.run([*COMMAND, "up", "--data", data, *options], check=True)
        try:
            yield data
        finally:
            subprocess.run([*COMMAND, "down", "--data", data], check=True)


def _run(data: Path, options: tuple[str, ...], seconds: float, rate: float) -> Result:
    changes = [f"users.0.rate={rate}", "users.0.count=12", "users.1.count=12", "thresholds=[]"]
    changes += ["topics.orders.partitions=12"]
    sets = [part for one in changes for part in ("--set", one)]
    asked = ["loadtest", "steady", "--data", str(data), "--duration", str(seconds), "--json"]
    done = subprocess.run([*COMMAND, *asked, *options, *sets], stdout=subprocess.PIPE, check=True)
    return Result.model_validate_json(done.stdout)


def _figures(result: Result) -> dict[str, float]:
    """Requests/s and p50 in ms over the whole seconds after the warm-up."""
    first, end = int(result.scenario.warmup_s) + 1, int(result.duration_s)
    figures = {}
    for operation in result.operations:
        if operation.name in _OPERATIONS:
            seconds = [one for one in operation.intervals if first <= one.second < end]
            total = added_up(one.latencies for one in seconds if one.requests)
            requests = sum(one.requests for one in seconds)
            figures[f"{operation.name}/s"] = requests / (end - first)
            figures[f"{operation.name} p50 ms"] = total.get_value_at_percentile(50) / 1000
    return figures


def _differing(medians: dict[str, dict[str, float]]) -> Iterator[str]:
    for name, figures in medians.items():
        for key, value in figures.items():
            allowed = P50_OFF if key.endswith("ms") else THROUGHPUT_OFF
            off = value / medians[ONE][key] - 1
            if abs(off) > allowed:
                yield f"{name}: {key} differs by {off:+.1%}, more than {allowed:.0%}"


if __name__ == "__main__":
    typer.run(main)
