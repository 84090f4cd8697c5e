"""The command `raylog logs`: shows the decisions of all actors of a cluster in time order."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Never

import typer

from raylog.cli.failures import EXIT_FAILED, EXIT_UNREACHABLE, CommandFailed, Failure, last_line
from raylog.cli.options import DEFAULT_DATA, Address, Data, Json
from raylog.cli.output import print_done, print_json
from raylog.cli.progress import within

if TYPE_CHECKING:
    from raylog.actors.journal import Crash, JournalAsked, JournalTold, Noted

_RAY_TIMEOUT_S = 60
_ASK_MS = 5_000
_FOLLOW_S = 1.0
_LATE_MS = 5_000
"""How much later than others a process may write a decision."""
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
Row = dict[str, object]
_NO_WORD = "no traceback: the process was killed, or its machine went down"


@dataclass(slots=True)
class Gathered:
    """The journals of a cluster."""

    journals: dict[str, JournalTold] = field(default_factory=dict)
    """By owner, such as "broker 1" or "controller"."""
    failures: list[str] = field(default_factory=list)
    """Brokers and controllers that did not answer, and why."""


def logs(
    data: Data = DEFAULT_DATA,
    address: Address = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Only decisions since this time: 10m, 2h, 3d (ago), or 2026-01-31T12:00:00Z.",
        ),
    ] = None,
    kind: Annotated[
        list[str] | None, typer.Option(help="Only decisions of this kind; repeatable.")
    ] = None,
    broker: Annotated[
        list[int] | None,
        typer.Option(help="Only decisions by processes of this broker; repeatable."),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, help="Only the latest N decisions.", metavar="N")
    ] = 1_000,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new decisions until Ctrl-C.")
    ] = False,
    crashes: Annotated[
        bool, typer.Option("--crashes", help="Show processes that ended unexpectedly instead.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the decisions of all actors in time order: elections, in-sync replicas, fencing.

    Kinds: election, isr, fencing, unclean, controller, broker, load, truncation,
    member, process.

    With --address, the command asks the brokers on that Ray cluster, from any of
    its machines. Without it, the command reads the data directories on this
    machine, whether or not a cluster runs.

    raylog logs --data DIR --since 10m --kind election --kind isr
    """
    from raylog.actors.decisions import KINDS
    from raylog.actors.journal import JournalAsked

    unknown = sorted(set(kind or ()) - set(KINDS))
    if unknown:
        raise typer.BadParameter(
            f"expected one of {', '.join(KINDS)}, found {unknown[0]!r}", param_hint="--kind"
        )
    asked = JournalAsked(_since_ms(since), limit if kind is None else 10_000, crashes)
    found = gathered(data, address, asked, broker)
    _tell_failures(found)
    if crashes:
        _show_crashes(found, as_json=as_json)
    else:
        new = _selected(found, kind)[-limit:]
        _show(new, as_json=as_json, each=follow)
        if follow:
            _follow(
                lambda again: gathered(data, address, again, broker),
                asked,
                new,
                kind,
                limit,
                as_json=as_json,
            )
    if found.failures:
        raise typer.Exit(EXIT_FAILED if found.journals else EXIT_UNREACHABLE)


def _follow(
    gather: Callable[[JournalAsked], Gathered],
    asked: JournalAsked,
    shown: Iterable[Noted],
    kinds: Sequence[str] | None,
    limit: int,
    *,
    as_json: bool,
) -> Never:
    """Show new decisions as they are made, without those in `shown`."""
    seen = dict.fromkeys(shown)
    while True:
        newest_ms = max((one.at_ms for one in seen), default=asked.since_ms)
        asked = asked._replace(since_ms=max(asked.since_ms, newest_ms - _LATE_MS), limit=10_000)
        time.sleep(_FOLLOW_S)
        found = gather(asked)
        _tell_failures(found)
        new = [one for one in _selected(found, kinds) if one not in seen][-limit:]
        _show(new, as_json=as_json, each=True)
        seen = dict.fromkeys([*seen, *new][-10_000:])


def _tell_failures(found: Gathered) -> None:
    for failure in found.failures:
        print_done(failure)


def _since_ms(text: str | None) -> int:
    """Parse a time, or a duration before now, as ms since the epoch. Raises BadParameter."""
    if text is None:
        return 0
    span = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    if span is not None:
        return int(time.time() * 1000) - int(span[1]) * _UNITS_MS[span[2]]
    from raylog.cli.offset_reset import parse_instant

    at_ms = parse_instant(text)
    if at_ms is None:
        raise typer.BadParameter(
            f"expected 10m, 2h, 3d or 2026-01-31T12:00:00Z, found {text!r}", param_hint="--since"
        )
    return at_ms


# ---- gathering ---------------------------------------------------------------------------


def gathered(
    data: Path, address: str | None, asked: JournalAsked, brokers: Sequence[int] | None
) -> Gathered:
    """Return the journals in the directories here or, with an address, those of all brokers.

    Raises CommandFailed if there is no broker's data here, or no cluster at the address.
    """
    if address is None:
        return read_directories(data, asked, brokers)
    unanswered = Failure(f"Ray did not answer within {_RAY_TIMEOUT_S} s", None, EXIT_UNREACHABLE)
    with within(_RAY_TIMEOUT_S, unanswered):
        return asked_on_ray(address, data, asked, brokers)


def read_directories(
    data: Path, asked: JournalAsked, brokers: Sequence[int] | None = None
) -> Gathered:
    """Read the journals in the brokers' directories on this machine. Raises CommandFailed."""
    from raylog.actors.runtime.evidence import read_journal

    found = Gathered()
    for directory in sorted(data.absolute().glob("broker-*")):
        number = directory.name.removeprefix("broker-")
        if number.isdecimal() and (not brokers or int(number) in brokers):
            found.journals[f"broker {number}"] = read_journal(directory, asked)
    if not found.journals:
        raise CommandFailed(
            f"{data} has no broker's data",
            "Give the directory of `raylog up` with --data DIR, or the address of its Ray "
            "cluster with --address HOST:PORT",
            EXIT_UNREACHABLE,
        )
    return found


def asked_on_ray(
    address: str, data: Path, asked: JournalAsked, brokers: Sequence[int] | None = None
) -> Gathered:
    """Ask the brokers and controllers of a cluster on a Ray for their journals, concurrently."""
    import asyncio

    from raylog.cli.ray_cluster import on_ray, the_cluster

    with on_ray(address):
        from raylog.actors.names import CONTROLLER, broker_name
        from raylog.actors.runtime.base import PeerLost, PeerTimeout
        from raylog.actors.runtime.ray import RayRuntime
        from raylog.wire.errors import KafkaError

        desired = the_cluster(address, data)
        names = {
            broker_name(desired.cluster_id, one.broker_id): f"broker {one.broker_id}"
            for one in desired.brokers
            if not brokers or one.broker_id in brokers
        }
        found = Gathered()

        async def ask(runtime: RayRuntime, name: str, who: str) -> None:
            try:
                found.journals[who] = await runtime.journal(name, asked, _ASK_MS)
            except (PeerLost, PeerTimeout, KafkaError) as failure:
                found.failures.append(f"{who} does not answer: {last_line(failure)}")

        async def ask_all() -> None:
            runtime = RayRuntime.of_driver(desired.secret_source)
            if not brokers:
                prefix = f"{desired.cluster_id}/{CONTROLLER}"
                names.update({one: one.partition("/")[2] for one in await runtime.names(prefix)})
            await asyncio.gather(*(ask(runtime, name, who) for name, who in names.items()))

        asyncio.run(ask_all())
        return found


# ---- showing -----------------------------------------------------------------------------


def _selected(found: Gathered, kinds: Sequence[str] | None) -> list[Noted]:
    from raylog.actors.journal import merged

    noted = merged(journal.noted for journal in found.journals.values())
    return [one for one in noted if not kinds or one.kind in kinds]


def _show(noted: Iterable[Noted], *, as_json: bool, each: bool) -> None:
    """Print a line for each decision. As JSON, print a list, or with `each` single objects."""
    if as_json and not each:
        print_json([one._asdict() for one in noted])
        return
    from raylog.actors.log_formatting import plain

    for one in noted:
        if as_json:
            typer.echo(json.dumps(one._asdict()))
            continue
        process = one.process.partition("/")[2] or one.process
        typer.echo(plain(f"{moment(one.at_ms)} {process} {one.kind}: {one.text}"))


def moment(at_ms: int) -> str:
    """Format a time in UTC, to the ms. A number out of range is returned unchanged."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    except (OverflowError, OSError, ValueError):
        return str(at_ms)


def crashes_of(found: Gathered) -> list[tuple[str, Crash]]:
    """Return the crashes in time order, each with the owner of its journal."""
    whose = {crash: who for who, one in found.journals.items() for crash in one.crashes}
    return sorted(((who, crash) for crash, who in whose.items()), key=lambda one: one[1].at_ms)


def crash_rows(data: Path, address: str | None) -> list[Row]:
    """Return the crashes in time order, for `raylog status`; none if no journal can be read."""
    from raylog.actors.journal import JournalAsked

    try:
        found = gathered(data, address, JournalAsked(limit=0, crashes=True), None)
    except CommandFailed:
        return []
    return [
        {"at": moment(one.at_ms), "process": one.process, "pid": one.pid, "of": who}
        for who, one in crashes_of(found)
    ]


def _show_crashes(found: Gathered, *, as_json: bool) -> None:
    from raylog.actors.log_formatting import plain

    crashes = crashes_of(found)
    if as_json:
        rows = [
            {**one._asdict(), "of": who, "last": [each._asdict() for each in one.last]}
            for who, one in crashes
        ]
        print_json(rows)
        return
    for who, one in crashes:
        whose = f"{one.process} (process {one.pid}, build {one.build}) of {who}"
        typer.echo(plain(f"{moment(one.at_ms)} {whose}"))
        for line in one.text.splitlines() or [_NO_WORD]:
            typer.echo(f"  {plain(line)}")
        for each in one.last:
            typer.echo(plain(f"  {moment(each.at_ms)} {each.kind}: {each.text}"))
    if not crashes:
        print_done("no process has ended unexpectedly")
