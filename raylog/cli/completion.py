"""Completes names in the shell by asking the cluster; none if it does not answer quickly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from raylog.cli.options import DEFAULT_BOOTSTRAP

if TYPE_CHECKING:
    from raylog.client import BlockingClient

_TIMEOUT_MS = 2_000


def complete_groups(context: typer.Context, incomplete: str) -> list[str]:
    """Return the group ids that start with `incomplete`."""
    from raylog.client import ClientError
    from raylog.wire.errors import KafkaError

    try:
        with _client(context) as client:
            names = [group.group_id for group in client.list_groups()]
    except (ClientError, KafkaError):
        return []  # a message would appear in the middle of the command line
    return [name for name in names if name.startswith(incomplete)]


def complete_topics(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topic names that start with `incomplete`; no internal ones if it is empty."""
    from raylog.client import ClientError
    from raylog.wire.errors import KafkaError

    try:
        with _client(context) as client:
            topics = client.metadata().topics
    except (ClientError, KafkaError):
        return []  # as above
    return [
        name
        for name in sorted(topics)
        if name.startswith(incomplete) and (incomplete or not topics[name].is_internal)
    ]


def _client(context: typer.Context) -> BlockingClient:
    """Return a client with short timeouts."""
    from raylog.client import BlockingClient, ClientSettings, parse_bootstrap

    bootstrap = context.params.get("bootstrap") or DEFAULT_BOOTSTRAP
    settings = ClientSettings(
        parse_bootstrap(bootstrap),
        connect_timeout_ms=_TIMEOUT_MS,
        request_timeout_ms=_TIMEOUT_MS,
        operation_timeout_ms=_TIMEOUT_MS,
    )
    return BlockingClient(bootstrap, settings)
