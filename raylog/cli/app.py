"""Assembles the application `raylog` from its commands, and reports their failures."""

from __future__ import annotations

import sys

import typer

from raylog.cli import (
    brokers,
    configs,
    consume,
    dlq,
    down,
    groups,
    health,
    loadtest,
    logs,
    metadata,
    pipeline,
    plugins,
    produce,
    quorum,
    rebalance,
    secret,
    sim,
    sizing,
    status,
    topics,
    transactions,
    up,
)
from raylog.cli.acting import acting
from raylog.cli.connecting import take_client_settings
from raylog.cli.doctor import command as doctor
from raylog.cli.failures import explain
from raylog.cli.output import print_failure
from raylog.cli.top import command as top

app = typer.Typer(
    name="raylog",
    help="A replicated log that speaks the Kafka protocol, on Ray.",
    epilog="To start: raylog up --detach, raylog topics create TOPIC, raylog produce TOPIC < "
    "FILE, raylog consume TOPIC --from earliest, raylog down. Any Kafka client works too.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _root(
    version: bool = typer.Option(False, "--version", help="Print the version.", is_eager=True),
) -> None:
    if version:
        import raylog

        typer.echo(raylog.__version__)
        raise typer.Exit


app.command(name="up")(acting(up.up))
app.command(name="down")(acting(down.down))
app.command(name="status")(status.status)
app.command(name="health")(health.health)
app.command(name="top")(top.top)
app.command(name="doctor")(doctor.doctor)
app.command(name="logs")(logs.logs)
app.add_typer(brokers.app, name="brokers")
app.add_typer(quorum.app, name="quorum")
app.add_typer(metadata.app, name="metadata")
app.add_typer(secret.app, name="secret")
app.add_typer(topics.app, name="topics")
app.command(name="produce")(produce.produce)
app.command(name="consume")(consume.consume)
app.add_typer(groups.app, name="groups")
app.add_typer(transactions.app, name="transactions")
app.add_typer(dlq.app, name="dlq")
app.add_typer(configs.app, name="configs")
app.add_typer(plugins.app, name="plugins")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(loadtest.app, name="loadtest")
app.command(name="rebalance")(rebalance.rebalance)
app.command(name="sim")(acting(sim.sim))
app.command(name="sizing")(sizing.sizing)
take_client_settings(app)


def run() -> None:
    """Run a command. Expected failures end with a message and an exit code, not a traceback."""
    try:
        app()
    except Exception as error:
        failure = explain(error)
        if failure is None:
            raise
        print_failure(failure)
        sys.exit(failure.exit_code)
