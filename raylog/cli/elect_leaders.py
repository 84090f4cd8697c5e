"""The command `raylog topics elect-leaders`: elects preferred or unclean leaders."""

from __future__ import annotations

from typing import Annotated

import typer

from raylog.cli.completion import complete_topics
from raylog.cli.connecting import connect
from raylog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from raylog.cli.output import confirm, print_done
from raylog.cli.replica_options import select, tell_outcomes, topics_of


def elect_leaders(
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC[:0,1]",
            help="Topics, or some of their partitions. Omit with --all.",
            autocompletion=complete_topics,
        ),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all", help="All partitions of the cluster.")
    ] = False,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="For partitions without a leader: elect any live replica. Records that it does "
            "not have are lost.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Elect preferred leaders, or leaders for partitions that have none.

    The preferred leader is the first assigned replica; it must be in sync. If a
    partition has lost all its in-sync replicas, an unclean election makes it
    available again. Records that only those replicas had are lost.
    """
    if bool(topics) == all_topics:
        raise typer.BadParameter("give TOPIC or --all")
    question = "Records that only lost replicas have will be lost. Elect anyway?"
    confirm(question, yes=yes or not unclean)
    with connect(bootstrap) as client:
        keys = (
            list(select(topics, client.describe_partitions(topics_of(topics)))) if topics else None
        )
        outcomes = client.elect_leaders(keys, unclean=unclean)
    if not outcomes and not as_json:
        print_done("no partition needs another leader")
        return
    tell_outcomes(outcomes, "elected", as_json=as_json)
