"""Made-up results of load tests: a fault, a stall, lag, wrong answers as a test likes."""

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from hdrh.histogram import HdrHistogram

from raylog.loadtest.jobs import Job
from raylog.loadtest.results import (
    Audit,
    Finding,
    Gauge,
    Generator,
    Interval,
    Mark,
    Operation,
    Result,
    Target,
    Verdict,
)
from raylog.loadtest.scenario import Scenario, Threshold

WARMUP_S = 5
SAMPLES = 400
"""How many latencies are drawn per second; each stands for several requests."""


def scenario(**changed: Any) -> Scenario:
    """Return a scenario of writers and a group on one topic, in which a broker is lost."""
    return Scenario.model_validate(
        {
            "name": "broker-loss",
            "question": "What does losing a broker feel like?",
            "duration_s": 120.0,
            "warmup_s": float(WARMUP_S),
            "topics": {"orders": {"partitions": 6, "replication": 3}},
            "users": [
                {"kind": "producer", "topic": "orders", "rate": 20_000.0, "count": 4},
                {"kind": "group", "topic": "orders", "group": "billing", "count": 3},
            ],
            "faults": [{"kind": "kill-leader", "at_s": 60.0, "topic": "orders"}],
            "thresholds": [
                {"operation": "produce", "percentile": "p99_ms", "max_ms": 50.0},
                {"operation": "produce", "errors_share": 0.001},
                {"lag_records": 1000},
            ],
        }
        | changed
    )


def job() -> Job:
    """Return the job that a lead process gets to run that scenario."""
    return Job(
        scenario=scenario(),
        run="ab12",
        bootstrap="kafka:9092",
        security={},
        target="",
        workers=0,
    )


def encoded(latencies_us: Sequence[float], each: int = 1) -> str:
    """Return latencies encoded as in results."""
    histogram = HdrHistogram(1, 3_600_000_000, 3)
    for latency in latencies_us:
        histogram.record_value(max(int(latency), 1), each)
    text: bytes = histogram.encode()
    return text.decode()


def operation(
    name: str,
    seconds: int,
    *,
    rate: int = 20_000,
    median_us: float = 2_000,
    stall: tuple[int, float] | None = None,
    size: int = 100,
    seed: int = 1,
    noise: float = 0.1,
    errors: dict[str, int] | None = None,
) -> Operation:
    """Return an operation with lognormal latencies; requests in a stall wait until it ends."""
    chance = random.Random(f"{name} {seed}")
    each = max(rate // SAMPLES, 1)
    intervals = []
    for second in range(seconds):
        level = median_us * math.exp(chance.gauss(0, noise))
        found = [
            chance.lognormvariate(math.log(level), 0.6) + _stalled_us(second, stall, chance)
            for _ in range(min(rate, SAMPLES))
        ]
        failures = sum((errors or {}).values()) if stall and second == stall[0] else 0
        intervals.append(
            Interval(
                second=second,
                requests=len(found) * each,
                failures=failures,
                bytes=len(found) * each * size,
                latencies=encoded(found, each),
            )
        )
    return Operation(name=name, errors=errors or {}, intervals=intervals)


def _stalled_us(second: int, stall: tuple[int, float] | None, chance: random.Random) -> float:
    if stall is None or not stall[0] <= second < stall[0] + stall[1]:
        return 0.0
    return (stall[0] + stall[1] - second - chance.random()) * 1e6


def gauge(
    name: str, unit: str, seconds: int, value: Callable[[int], float], **labels: str
) -> Gauge:
    """Return a gauge with one value per second."""
    points = [(float(at), value(at)) for at in range(seconds)]
    return Gauge(name=name, labels=labels, unit=unit, points=points)


def joins(latencies_us: Sequence[float] = (90_000, 120_000, 150_000)) -> Operation:
    """Return the operation of group members that join at the beginning."""
    first = Interval(
        second=0,
        requests=len(latencies_us),
        failures=0,
        bytes=0,
        latencies=encoded(latencies_us),
    )
    return Operation(name="join", errors={}, intervals=[first])


def result(
    seconds: int = 120,
    *,
    seed: int = 1,
    median_us: float = 2_000,
    stall: tuple[int, float] | None = (60, 3.0),
    findings: Sequence[Finding] = (),
    errors: dict[str, int] | None = None,
    bootstrap: str = "127.0.0.1:9092",
    kind: str = "Raylog 0.1.0",
    **changed: Any,
) -> Result:
    """Return a run with a fault at 60 s, after which writers wait for 3 s and lag grows."""
    made = scenario(duration_s=float(seconds))
    chance = random.Random(seed)
    found: dict[str, Any] = {
        "run": f"run-{seed}",
        "started": "2026-11-24T17:00:00Z",
        "duration_s": float(seconds),
        "scenario": made,
        "target": Target(bootstrap=bootstrap, kind=kind, brokers=3),
        "machine": "AMD EPYC, 2 cores, 24 GiB, Linux 6.18",
        "raylog": "0.1.0, commit 1234567",
        "operations": [
            operation(
                "produce", seconds, seed=seed, median_us=median_us, stall=stall, errors=errors
            ),
            operation("end-to-end", seconds, seed=seed, median_us=median_us * 1.5, stall=stall),
            operation("commit", seconds, rate=3, seed=seed, size=0),
            joins(),
        ],
        "generators": [_generator(worker, seconds, chance) for worker in range(2)],
        "gauges": _gauges(seconds, chance),
        "marks": [
            Mark(at_s=60.0, kind="fault", text="broker 1, leader of orders-0, was killed"),
            Mark(at_s=62.4, kind="note", text="group billing rebalanced"),
        ],
        "audit": Audit(
            acknowledged=20_000 * seconds,
            unanswered=12,
            found=20_000 * seconds,
            findings=list(findings),
        ),
        "verdicts": [
            Verdict(threshold=threshold, found=value, held=True)
            for threshold, value in zip(made.thresholds, (18.4, 0.0002, 12.0), strict=True)
        ],
        "limited_by_generator": [],
        "capacity": None,
        "notes": [],
    }
    return Result(**(found | changed))


def _generator(worker: int, seconds: int, chance: random.Random) -> Generator:
    return Generator(
        worker=worker,
        host="generator-1",
        cores=2,
        pid=100 + worker,
        cpu_share=[chance.uniform(0.4, 0.6) for _ in range(seconds)],
        late_ms=[chance.uniform(1, 5) for _ in range(seconds)],
        lateness=encoded([chance.lognormvariate(6, 1) for _ in range(1000)]),
        clock_offset_us=12 * worker,
        clock_uncertainty_us=40,
    )


def _gauges(seconds: int, chance: random.Random) -> list[Gauge]:
    """Return the lag of a group, and metrics of three brokers."""
    return [
        gauge(
            "lag",
            "records",
            seconds,
            lambda at: max(0, 60_000 - 2_000 * abs(at - 65)),
            group="billing",
        ),
        *(
            gauge(
                "raylog_bytes_in",
                "B/s",
                seconds,
                lambda at: 7e5 * chance.uniform(0.9, 1.1),
                broker=str(broker),
            )
            for broker in range(3)
        ),
        gauge(
            "raylog_under_replicated_partitions",
            "partitions",
            seconds,
            lambda at: 6.0 if 60 <= at < 75 else 0.0,
        ),
    ]


def failed(**changed: Any) -> Result:
    """Return a run that lost records and was too slow."""
    slow = Threshold(operation="produce", percentile="p99_ms", max_ms=50.0)
    findings = [
        Finding(
            kind="lost",
            count=3,
            examples=["orders-2, sender 4, sequence 17", "orders-2, sender 4, sequence 18"],
        ),
        Finding(
            kind="doubled",
            count=1,
            examples=["orders-0@4711 and orders-0@4723: sender 1, sequence 9"],
        ),
    ]
    found: dict[str, Any] = {
        "findings": findings,
        "verdicts": [Verdict(threshold=slow, found=83.2, held=False)],
        "errors": {
            "NOT_ENOUGH_REPLICAS: expected 2 in-sync replicas, found 1": 310,
            "timed out after 30 s": 7,
        },
        "limited_by_generator": [(20.0, 26.0)],
        "notes": ["The lag of group billing was read from the broker once a second."],
    }
    return result(**(found | changed))
