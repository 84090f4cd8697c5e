"""A local Ray node that we start, record and end, with no files outside our directory.

| what | how |
|---|---|
| listeners | loopback only; the system chooses every port |
| access | a token file (0600) in the run directory, passed on by two environment variables |
| idle load | no dashboard, monitors or log monitor; longer reporting and housekeeping intervals |
| memory | Ray's memory monitor is off: it prefers restartable actors, that is brokers, as victims |
| record | `<run>/ray-<n>.json`: address and every process with pid and start time |
| end | exactly the recorded processes and their descendants; never `ray stop` |

Ray's Node class is used in this process instead of `ray start`, which would import Ray a second
time and scan the machine for other clusters.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import logging
import os
import resource
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Container, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raylog.actors.places import NodeEntry
from raylog.actors.runtime.link_secret import LinkSecrets, write_secrets
from raylog.actors.runtime.processes import (
    CHILD,
    ProcessRecord,
    descendants,
    end,
    is_running,
    record_of,
)

if TYPE_CHECKING:
    from ray._private.node import Node

NAMESPACE = "raylog"
LOOPBACK = "127.0.0.1"
OBJECT_STORE_BYTES = 256 * 1024 * 1024
_SOCKET_PATH_MAX = 42
"""Longest directory with which Ray's socket names fit a socket address (107 bytes)."""
_SESSIONS_KEPT = 2
_GRACE_MS = 700
"""How long Ray's processes may take to end before they are killed."""
_DISCONNECT_S = 5.0
_METRICS_MODULES = ("aiohttp", "aiohttp_cors", "grpc", "opencensus", "opentelemetry")
"""Modules that Ray's metrics need from its dashboard; `ray[default]` installs them."""
_children: list[subprocess.Popen[bytes]] = []
"""Referenced so that only `stop_nodes` reaps them."""

_QUIET = {
    "RAY_metrics_report_interval_ms": "60000",
    "RAY_task_events_report_interval_ms": "0",
    "RAY_event_stats": "0",
}
_ENVIRONMENT = {
    "MALLOC_ARENA_MAX": "1",  # else each thread keeps up to 64 MiB of freed memory
    "RAY_AUTH_MODE": "token",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # else Ray rewrites loopback to the host's address
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_timeline": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_raylet_report_resources_period_milliseconds": "1000",
    "RAY_raylet_check_gc_period_milliseconds": "1000",
    "RAY_kill_idle_workers_interval_ms": "2000",
    "RAY_gcs_pull_resource_loads_period_milliseconds": "10000",
    "RAY_free_objects_period_milliseconds": "10000",
    "RAY_health_check_period_ms": "1000",  # a lost node is noticed after 5 s instead of 15
    "RAY_worker_niceness": "0",  # actors serve clients; Ray's default runs them last
    # Fixed, because glibc otherwise raises them after the first big buffer and keeps later ones.
    "MALLOC_MMAP_THRESHOLD_": "1048576",
    "MALLOC_TRIM_THRESHOLD_": "1048576",
}


class RayNotStarted(Exception):
    """Ray's processes did not start."""


class RecordDamaged(Exception):
    """The record of started processes cannot be read."""


@dataclass(frozen=True, slots=True)
class LocalRay:
    """A Ray node on this machine that we started."""

    address: str
    """GCS address, host:port."""
    node_id: str
    token_path: str
    directory: str
    """Ray's sessions and logs, under a name that is short enough for sockets."""
    processes: list[ProcessRecord]

    @property
    def is_running(self) -> bool:
        """Whether Ray runs. The raylet takes care of agents and workers, which come and go."""
        own = [process for process in self.processes if process.name != CHILD]
        return bool(own) and all(is_running(process) for process in own)


def start_node(
    run: Path,
    *,
    index: int = 0,
    join: str | None = None,
    host: str = LOOPBACK,
    cpus: int | None = None,
    resources: dict[str, float] | None = None,
    labels: dict[str, str] | None = None,
    object_store_bytes: int = OBJECT_STORE_BYTES,
    metrics: bool = False,
) -> LocalRay:
    """Start a Ray node, a head or one that joins `join` (host:port), and record it in `run`.

    The node listens on `host`, and other nodes reach it there. Changes this process's environment
    (Ray's settings are inherited by all it starts), so that `connect` finds the same token. On
    failure the node's processes are ended, then OSError is raised, or RayNotStarted for errors of
    Ray.
    """
    # Ray's directories are accessible to all, so the one around them is not.
    run.mkdir(mode=0o700, parents=True, exist_ok=True)
    prepare_environment(_token(run), metrics=metrics)
    raise_descriptor_limit()
    directory = _ray_directory(run)

    def note(node: Node) -> LocalRay:
        """Record what runs by now, so that it can be ended whatever happens next."""
        noted = LocalRay(
            address=node.gcs_address or "",
            node_id=node.node_id,
            token_path=str(_token(run)),
            directory=str(directory),
            processes=_processes(node),
        )
        _write(_record_path(run, index), noted)
        return noted

    with _ended_on_failure(directory), _own_sessions():
        node = _launch(
            note,
            head=join is None,
            metrics=metrics,
            gcs_address=join,
            node_ip_address=host,
            num_cpus=cpus,
            resources=resources,
            labels=labels,
            object_store_memory=object_store_bytes,
            temp_dir=str(directory),
        )
        return note(node)


def running_nodes(run: Path) -> list[LocalRay]:
    """Return the recorded nodes, head first, running or not; raises RecordDamaged."""
    return [_read(path) for path in sorted(run.glob("ray-*.json"))]


def stop_nodes(run: Path, *, grace_ms: int = _GRACE_MS) -> list[ProcessRecord]:
    """End every recorded node with all its workers; return the processes that did not end."""
    nodes = running_nodes(run)
    processes = [process for node in reversed(nodes) for process in reversed(node.processes)]
    left = end([*processes, *descendants(processes)], grace_ms=grace_ms)
    _reap({process.pid for process in processes} - {process.pid for process in left})
    if not left:
        _link_latest(run / "ray")
        for node in nodes:
            _remove_link(Path(node.directory))
        for path in run.glob("ray-*.json"):
            path.unlink()
    return left


def _reap(ended: Container[int]) -> None:
    """Reap those of our children whose processes have ended."""
    for child in tuple(_children):
        if child.pid in ended:
            child.wait()  # `end` waits for the first thread only; others may take longer
        if child.poll() is not None:
            _children.remove(child)


@contextlib.contextmanager
def _ended_on_failure(directory: Path) -> Iterator[None]:
    """On failure, end what was started inside, recorded or not: a full disk takes no record."""
    before = tuple(_children)
    try:
        yield
    except BaseException as failure:
        started = [child.pid for child in _children if child not in before]
        records = [one for pid in started if (one := record_of(CHILD, pid)) is not None]
        left = end([*records, *descendants(records)], grace_ms=_GRACE_MS)
        _reap(set(started) - {process.pid for process in left})
        _link_latest(directory)
        _remove_link(directory)
        if isinstance(failure, OSError) or not isinstance(failure, Exception):
            raise
        raise RayNotStarted(f"Ray did not start: {failure}") from failure


def missing_for_metrics() -> list[str]:
    """Return the modules that Ray's metrics need and that are missing; imports nothing."""
    return [name for name in _METRICS_MODULES if importlib.util.find_spec(name) is None]


def connect(address: str, token_path: str | None = None, host: str | None = None) -> None:
    """Make this process a driver of the Ray cluster at `address`.

    `host` is the address of the node to join, if that is not loopback.
    """
    if token_path is not None:
        prepare_environment(Path(token_path), metrics=False)
    import ray

    _leave_out_raylets_words()
    ray.init(
        address=address,
        namespace=NAMESPACE,
        log_to_driver=False,
        logging_level=logging.ERROR,
        configure_logging=False,
        _node_ip_address=host,
    )


def found_address() -> str | None:
    """Return HOST:PORT of the Ray cluster that this machine belongs to, or None.

    That is the one that RAY_ADDRESS names, or else one that runs here. Raises ValueError if
    RAY_ADDRESS names none.
    """
    from ray._private import services

    try:
        return services.canonicalize_bootstrap_address("auto")
    except ConnectionError:
        return None


def joined_address() -> str:
    """Return HOST:PORT of the head of the Ray cluster that this process is connected to."""
    import ray

    address: str = ray.get_runtime_context().gcs_address
    return address


@contextlib.contextmanager
def without_rays_output() -> Iterator[None]:
    """Silence Ray's logging in this process: callers report failures in their own words."""
    import ray  # noqa: F401 - its handlers keep the stream that they find when it is imported

    def is_silent(_: logging.LogRecord) -> bool:
        return False

    handlers = logging.getLogger("ray").handlers
    for handler in handlers:
        handler.addFilter(is_silent)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(is_silent)


def _leave_out_raylets_words() -> None:
    """Suppress messages of raylets to all drivers, such as "A worker died ...".

    `log_to_driver` does not suppress these. `raylog status` reports which process ended, and why.
    """
    from ray._private import worker

    if worker.print_to_stdstream.__module__ == __name__:
        return
    spoken = worker.print_to_stdstream

    def print_to_stdstream(data: dict[str, Any], *arguments: Any, **options: Any) -> None:
        if data.get("pid") != "raylet":
            spoken(data, *arguments, **options)

    worker.print_to_stdstream = print_to_stdstream


def is_connected() -> bool:
    """Whether this process is a driver."""
    if "ray" not in sys.modules:
        return False
    import ray

    return bool(ray.is_initialized())


@dataclass(frozen=True, slots=True)
class ActorEntry:
    """An actor in Ray's actor table."""

    name: str
    state: str
    """Ray's state: ALIVE, RESTARTING, PENDING_CREATION, DEPENDENCIES_UNREADY."""
    pid: int
    node_id: str
    restarts: int
    """Restarts by Ray."""
    class_name: str = ""
    """The class name that Ray shows for its role."""


def actors_named(prefix: str) -> list[ActorEntry]:
    """Return the actors with this prefix that are not dead; this process must be a driver."""
    from ray._private.state import state

    table = state.actor_table(None)
    return sorted(
        (
            ActorEntry(
                entry["Name"],
                entry["State"],
                entry["Pid"],
                entry["Address"]["NodeID"],
                entry["NumRestarts"],
                entry["ActorClassName"],
            )
            for entry in table.values()
            if entry["Name"].startswith(prefix) and entry["State"] != "DEAD"
        ),
        key=lambda entry: entry.name,
    )


def asks_for_tokens() -> bool:
    """Whether the connected Ray cluster requires a token."""
    from ray import _raylet

    raylet: Any = _raylet  # compiled, and without types for this
    return bool(raylet.get_authentication_mode() != raylet.AuthenticationMode.DISABLED)


def live_nodes() -> list[NodeEntry]:
    """Return the live nodes of all machines; this process must be connected to Ray. Blocking."""
    import ray

    nodes = ray.nodes()  # type: ignore[no-untyped-call]  # Ray's
    return [
        NodeEntry(node["NodeID"], node["NodeManagerAddress"], node["Labels"])
        for node in nodes
        if node["Alive"]
    ]


def all_nodes() -> dict[str, bool]:
    """Return address and id of all nodes that Ray has or had, and whether they live. Blocking.

    This process must be connected to Ray. Earlier nodes of a machine that came back are left out.
    """
    import ray

    nodes = ray.nodes()  # type: ignore[no-untyped-call]  # Ray's
    live = {node["NodeManagerAddress"] for node in nodes if node["Alive"]}
    return {
        f"{node['NodeManagerAddress']} ({node['NodeID'][:8]})": bool(node["Alive"])
        for node in nodes
        if node["Alive"] or node["NodeManagerAddress"] not in live
    }


def disconnect(timeout_s: float = _DISCONNECT_S) -> None:
    """Disconnect from Ray, if connected; detached actors live on.

    If Ray does not return in time it is abandoned, also when this process ends.
    """
    if not is_connected():
        return
    import ray

    leaving = threading.Thread(target=ray.shutdown, name="leave Ray", daemon=True)
    leaving.start()
    leaving.join(timeout_s)
    if leaving.is_alive():
        atexit.unregister(ray.shutdown)


def prepare_environment(token: Path, *, metrics: bool) -> None:
    """Set Ray's environment variables, for this process and all that it starts."""
    assert "ray" not in sys.modules or _ENVIRONMENT.items() <= os.environ.items(), (
        "Ray reads its environment when it is imported, so nothing may import it before this"
    )
    os.environ.update(_ENVIRONMENT)
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(token)
    if not metrics:
        os.environ.update(_QUIET)


def raise_descriptor_limit() -> None:
    """Raise the limit of open files as far as the system allows, for children too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _launch(
    note: Callable[[Node], object], *, head: bool, metrics: bool, **parameters: object
) -> Node:
    """Start Ray's processes with our settings; `note` is called after each."""
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    class QuietNode(Node):
        """A node without the dashboard's server, which Ray starts even when told not to."""

        def start_api_server(
            self, *, include_dashboard: bool | None, raise_on_failure: bool
        ) -> None:
            if include_dashboard:
                super().start_api_server(include_dashboard=True, raise_on_failure=raise_on_failure)
            else:
                self._webui_url = None

        def start_gcs_server(self) -> None:
            try:
                super().start_gcs_server()  # type: ignore[no-untyped-call]  # Ray's
            finally:
                self._note()

        def start_ray_processes(self) -> None:
            try:
                super().start_ray_processes()  # type: ignore[no-untyped-call]  # Ray's
            finally:
                self._note()

        def _note(self) -> None:
            started = (info.process for infos in self.all_processes.values() for info in infos)
            _children.extend(process for process in started if process not in _children)
            note(self)

    settings = RayParams(
        include_dashboard=metrics,
        no_monitor=True,
        dashboard_agent_listen_port=0,
        min_worker_port=0,
        max_worker_port=0,
    )
    if metrics:
        parameters["dashboard_port"] = _free_port()
    settings.update(include_log_monitor=False, **parameters)  # type: ignore[no-untyped-call]
    return QuietNode(settings, head=head, shutdown_at_exit=False, spawn_reaper=False)


def _free_port() -> int:
    """Return a free port, because Ray's dashboard does not accept 0."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
    return port


def _processes(node: Node) -> list[ProcessRecord]:
    """Return Ray's own processes, including its agents (children of the raylet)."""
    started = [
        record
        for name, infos in node.all_processes.items()
        for info in infos
        if (record := record_of(name, info.process.pid)) is not None
    ]
    return [*started, *descendants(started)]


def _token(run: Path) -> Path:
    """Return the token file, created on first use or if it is empty."""
    path = run / "ray.token"
    if not (path.exists() and path.stat().st_size):
        write_secrets(str(path), LinkSecrets(secrets.token_hex(32).encode()))
    return path


def _ray_directory(run: Path) -> Path:
    """Return Ray's directory, or a link to it if socket names would become too long."""
    directory = run.resolve() / "ray"
    directory.mkdir(exist_ok=True)
    sessions = sorted(path for path in directory.glob("session_*") if not path.is_symlink())
    for old in sessions[: 1 - _SESSIONS_KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    if len(str(directory)) <= _SOCKET_PATH_MAX:
        return directory
    link = Path(tempfile.mkdtemp(prefix="raylog-")) / "ray"
    link.symlink_to(directory)
    return link


def _remove_link(directory: Path) -> None:
    """Remove the link to Ray's directory, if there is one; the logs stay."""
    if directory.is_symlink():
        directory.unlink()
        directory.parent.rmdir()


def _link_latest(directory: Path) -> None:
    """Make `session_latest` refer to the session beside it, instead of going through our link."""
    latest = directory / "session_latest"
    if latest.is_symlink():
        session = latest.readlink().name
        latest.unlink()
        latest.symlink_to(session)


@contextlib.contextmanager
def _own_sessions() -> Iterator[None]:
    """Let what is started here live on when the terminal or our process group ends."""
    from ray._private import services

    class DetachedProcess(services.ConsolePopen):
        """Gives each of Ray's processes its own session, and no standard input."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            options |= {"start_new_session": True, "stdin": subprocess.DEVNULL}
            super().__init__(*arguments, **options)

    before = services.ConsolePopen
    services.ConsolePopen = DetachedProcess  # type: ignore[misc]  # Ray has no option for it
    try:
        yield
    finally:
        services.ConsolePopen = before  # type: ignore[misc]  # as above


def _record_path(run: Path, index: int) -> Path:
    """Return the path of a node's record; index 0 is the head."""
    return run / f"ray-{index}.json"


def _write(path: Path, node: LocalRay) -> None:
    """Write a record atomically."""
    draft = path.with_suffix(".draft")
    try:
        draft.write_text(json.dumps(asdict(node), indent=1))
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def _read(path: Path) -> LocalRay:
    """Read a record; raises RecordDamaged."""
    text = path.read_bytes()
    try:
        fields = json.loads(text)
        fields["processes"] = [ProcessRecord(**process) for process in fields["processes"]]
        return LocalRay(**fields)
    except (ValueError, TypeError, KeyError) as broken:
        raise RecordDamaged(
            f"{path} is damaged, or of another build: expected the processes of Ray, "
            f"found {text[:40]!r} ({broken})"
        ) from broken
