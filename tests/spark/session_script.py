"""A Spark session on a cluster, run in a process of its own by `test_session`.

`python -m tests.spark.session_script DATA BOOTSTRAP`: Spark reads a topic, its executors write it
to another one through the sink, and at the end nothing of it is left. Prints what it found as JSON.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from types import FrameType

from raylog.actors.runtime.ray_node import (
    LocalRay,
    actors_named,
    connect,
    disconnect,
    running_nodes,
)
from raylog.client import BlockingClient, NewTopic
from raylog.raydp_jobs.pipelines.executors import count_executors
from raylog.raydp_jobs.session import SparkSettings, spark_session
from raylog.raydp_jobs.sink import write_exactly_once

ROWS = 100
SETTINGS = SparkSettings(executors=1, executor_memory="512m", placement="PACK")


def main(data: Path, bootstrap: str) -> None:
    """Run it."""
    signal.signal(signal.SIGTERM, _terminated)
    handlers = _handlers()
    with BlockingClient(bootstrap) as client:
        client.create_topics([NewTopic("in", 2), NewTopic("out", 2)])
        with client.producer() as producer:
            for n in range(ROWS):
                producer.send("in", b"%d" % n, key=b"%d" % n)
    with spark_session(data, SETTINGS) as spark:
        df = (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", "in")
            .load()
        )
        found = {
            "read": df.count(),
            "executors": count_executors(spark),
            "new": write_exactly_once(df.select("key", "value"), bootstrap, "out", "out", "job"),
            "same_signals": _handlers() == handlers,
            "master": str(spark.sparkContext.master).partition(":")[0],
        }
    found["left"] = actors(running_nodes(data / "run")[0])
    print(json.dumps(found))  # noqa: T201  # its output


def _terminated(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _handlers() -> list[object]:
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


def actors(ray: LocalRay) -> list[str]:
    """Names of the actors that live, brokers' apart."""
    connect(ray.address, ray.token_path)

    names = [actor.name for actor in actors_named("") if "/" not in actor.name]
    disconnect()
    return names


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
