"""Completes names in the shell by asking the cluster; none if it does not answer quickly."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from raylog.cli.options import DEFAULT_BOOTSTRAP

if TYPE_CHECKING:
    from raylog.client import BlockingClient

_TIMEOUT_MS = 2_000
_TIMEOUTS = (
    "socket.connection.setup.timeout.ms",
    "request.timeout.ms",
    "default.api.timeout.ms",
)


def complete_groups(context: typer.Context, incomplete: str) -> list[str]:
    """Return the group ids that start with `incomplete`."""
    return _asked(
        context, incomplete, lambda client: [one.group_id for one in client.list_groups()]
    )


def complete_topics(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topic names that start with `incomplete`; no internal ones if it is empty."""

    def topics(client: BlockingClient) -> list[str]:
        known = client.metadata().topics
        return [one for one in sorted(known) if incomplete or not known[one].is_internal]

    return _asked(context, incomplete, topics)


def _asked(
    context: typer.Context, incomplete: str, ask: Callable[[BlockingClient], list[str]]
) -> list[str]:
    from raylog.client import ClientError
    from raylog.wire.errors import KafkaError

    try:
        with _client(context) as client:
            return [name for name in ask(client) if name.startswith(incomplete)]
    except (ClientError, KafkaError, typer.BadParameter):
        return []  # a message would appear in the middle of the command line


def _client(context: typer.Context) -> BlockingClient:
    """Return a client with the settings of the command line and short timeouts."""
    from raylog.cli.connecting import read_given
    from raylog.client import BlockingClient

    given, bootstrap = context.params, context.params.get("bootstrap")
    return BlockingClient(
        {
            "bootstrap.servers": DEFAULT_BOOTSTRAP,
            **read_given(given.get("client_config"), given.get("client_setting")),
            **({} if bootstrap in (None, DEFAULT_BOOTSTRAP) else {"bootstrap.servers": bootstrap}),
            **dict.fromkeys(_TIMEOUTS, _TIMEOUT_MS),
        }
    )
