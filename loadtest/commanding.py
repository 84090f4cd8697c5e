"""`raylog loadtest`: which cluster is meant, what runs are made, and what is written about them."""

from __future__ import annotations

import secrets
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from raylog import __version__
from raylog.cli.cluster_record import ClusterRecord
from raylog.cli.failures import EXIT_UNREACHABLE, EXIT_USAGE, CommandFailed, of_the_system
from raylog.client import parse_bootstrap
from raylog.loadtest.conducting import Shown, conduct
from raylog.loadtest.embedded import embedded_broker
from raylog.loadtest.faults import Names, Striker
from raylog.loadtest.jobs import Job, Said
from raylog.loadtest.local import Local
from raylog.loadtest.open_files import check_embedded, check_open_files
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
class Asked:
    """What the command line asks for."""

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
    """Where Locust's page is shown, if it is; 0: a free port."""
    keep_topics: bool = False
    security: Mapping[str, str | int | float | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Cluster:
    """Brokers to be loaded."""

    bootstrap: str
    kind: str = ""
    """What they are, where that is known."""
    record: ClusterRecord | None = None
    """Of a cluster that `raylog up` started on this machine: faults can be done to it."""


def run(asked: Asked, results: list[Result], show: Show) -> None:
    """Make the runs, append their results, and write reports; raises RunFailed and CommandFailed.

    With another cluster to compare, runs on both take turns. One that was interrupted is the last.
    If one fails, the reports of those before it are written.
    """
    check_clients(asked.scenario, asked.security)
    if not asked.on_ray:  # processes of nodes have limits of their own
        check_open_files(asked.scenario, asked.processes or 1)
    if asked.out is not None:
        _make(asked.out)
    if asked.web_port is not None:
        asked = replace(asked, web_port=free_port(asked.web_port))
    with _cluster(asked, show) as cluster, ExitStack() as stack:
        _check_faults(asked.scenario, [cluster] if asked.compare is None else [cluster, None])
        clusters = [cluster]
        if asked.compare is not None:
            clusters.append(_other_than(cluster, asked.compare))
        clusters = [_recognized(asked, one) for one in clusters]
        if asked.compare is not None:
            _tell_of_comparison(asked.scenario, clusters, show)
        if asked.on_ray or asked.scenario.faults:
            stack.enter_context(_on_ray_of(asked, cluster))
        try:
            _take_turns(asked, clusters, results, show)
        finally:
            if asked.out is not None and results:
                write_html(results, asked.out / "report.html")


def _take_turns(
    asked: Asked, clusters: Sequence[_Cluster], results: list[Result], show: Show
) -> None:
    turns = [one for _ in range(asked.rounds) for one in clusters]
    for number, one in enumerate(turns):
        if len(turns) > 1:
            show(Said(text=f"run {number + 1} of {len(turns)}: {one.kind} at {one.bootstrap}"))
        results.append(_run(asked, one, number if len(turns) > 1 else None, show))
        if results[-1].failure is not None:
            break


def _run(asked: Asked, cluster: _Cluster, number: int | None, show: Show) -> Result:
    """One run; `number` tells several apart in the folder of reports."""
    workers = _workers(asked)
    name = secrets.token_hex(_RUN_BYTES)
    suffix = "" if number is None else f"-{number + 1}"
    page = None
    if asked.out is not None:
        page = str(asked.out / f"locust{suffix}.html")
    job = Job(
        scenario=asked.scenario,
        run=name,
        bootstrap=cluster.bootstrap,
        security=dict(asked.security),
        target=cluster.kind,
        workers=0 if workers is None else workers.count,
        bind="127.0.0.1" if workers is None else workers.bind,
        web=None if asked.web_port is None else (WEB_HOST, asked.web_port),
        locust_html=page,
        keep_topics=asked.keep_topics,
    )
    if asked.web_port is not None:
        show(Said(text=f"Locust's page: http://{WEB_HOST}:{asked.web_port}"))
    striker = None
    if asked.scenario.faults:
        assert cluster.record is not None, "a cluster that is not ours was refused"
        striker = Striker(
            cluster.record, asked.data, asked.scenario, _names(job), dict(asked.security)
        )
    result = conduct(job, workers, striker, show)
    if asked.out is not None:
        write_json(result, asked.out / f"result{suffix}.json")
    return result


def _workers(asked: Asked) -> Workers | None:
    if asked.on_ray:
        return RayWorkers(asked.on_ray)
    return LocalWorkers(asked.processes) if asked.processes else None


def _names(job: Job) -> Names:
    """What faults have to know of a run."""
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


# ---- what is needed before the first run ----------------------------------------------------


def _make(out: Path) -> None:
    """Make the folder of reports, and see whether files can be written there."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as failure:
        told = of_the_system(failure, out)
        raise CommandFailed(f"--out: {told.message}", told.hint, EXIT_USAGE) from failure


def free_port(wanted: int) -> int:
    """A port of this machine that is free now: the one that is wanted, or any for 0."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Locust's server does
        try:
            taken.bind((WEB_HOST, wanted))
            taken.listen()
        except OSError as failure:
            raise CommandFailed(
                f"Locust's page cannot be shown on {WEB_HOST}:{wanted}: {failure.strerror}",
                "Choose another port: --web-port PORT, or 0 for one that is free",
                EXIT_USAGE,
            ) from failure
        port: int = taken.getsockname()[1]
        return port


def _other_than(first: _Cluster, compare: str) -> _Cluster:
    """The other cluster of a comparison."""
    same = set(parse_bootstrap(first.bootstrap)) & set(parse_bootstrap(compare))
    if same:
        brokers = ", ".join(f"{host}:{port}" for host, port in sorted(same))
        raise CommandFailed(
            f"--compare: expected another cluster, found {brokers} in both lists of brokers",
            exit_code=EXIT_USAGE,
        )
    return _Cluster(compare)


def _recognized(asked: Asked, cluster: _Cluster) -> _Cluster:
    """Ask a cluster what it is, and whether it would take the scenario."""
    local = Local(asked.scenario, secrets.token_hex(_RUN_BYTES), cluster.bootstrap)
    try:
        target = checked_target(asked.security, local, cluster.kind)
    except TopicsRefused as refused:
        raise CommandFailed(str(refused), exit_code=EXIT_USAGE) from refused
    return replace(cluster, kind=target.kind)


def _tell_of_comparison(scenario: Scenario, clusters: Sequence[_Cluster], show: Show) -> None:
    for name, one in zip("AB", clusters, strict=True):
        show(Said(text=f"{name}: {one.kind} at {one.bootstrap}"))
    short = too_short(scenario)
    if short is not None:
        show(Said(text=short))


# ---- which cluster -----------------------------------------------------------------------


@contextmanager
def _cluster(asked: Asked, show: Show) -> Iterator[_Cluster]:
    """The cluster that is asked for, or a broker of our own."""
    from raylog.cli.cluster_record import read_record

    record = read_record(asked.data.absolute() / "run")
    if asked.bootstrap is not None:
        same = _if_same(record, asked.bootstrap)
        yield _Cluster(asked.bootstrap, "" if same is None else _OURS, same)
    elif asked.address is not None:
        yield _cluster_on_ray(asked.address, asked.data)
    elif record is not None:
        yield _Cluster(",".join(record.bootstrap), _OURS, record)
    else:
        if asked.scenario.faults or asked.on_ray:
            raise CommandFailed(
                f"no cluster is running on {asked.data}",
                f"Start one with: raylog up --data {asked.data} (or name one: --bootstrap, --data, "
                "--address)",
                EXIT_UNREACHABLE,
            )
        check_embedded(asked.scenario)
        show(
            Said(
                text=f"no cluster is running on {asked.data}, and none was named: an embedded "
                "broker is loaded, in a process of this command, with its data in a temporary "
                "folder"
            )
        )
        with embedded_broker() as bootstrap:
            yield _Cluster(bootstrap, f"{_OURS}, embedded")


def _if_same(record: ClusterRecord | None, bootstrap: str) -> ClusterRecord | None:
    """The record of the cluster that the bootstrap servers are brokers of."""
    if record is None:
        return None
    asked = set(parse_bootstrap(bootstrap))
    return record if asked <= set(parse_bootstrap(",".join(record.bootstrap))) else None


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
    """Faults are done only to what `raylog up` started on this machine."""
    if scenario.faults and any(one is None or one.record is None for one in clusters):
        kinds = ", ".join(sorted({one.kind for one in scenario.faults}))
        raise BadScenario(
            f"{scenario.name}: faults ({kinds}) are done only to a cluster that `raylog up` "
            "started on this machine: name it with --data DIR, or leave them out with "
            "--set faults=[]"
        )


@contextmanager
def _on_ray_of(asked: Asked, cluster: _Cluster) -> Iterator[None]:
    """Be a driver of the Ray that the load is made on, or that the brokers run on."""
    from raylog.cli.local_cluster import connected
    from raylog.cli.ray_cluster import on_ray

    if asked.on_ray and asked.address is not None:
        with on_ray(asked.address):
            yield
    elif cluster.record is not None:
        with connected(cluster.record):
            yield
    else:
        raise CommandFailed(
            "which Ray cluster is to make the load?",
            "Name it: --address HOST:PORT, or auto",
            EXIT_USAGE,
        )
