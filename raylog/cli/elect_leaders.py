"""`raylog topics elect-leaders`: let other replicas lead."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cli.completion import complete_topics
from raylog.cli.connecting import connect
from raylog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from raylog.cli.output import print_done
from raylog.cli.replica_options import select, tell_outcomes, topics_of

if TYPE_CHECKING:
    from raylog.client import BlockingClient, TopicPartition


def elect_leaders(
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC[:0,1]",
            help="Which partitions; none with --all.",
            autocompletion=complete_topics,
        ),
    ] = None,
    all_topics: Annotated[bool, typer.Option("--all", help="All partitions there are.")] = False,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="Where there is no leader, elect any live replica: records it lacks are lost.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Let preferred replicas lead again, or elect leaders for partitions that lost theirs.

    The preferred leader is the first of the assigned replicas; it must be in
    sync. An unclean election gives a partition back whose in-sync replicas are
    all gone, without the records that only they had.
    """
    if bool(topics) == all_topics:
        raise typer.BadParameter("give TOPIC or --all")
    if unclean and not yes and sys.stdin.isatty():
        typer.confirm("Records that only lost replicas have will be gone. Elect?", abort=True)
    with connect(bootstrap) as client:
        keys = None if all_topics else _keys(client, topics or [])
        outcomes = client.elect_leaders(keys, unclean=unclean)
    if not outcomes and not as_json:
        print_done("no partition needs another leader")
        return
    tell_outcomes(outcomes, "elected", as_json=as_json)


def _keys(client: BlockingClient, topics: list[str]) -> list[TopicPartition]:
    return list(select(topics, client.describe_partitions(topics_of(topics))))
