"""A Spark session whose executors are Ray actors on the cluster that runs the brokers.

    with spark_session(Path("raylog-data"), SparkSettings(executors=2)) as spark: ...
    with spark_session(address="auto") as spark: ...  # on a Ray that is already running

RayDP 1.6.5 and pyspark 3.5.7 work unmodified with Ray 2.60. This module configures them:

- Python workers use the driver's interpreter, where raylog and the pinned packages are, and import
  nothing from Spark's archives (`worker_daemon`).
- RayDP's master, which requests executors again when their machine is lost, runs on the driver's
  node: otherwise the driver could wait forever for executors that nobody requests.
- Each session has its own Ray namespace, because RayDP uses the same actor names in all sessions.
- If the driver is on loopback, Spark listens on loopback too.
- The program's signal handlers are kept.
- The end of a session stops RayDP's actors, the connection to Ray and the driver's JVM, and waits
  at most `STOP_S` for each of them.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from raylog.actors.runtime.ray_node import disconnect, prepare_environment
from raylog.cluster_record import read_record
from raylog.extras import check
from raylog.raydp_jobs import worker_daemon
from raylog.raydp_jobs.jars import connector_jars
from raylog.raydp_jobs.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

STOP_S = 30.0
_LOOPBACK = "127.0.0.1"
_ONE_PROCESS = {"spark.storage.blockManagerHeartbeatTimeoutMs": "365d"}
"""For a session whose executor is in the driver's process and so cannot be lost.

Otherwise, if the machine sleeps for two minutes, Spark considers the executor lost, cannot register
it again, and ends the JVM ten minutes later with status 56.
"""


class NoCluster(Exception):
    """There is no running cluster to put Spark on."""


class SessionOpen(Exception):
    """This process already has a Spark session or a Ray connection."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The resources and settings of a session."""

    app_name: str = "raylog"
    executors: int = 1
    executor_cores: int = 1
    executor_memory: str = "1g"
    """The heap size of each executor, in Spark's format."""
    placement: str | None = None
    """How Ray spreads executors: PACK, SPREAD, STRICT_PACK, STRICT_SPREAD; None: Ray's default."""
    jars: Path | None = None
    """A folder with the Kafka connector's jars; None: they are found or downloaded."""
    configs: Mapping[str, str] = field(default_factory=dict)
    """Spark's own settings; they take precedence."""


@contextmanager
def spark_session(
    data: Path | None = None,
    settings: SparkSettings | None = None,
    *,
    address: str | None = None,
) -> Iterator[SparkSession]:
    """Open a session on the cluster of `raylog up --data DATA`, or on the Ray at an address.

    `address` is HOST:PORT, or `auto` for a Ray that already runs on this machine. Raises
    JavaMissing, JarsMissing, NoCluster or SessionOpen.
    """
    check("spark", "spark_session")
    settings = settings or SparkSettings()
    place = _place(data, address)
    find_java()
    jars = connector_jars(settings.jars)
    host = _connect(place)
    try:
        configs = master_beside(host) | spark_configs(jars, host, settings.configs)
        import raydp

        with _same_signals():
            session = raydp.init_spark(
                app_name=f"{settings.app_name}-{secrets.token_hex(4)}",
                num_executors=settings.executors,
                executor_cores=settings.executor_cores,
                executor_memory=settings.executor_memory,
                fault_tolerant_mode=False,
                placement_group_strategy=settings.placement,
                configs=configs,
            )
        yield session
    finally:
        _stop()


@contextmanager
def local_session(
    app_name: str = "raylog",
    master: str = "local[*]",
    jars: Path | None = None,
    configs: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """Open a session in a JVM of this process, without Ray; `configs` take precedence.

    Raises JavaMissing, JarsMissing or SessionOpen.
    """
    find_java()
    own = _ONE_PROCESS | dict(configs or {})
    of_spark = spark_configs(connector_jars(jars), _LOOPBACK, own)
    from pyspark.sql import SparkSession

    _require_no_session()
    _tell_spark(_LOOPBACK)
    builder = SparkSession.builder.master(master).appName(app_name)
    for key, value in of_spark.items():
        builder = builder.config(key, value)
    with _same_signals():
        session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def spark_configs(jars: list[Path], host: str, own: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's settings for a driver on `host`; the user's `own` take precedence."""
    configs = {
        "spark.jars": ",".join(str(path) for path in jars),
        "spark.ui.enabled": "false",
        worker_daemon.SETTING: worker_daemon.MODULE,
    }
    if host.startswith("127."):
        configs |= {"spark.driver.host": host, "spark.driver.bindAddress": host}
    return configs | dict(own)


def master_beside(host: str) -> dict[str, str]:
    """Return settings that make RayDP's master run on the Ray node with this address."""
    resource = "spark.ray.raydp_spark_master.actor.resource"
    return {f"{resource}.CPU": "0", f"{resource}.node:{host}": "0.001"}


@dataclass(frozen=True, slots=True)
class _RayPlace:
    """A Ray to connect to, with its token unless the environment has it."""

    address: str
    token_path: str | None = None


def _place(data: Path | None, address: str | None) -> _RayPlace:
    if (data is None) == (address is None):
        raise ValueError("expected a data directory or the address of a Ray, found both or neither")
    if data is None:
        return _RayPlace(str(address))
    record = read_record(data.absolute() / "run")
    if record is None:
        raise NoCluster(f"no cluster is up on {data}: start one with `raylog up --data {data}`")
    return _RayPlace(record.ray_address, record.token_path)


def _connect(place: _RayPlace) -> str:
    """Connect this process to the cluster's Ray as a driver, in a namespace of its own.

    Returns the address of this machine's node, where Spark's driver is.
    """
    _require_no_session()
    if place.token_path is not None:
        prepare_environment(Path(place.token_path), metrics=False)
    import ray
    from ray.exceptions import RayError

    if ray.is_initialized():
        raise SessionOpen("this process is connected to Ray: end that first")
    with _same_signals():
        try:
            ray.init(
                address=place.address,
                namespace=f"raylog-spark-{secrets.token_hex(4)}",
                log_to_driver=False,
                logging_level=logging.ERROR,
                configure_logging=False,
            )
        except (ConnectionError, RuntimeError, RayError) as failure:
            why = str(failure).strip().splitlines()[-1]
            raise NoCluster(f"no Ray can be joined at {place.address}: {why}") from failure
    host: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]  # Ray's
    _tell_spark(host)
    return host


@contextmanager
def _same_signals() -> Iterator[None]:
    """Restore the program's signal handlers after Ray and PySpark have set theirs.

    PySpark's handler calls the JVM from wherever the signal arrives; Ray's aborts the process three
    seconds later, even if the shutdown is not complete.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can set handlers
        return
    own = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in own.items():
            if callable(handler):
                signal.signal(number, handler)


def _require_no_session() -> None:
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is not None:
        raise SessionOpen("this process has a Spark session: end it first")


def _tell_spark(host: str) -> None:
    """Set the environment variables that Spark reads."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if host.startswith("127."):
        os.environ["SPARK_LOCAL_IP"] = host


def _stop() -> None:
    """End RayDP's actors, the driver's JVM and the connection to Ray."""
    import raydp

    _within_deadline("RayDP", raydp.stop_spark)
    _within_deadline("the driver's JVM", _stop_jvm)
    disconnect()


def _stop_jvm() -> None:
    """End the JVM that pyspark keeps for later sessions, because they may need other jars."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    process = gateway.proc
    gateway.shutdown()
    if process.stdin is not None:
        process.stdin.close()  # this tells the JVM to exit
    process.wait(STOP_S)
    SparkContext._gateway = None
    SparkContext._jvm = None


def _within_deadline(what: str, stop: Callable[[], object]) -> None:
    """Call something that may hang; stop waiting after `STOP_S`."""
    thread = threading.Thread(target=stop, name=f"stop {what}", daemon=True)
    thread.start()
    thread.join(STOP_S)
    if thread.is_alive():
        log.warning("%s did not end in %g s", what, STOP_S)
