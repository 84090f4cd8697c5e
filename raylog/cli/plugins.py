"""`raylog plugins`: list the installed assignors and interceptors of brokers and clients."""

from __future__ import annotations

import typer

from raylog.cli.failures import EXIT_FAILED
from raylog.cli.options import Json
from raylog.cli.output import print_done, print_json, print_table

app = typer.Typer(no_args_is_help=True, help="List installed assignors and interceptors.")


@app.command(name="list")
def list_plugins(as_json: Json = False) -> None:
    """List installed plug-ins with their packages. The exit code is 1 if one does not load.

    The command looks in its own Python environment. Brokers on other machines
    have their own.
    """
    from raylog.actors.interceptors.loading import available as interceptors
    from raylog.assignors.api import available as assignors
    from raylog.client.interceptors import available as client_interceptors

    found = {
        "assignor": assignors(),
        "client interceptor": client_interceptors(),
        "interceptor": interceptors(),
    }
    rows = [
        {
            "kind": kind,
            "name": plugin.name,
            "package": plugin.distribution,
            "version": plugin.version,
            "target": plugin.target,
            "state": plugin.state,
            "error": plugin.error,
        }
        for kind, plugins in found.items()
        for plugin in plugins
    ]
    if as_json:
        print_json(rows)
    else:
        print_table(
            None,
            ["kind", "name", "package", "version", "class", "state"],
            [list(row.values())[:-1] for row in rows],
        )
        for row in rows:
            if row["error"]:
                print_done(f"{row['kind']} {row['name']}: {row['error']}")
    if any(row["error"] for row in rows):
        raise typer.Exit(EXIT_FAILED)
