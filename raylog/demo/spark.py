"""The Spark session of the demonstration."""

import importlib.util
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from raylog.cli.others_words import others_words_to
from raylog.demo.cluster import Cluster, ignore_interrupts
from raylog.demo.screen import step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXECUTORS = 2
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For JVMs that live for two minutes: compile quickly rather than well."""


def check_spark() -> None:
    """Raise JavaMissing, JarsMissing or ModuleNotFoundError before anything is started.

    Fetches the connector's jars if they are not here yet.
    """
    for name in ("matplotlib", "pandas", "pyspark", "raydp"):
        if importlib.util.find_spec(name) is None:  # an import would bring Ray in too early
            raise ModuleNotFoundError(name=name)
    from raylog.raydp_jobs.jars import connector_jars
    from raylog.raydp_jobs.java import find_java

    find_java()
    connector_jars()


@contextmanager
def spark_on(cluster: Cluster, log: Path, say: Console) -> Iterator["SparkSession"]:
    """A session with two executors beside the brokers; Spark's own messages go to `log`."""
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
        words = stack.enter_context(others_words_to(log))
        stack.enter_context(redirect_stdout(words))
        stack.enter_context(redirect_stderr(words))
        with step(say, f"Spark with {EXECUTORS} executors on the brokers' Ray"):
            session = stack.enter_context(spark_session(cluster.data, settings))
            _await_executors(session)
        say.print(f"messages of Spark and Ray: {log}", highlight=False)
        try:
            yield session
        finally:
            before = ignore_interrupts()
            with step(say, "Spark ended"):
                stack.close()
            signal.signal(signal.SIGINT, before)


def _await_executors(session: "SparkSession") -> None:
    """Wait until executors can work: the first job waits for them, too, but says nothing."""
    session.range(EXECUTORS, numPartitions=EXECUTORS).count()
