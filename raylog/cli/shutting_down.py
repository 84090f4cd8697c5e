"""Shuts brokers down through Ray, in a separate process.

If Ray hangs, a driver may not return: connecting retries for minutes without handling signals, and
a driver that loses its raylet ends its process. So a helper process talks to Ray, and the command
waits for it and kills it when the time is up.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from raylog.cli.failures import last_line
from raylog.cluster_record import read_record

_LOOK_S = 0.2
_TELL_S = 5.0
_REST_S = 2.0
"""How much earlier a broker's deadline is than ours, so that failures are reported by broker."""


def shut_down(
    run: Path, broker_ids: Sequence[int], timeout_s: float, tell: Callable[[str], None]
) -> dict[int, str]:
    """Shut down the recorded brokers within `timeout_s`; return why some did not end cleanly."""
    command = [sys.executable, "-m", "raylog.cli.shutting_down", str(run), str(timeout_s)]
    tell("shutting down brokers")
    with subprocess.Popen(  # noqa: S603 - this very program
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as helper:
        try:
            output, errors = _wait(helper, timeout_s, tell)
        except subprocess.TimeoutExpired:
            return dict.fromkeys(broker_ids, f"not shut down within {timeout_s:g} s")
        finally:
            helper.kill()  # harmless if it has ended
    if helper.returncode != 0 or not output:  # a driver that loses its Ray ends silently
        lines = errors.strip().splitlines() or [f"exit code {helper.returncode}"]
        return dict.fromkeys(broker_ids, f"Ray did not answer: {lines[-1]}")
    return {int(broker_id): why for broker_id, why in json.loads(output).items()}


def _wait(
    helper: subprocess.Popen[str], timeout_s: float, tell: Callable[[str], None]
) -> tuple[str, str]:
    """Wait for the helper and report progress; return its output. Raises TimeoutExpired."""
    begun = reported_at = time.monotonic()
    while True:
        waited_s = time.monotonic() - begun
        try:
            return helper.communicate(timeout=min(_LOOK_S, max(0.0, timeout_s - waited_s)))
        except subprocess.TimeoutExpired:
            if waited_s >= timeout_s:
                raise
        if time.monotonic() - reported_at >= _TELL_S:
            reported_at = time.monotonic()
            tell(f"shutting down brokers: {waited_s:.0f} s of at most {timeout_s:g} s")


def main(run: Path, timeout_s: float) -> None:
    """Run the helper: connect, shut down, and print what did not end cleanly as JSON."""
    record = read_record(run)
    assert record is not None, f"no cluster is recorded in {run}"
    from raylog.actors.runtime.ray_node import connect

    connect(record.ray_address, record.token_path)
    from ray.exceptions import RayError

    from raylog.actors.cluster import stop_cluster
    from raylog.actors.runtime.ray import RayRuntime

    runtime = RayRuntime.of_driver(record.secret_path)
    timeout_ms = round(max(0.1, timeout_s - _REST_S) * 1000)
    try:
        failures = asyncio.run(
            stop_cluster(runtime, record.cluster_id, record.broker_ids, timeout_ms=timeout_ms)
        )
    except RayError as failure:
        failures = dict.fromkeys(record.broker_ids, last_line(failure))
    sys.stdout.write(json.dumps(failures))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
