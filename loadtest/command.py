"""The command `raylog loadtest`: finds the cluster, makes the runs and writes reports."""

from __future__ import annotations

import secrets
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from raylog import __version__
from raylog.cli.failures import EXIT_UNREACHABLE, EXIT_USAGE, CommandFailed, of_the_system
from raylog.client import parse_bootstrap
from raylog.cluster_record import ClusterRecord
from raylog.loadtest.embedded import embedded_broker
from raylog.loadtest.faults import Names, Striker
from raylog.loadtest.jobs import Job, Said
from raylog.loadtest.local import Local
from raylog.loadtest.open_files import check_embedded, check_open_files
from raylog.loadtest.process_supervisor import Shown, conduct
from raylog.loadtest.report import too_short, write_html, write_json
from raylog.loadtest.results import Result
from raylog.loadtest.scenario import BadScenario, GroupUsers, Scenario, TransactionalUsers
from raylog.loadtest.scenario_checks import check_clients
from raylog.loadtest.targets import TopicsRefused, checked_target
from raylog.loadtest.workers import LocalWorkers, RayWorkers, Workers

WEB_HOST = "127.0.0.1"
_RUN_BYTES = 4
_OURS = f"Raylog {__version__}"
Show = Callable[[Shown], None]


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of the command."""

    scenario: Scenario
    bootstrap: str | None
    data: Path
    address: str | None
    processes: int = 0
    on_ray: int = 0
    compare: str | None = None
    rounds: int = 1
    out: Path | None = None
    web_port: int | None = None
    """The port of Locust's web page; 0 for any free port, None for no page."""
    keep_topics: bool = False
    security: Mapping[str, str | int | float | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Cluster:
    """A cluster under load."""

    bootstrap: str
    kind: str = ""
    """The kind of its brokers, if it is known."""
    record: ClusterRecord | None = None
    """The record of a cluster that `raylog up` started on this machine, which can get faults."""


def run(arguments: Arguments, results: list[Result], show: Show) -> None:
    """Make the runs, append their results and write reports. Raises RunFailed and CommandFailed.

    Runs on a cluster to compare with take turns. An interrupted run is the last. If a run fails,
    the reports of the runs before it are written.
    """
    check_clients(arguments.scenario, arguments.security)
    if not arguments.on_ray:  # processes on nodes have their own limits
        check_open_files(arguments.scenario, arguments.processes or 1)
    if arguments.out is not None:
        make_folder(arguments.out, "--out")
    if arguments.web_port is not None:
        arguments = replace(arguments, web_port=free_port(arguments.web_port))
    with _cluster(arguments, show) as cluster, ExitStack() as stack:
        _check_faults(
            arguments.scenario, [cluster] if arguments.compare is None else [cluster, None]
        )
        clusters = [cluster]
        if arguments.compare is not None:
            clusters.append(_other_than(cluster, arguments.compare))
        clusters = [_recognized(arguments, one) for one in clusters]
        if arguments.compare is not None:
            _tell_of_comparison(arguments.scenario, clusters, show)
        if arguments.on_ray or arguments.scenario.faults:
            stack.enter_context(_on_ray_of(arguments, cluster))
        try:
            _take_turns(arguments, clusters, results, show)
        finally:
            if arguments.out is not None and results:
                write_html(results, arguments.out / "report.html")


def _take_turns(
    arguments: Arguments, clusters: Sequence[_Cluster], results: list[Result], show: Show
) -> None:
    turns = [one for _ in range(arguments.rounds) for one in clusters]
    for number, one in enumerate(turns):
        if len(turns) > 1:
            show(Said(text=f"run {number + 1} of {len(turns)}: {one.kind} at {one.bootstrap}"))
        suffix = f"-{number + 1}" if len(turns) > 1 else ""
        results.append(_run(arguments, one, suffix, show))
        if arguments.out is not None:
            write_json(results[-1], arguments.out / f"result{suffix}.json")
        if results[-1].failure is not None:
            break


def _run(arguments: Arguments, cluster: _Cluster, suffix: str, show: Show) -> Result:
    """Make one run. `suffix` ends the names of its reports."""
    workers = _workers(arguments)
    name = secrets.token_hex(_RUN_BYTES)
    page = None
    if arguments.out is not None:
        page = str(arguments.out / f"locust{suffix}.html")
    job = Job(
        scenario=arguments.scenario,
        run=name,
        bootstrap=cluster.bootstrap,
        security=dict(arguments.security),
        target=cluster.kind,
        workers=0 if workers is None else workers.count,
        bind="127.0.0.1" if workers is None else workers.bind,
        web=None if arguments.web_port is None else (WEB_HOST, arguments.web_port),
        locust_html=page,
        keep_topics=arguments.keep_topics,
    )
    if arguments.web_port is not None:
        show(Said(text=f"Locust's page: http://{WEB_HOST}:{arguments.web_port}"))
    striker = None
    if arguments.scenario.faults:
        assert cluster.record is not None, "a cluster that is not ours was refused"
        striker = Striker(
            cluster.record,
            arguments.data,
            arguments.scenario,
            _names(job),
            dict(arguments.security),
        )
    return conduct(job, workers, striker, show)


def _workers(arguments: Arguments) -> Workers | None:
    if arguments.on_ray:
        return RayWorkers(arguments.on_ray)
    return LocalWorkers(arguments.processes) if arguments.processes else None


def _names(job: Job) -> Names:
    """The names of a run that faults need."""
    local = Local(job.scenario, job.run, job.bootstrap)
    users = job.scenario.users
    transactional = [
        number for number, one in enumerate(users) if isinstance(one, TransactionalUsers)
    ]
    return Names(
        {name: local.topic(name) for name in job.scenario.topics},
        {one.group: local.group(one.group) for one in users if isinstance(one, GroupUsers)},
        local.transactional_id(transactional[0], 0) if transactional else None,
    )


# ---- before the first run -------------------------------------------------------------------


def make_folder(out: Path, option: str) -> None:
    """Create the folder of reports that an option names, and check that it is writable."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as failure:
        problem = of_the_system(failure, out)
        raise CommandFailed(f"{option}: {problem.message}", problem.hint, EXIT_USAGE) from failure


def free_port(wanted: int) -> int:
    """A free port of this machine: `wanted`, or any port if that is 0."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Locust's server does
        try:
            taken.bind((WEB_HOST, wanted))
            taken.listen()
        except OSError as failure:
            raise CommandFailed(
                f"cannot serve Locust's page on {WEB_HOST}:{wanted}: {failure.strerror}",
                "Choose another port with --web-port PORT, or 0 for a free port",
                EXIT_USAGE,
            ) from failure
        port: int = taken.getsockname()[1]
        return port


def _other_than(first: _Cluster, compare: str) -> _Cluster:
    """The cluster to compare with."""
    same = set(parse_bootstrap(first.bootstrap)) & set(parse_bootstrap(compare))
    if same:
        brokers = ", ".join(f"{host}:{port}" for host, port in sorted(same))
        raise CommandFailed(
            f"--compare: expected another cluster, found {brokers} in both lists of brokers",
            exit_code=EXIT_USAGE,
        )
    return _Cluster(compare)


def _recognized(arguments: Arguments, cluster: _Cluster) -> _Cluster:
    """Ask a cluster for its kind, and check that it would accept the scenario."""
    local = Local(arguments.scenario, secrets.token_hex(_RUN_BYTES), cluster.bootstrap)
    try:
        target = checked_target(arguments.security, local, cluster.kind)
    except TopicsRefused as refused:
        raise CommandFailed(str(refused), exit_code=EXIT_USAGE) from refused
    return replace(cluster, kind=target.kind)


def _tell_of_comparison(scenario: Scenario, clusters: Sequence[_Cluster], show: Show) -> None:
    for name, one in zip("AB", clusters, strict=True):
        show(Said(text=f"{name}: {one.kind} at {one.bootstrap}"))
    short = too_short(scenario)
    if short is not None:
        show(Said(text=short))


# ---- the cluster -------------------------------------------------------------------------


@contextmanager
def _cluster(arguments: Arguments, show: Show) -> Iterator[_Cluster]:
    """The requested cluster, or an embedded broker."""
    from raylog.cluster_record import read_record

    record = read_record(arguments.data.absolute() / "run")
    if arguments.bootstrap is not None:
        same = _if_same(record, arguments.bootstrap)
        yield _Cluster(arguments.bootstrap, "" if same is None else _OURS, same)
    elif arguments.address is not None:
        yield _cluster_on_ray(arguments.address, arguments.data)
    elif record is not None:
        yield _Cluster(",".join(record.bootstrap), _OURS, record)
    else:
        if arguments.scenario.faults or arguments.on_ray:
            raise CommandFailed(
                f"no cluster is running on {arguments.data}",
                f"Start one with: raylog up --data {arguments.data} (or name one with --bootstrap, "
                "--data or --address)",
                EXIT_UNREACHABLE,
            )
        check_embedded(arguments.scenario)
        show(
            Said(
                text=f"no cluster is running on {arguments.data}, and none was named: loading an "
                "embedded broker, in a process of this command, with its data in a temporary "
                "folder"
            )
        )
        with embedded_broker() as bootstrap:
            yield _Cluster(bootstrap, f"{_OURS}, embedded")


def _if_same(record: ClusterRecord | None, bootstrap: str) -> ClusterRecord | None:
    """The record, if the bootstrap servers are brokers of that cluster."""
    if record is None:
        return None
    named = set(parse_bootstrap(bootstrap))
    return record if named <= set(parse_bootstrap(",".join(record.bootstrap))) else None


def _cluster_on_ray(address: str, data: Path) -> _Cluster:
    from raylog.cli.ray_cluster import on_ray, record_of, the_cluster

    with on_ray(address):
        record = record_of(address, the_cluster(address, data))
    if not record.bootstrap:
        raise CommandFailed(
            f"no broker of cluster {record.cluster_id} answers", exit_code=EXIT_UNREACHABLE
        )
    return _Cluster(",".join(record.bootstrap), "Raylog")


def _check_faults(scenario: Scenario, clusters: list[_Cluster | None]) -> None:
    """Check that a scenario with faults runs on a cluster that `raylog up` started here."""
    if scenario.faults and any(one is None or one.record is None for one in clusters):
        kinds = ", ".join(sorted({one.kind for one in scenario.faults}))
        raise BadScenario(
            f"{scenario.name}: faults ({kinds}) need a cluster that `raylog up` started on this "
            "machine: name it with --data DIR, or leave the faults out with --set faults=[]"
        )


@contextmanager
def _on_ray_of(arguments: Arguments, cluster: _Cluster) -> Iterator[None]:
    """Connect to the Ray cluster of the workers or of the brokers."""
    from raylog.cli.local_cluster import connected
    from raylog.cli.ray_cluster import on_ray

    if arguments.on_ray and arguments.address is not None:
        with on_ray(arguments.address):
            yield
    elif cluster.record is not None:
        with connected(cluster.record):
            yield
    else:
        raise CommandFailed(
            "no Ray cluster was named to make the load",
            "Name one with: --address HOST:PORT, or auto",
            EXIT_USAGE,
        )
