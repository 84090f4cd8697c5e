"""The Spark session of the demonstration."""

import importlib.util
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from raylog.cli.quieting import output_to
from raylog.demo.cluster import Cluster, ignore_interrupts
from raylog.demo.screen import step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXECUTORS = 2
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For JVMs that live for two minutes: fast compilation rather than fast code."""


def check_spark() -> None:
    """Raise JavaMissing, JarsMissing or ModuleNotFoundError before anything starts.

    Downloads the connector's jars if they are missing.
    """
    for name in ("matplotlib", "pandas", "pyspark", "raydp"):
        if importlib.util.find_spec(name) is None:  # an import would import Ray too early
            raise ModuleNotFoundError(name=name)
    from raylog.raydp_jobs.jars import connector_jars
    from raylog.raydp_jobs.java import find_java

    find_java()
    connector_jars()


@contextmanager
def spark_on(cluster: Cluster, log: Path, say: Console) -> Iterator["SparkSession"]:
    """Open a session with two executors next to the brokers. Spark's messages go to `log`."""
    from raylog.raydp_jobs.session import SparkSettings, spark_session

    local = cluster.data.parent / "spark"
    settings = SparkSettings(
        app_name="raylog-demo",
        executors=EXECUTORS,
        executor_memory="768m",
        configs={
            "spark.driver.extraJavaOptions": _JVM,
            "spark.executor.extraJavaOptions": _JVM,
            "spark.ray.raydp_app_master.extraJavaOptions": _JVM,
            "spark.local.dir": str(local),
            "spark.sql.warehouse.dir": str(local / "warehouse"),
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": str(EXECUTORS),
            "spark.ui.showConsoleProgress": "false",
        },
    )
    with ExitStack() as stack:
        words = stack.enter_context(output_to(log))
        stack.enter_context(redirect_stdout(words))
        stack.enter_context(redirect_stderr(words))
        with step(say, f"Spark with {EXECUTORS} executors on the brokers' Ray"):
            session = stack.enter_context(spark_session(cluster.data, settings))
            # The first job would wait for the executors, too, but silently.
            session.range(EXECUTORS, numPartitions=EXECUTORS).count()
        say.print(f"messages of Spark and Ray: {log}", highlight=False)
        try:
            yield session
        finally:
            before = ignore_interrupts()
            with step(say, "Spark ended"):
                stack.close()
            signal.signal(signal.SIGINT, before)
