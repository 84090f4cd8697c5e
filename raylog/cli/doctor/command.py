"""The command `raylog doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cli.connecting import client_settings
from raylog.cli.failures import EXIT_FAILED, EXIT_UNREACHABLE, Failure
from raylog.cli.options import DEFAULT_DATA, Address, Json
from raylog.cli.output import print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from raylog.cli.doctor.findings import Finding
    from raylog.cli.progress import Progress
    from raylog.client import ClientSettings
    from raylog.cluster_record import ClusterRecord

_RAY_TIMEOUT_S = 60
_COLOURS = {"failure": typer.colors.RED, "warning": typer.colors.YELLOW}
Section = tuple[str, "list[Finding]"]


def doctor(
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            envvar="RAYLOG_DATA",
            metavar="DIR",
            help="Data directory of a cluster, or of one to be started. Default: "
            f"{DEFAULT_DATA}, unless --bootstrap is given.",
            file_okay=False,
        ),
    ] = None,
    address: Address = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            "-b",
            envvar="RAYLOG_BOOTSTRAP",
            metavar="HOST:PORT",
            help="Brokers of any Kafka cluster, separated by commas, to check as a client.",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="Address on which brokers will listen, before they run.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=1, max=65_535, help="Port of the first broker.")
    ] = 9092,
    brokers: Annotated[
        int | None,
        typer.Option("--brokers", "-n", min=1, help="Number of brokers to run on this machine."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Look for causes of problems of a cluster or its clients, and say what to do.

    Before a cluster runs, use --data DIR: it checks this machine, the directory,
    its volume and the ports. While the cluster runs, use --data or --address: it
    also checks brokers as clients reach them, clocks, health and Ray. With
    --bootstrap it checks any Kafka cluster, as its client. It changes nothing;
    it measures fsync with a file that it removes.

    The exit code is 1 if there is a failure, otherwise 0. Warnings do not count.

    `raylog health` quickly checks whether brokers serve, for probes. `raylog top`
    shows load and problems live. doctor takes seconds, and also checks the
    environment of brokers and clients.
    """
    from raylog.cli.doctor.findings import Status
    from raylog.cli.progress import Progress

    with Progress() as progress:
        if bootstrap is not None and data is None and address is None:
            sections = _as_client(bootstrap, progress)
        elif address is not None:
            sections = _on_ray(address, data or DEFAULT_DATA, progress)
        else:
            sections = _here(data or DEFAULT_DATA, (host, port, brokers), progress)
    found = [one for _, findings in sections for one in findings]
    if as_json:
        _print_json(sections)
    else:
        _print(sections)
    if any(one.status is Status.FAILURE for one in found):
        raise typer.Exit(EXIT_FAILED)


def _as_client(bootstrap: str, progress: Progress) -> list[Section]:
    """Check any Kafka cluster, as a client on this machine."""
    from raylog.cli.doctor import machine
    from raylog.cli.doctor.addresses import text_of

    settings = client_settings(bootstrap)
    here = machine.check_client(machine.gather())
    where = f" -b {','.join(map(text_of, settings.bootstrap))}"
    return [("this machine, as a client", here), _brokers(settings, where, progress)]


def _brokers(settings: ClientSettings, where: str, progress: Progress) -> Section:
    import asyncio  # most commands do not need it

    from raylog.cli.doctor import cluster

    progress.tell("asking the brokers, as a client")
    return ("brokers, as a client sees them", asyncio.run(cluster.findings(settings, where)))


def _here(data: Path, wanted: tuple[str, int, int | None], progress: Progress) -> list[Section]:
    """Check this machine, and the cluster on a data directory if one is running."""
    from raylog.cli.doctor import machine, volume
    from raylog.cli.local_cluster import is_up, known_brokers
    from raylog.client.settings import parse_bootstrap
    from raylog.cluster_record import read_record

    run = data.absolute() / "run"
    record = read_record(run)
    ended, record = record, record if record is not None and is_up(run) else None
    progress.tell("checking this machine")
    host, port, asked = wanted
    known = len(known_brokers(data)) if data.is_dir() else 0
    count = asked or known or 1
    addresses = [(host, port + at) for at in range(count)]
    if record is None and ended is not None:
        addresses = list(parse_bootstrap(ended.bootstrap)) or addresses
    facts = machine.gather()
    here = [*machine.check_client(facts), *machine.check_host(facts, count)]
    if record is None and known:
        here.append(machine.check_down(data, known, was_stopped=ended is None))
    if record is None:
        here += machine.check_ports(machine.ports(addresses))
    progress.tell(f"measuring the volume of {data}")
    sections = [
        ("this machine", here),
        (f"data directory {data}", volume.check(volume.gather(data))),
    ]
    if record is not None:
        sections += _running(record, data, None, progress)
    return sections


def _on_ray(address: str, data: Path, progress: Progress) -> list[Section]:
    """Check a cluster on a Ray cluster that this machine is a node of."""
    from raylog.cli.doctor import machine
    from raylog.cli.ray_cluster import on_ray, record_of, the_cluster, troubles_of

    facts = machine.gather()
    here = [*machine.check_client(facts), machine.check_descriptors(facts)]
    progress.tell(f"asking Ray at {address}")
    with on_ray(address):
        desired = the_cluster(address, data)
        record, troubles = record_of(address, desired), troubles_of(address, desired)
        running = _running(record, data, address, progress, troubles)
    return [("this machine", here), *running]


def _running(
    record: ClusterRecord,
    data: Path,
    address: str | None,
    progress: Progress,
    troubles: Sequence[str] = (),
) -> list[Section]:
    """Check a running cluster; `troubles` are those that its supervisor reports."""
    from raylog.cli.doctor import cluster, on_ray
    from raylog.cli.progress import within

    where = f" --address {address}" if address is not None else f" --data {data}"
    sections = []
    if record.bootstrap:
        settings = client_settings(record.bootstrap)
        sections.append(_brokers(settings, cluster.where_of(record.bootstrap), progress))
    progress.tell("asking Ray and the processes of the brokers")
    late = Failure(
        f"Ray did not answer within {_RAY_TIMEOUT_S} s",
        f"Its logs are under {data / 'run' / 'ray'}"
        if address is None
        else "Check it with: ray status",
        EXIT_UNREACHABLE,
    )
    with within(_RAY_TIMEOUT_S, late):
        facts = on_ray.gather(record, data, address, troubles)
    return [*sections, ("processes, on Ray", on_ray.check(facts, where))]


def _print(sections: list[Section]) -> None:
    from raylog.actors.log_formatting import plain
    from raylog.cli.doctor.findings import counts, lines

    found = [one for _, findings in sections for one in findings]
    width = min(max((len(one.check) for one in found), default=0), 32)
    for title, findings in sections:
        typer.secho(plain(title), bold=True)
        for line in lines(findings, width):
            typer.secho(f"  {plain(line)}", fg=_COLOURS.get(line.partition(" ")[0]))
    typer.echo(counts(found))


def _print_json(sections: list[Section]) -> None:
    from raylog.cli.doctor.findings import Status

    rows = [
        {
            "area": title,
            "check": one.check,
            "status": one.status.value,
            "found": one.found,
            "do": one.do or None,
        }
        for title, findings in sections
        for one in findings
    ]
    failed = any(one["status"] == Status.FAILURE for one in rows)
    print_json({"ok": not failed, "findings": rows})
