"""A million records through a broker that loses one, and a minute with one late answer.

`python -m tests.support.planted_load` takes five minutes. It prints what each load test reported,
and the same for a run without faults. `make test` plants the same faults in shorter runs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from raylog.testing import EmbeddedBroker
from tests.worlds.servers.lying_broker import Lies, LyingBroker, Place

LOSES = Lies(loses=Place(partition=1, offset=300_000))
IS_LATE = Lies(late_ms=500, late_after_s=20, late_every_s=60)


def scenario(duration_s: int, rate: int) -> dict[str, Any]:
    """Return a scenario with two producers and a consumer."""
    return {
        "name": "planted",
        "question": "Is it reported?",
        "duration_s": duration_s,
        "warmup_s": 0,
        "topics": {"t": {"partitions": 2}},
        "users": [
            {
                "kind": "producer",
                "topic": "t",
                "rate": rate,
                "count": 2,
                "client": {"linger.ms": 10},
            },
            {"kind": "consumer", "topic": "t"},
        ],
    }


def main() -> None:
    """Run with each fault, then without."""
    for name, lies, given in (
        ("one record in a million is lost", LOSES, scenario(52, 20_000)),
        ("none is lost", Lies(), scenario(52, 20_000)),
        ("500 ms late once a minute", IS_LATE, scenario(75, 2_000)),
        ("never late", Lies(), scenario(75, 2_000)),
    ):
        with EmbeddedBroker() as broker, LyingBroker(broker.bootstrap, lies) as proxy:
            done = subprocess.run(
                [
                    *(sys.executable, "-m", "tests.support.load_run", proxy.bootstrap),
                    json.dumps(given),
                ],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
        report = json.loads(done.stdout.splitlines()[-1])
        produced, cpu_s = report["operations"]["produce"], report["cpu_s"]
        figures = {
            "records": produced["requests"],
            "produce_ms": produced["ms"],
            "cpu_us_a_record": round(cpu_s / produced["requests"] * 1e6, 1),
            "findings": report["audit"]["findings"],
        }
        sys.stdout.write(f"{name}: {json.dumps(figures)}\n")


if __name__ == "__main__":
    main()
