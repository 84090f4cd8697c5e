"""Names that the shell completes, asked of the cluster; none if it does not answer at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from raylog.cli.options import DEFAULT_BOOTSTRAP

if TYPE_CHECKING:
    from raylog.client import BlockingClient

_TIMEOUT_MS = 2_000


def complete_groups(context: typer.Context, incomplete: str) -> list[str]:
    """Group ids that begin so."""
    from raylog.client import ClientError
    from raylog.wire.errors import KafkaError

    try:
        with _client(context) as client:
            names = [group.group_id for group in client.list_groups()]
    except (ClientError, KafkaError):
        return []  # a message here would land in the middle of what somebody types
    return [name for name in names if name.startswith(incomplete)]


def complete_topics(context: typer.Context, incomplete: str) -> list[str]:
    """Topic names that begin so; internal ones once their first letters are there."""
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
    """A client that gives up soon."""
    from raylog.client import BlockingClient, ClientSettings, parse_bootstrap

    bootstrap = context.params.get("bootstrap") or DEFAULT_BOOTSTRAP
    settings = ClientSettings(
        parse_bootstrap(bootstrap),
        connect_timeout_ms=_TIMEOUT_MS,
        request_timeout_ms=_TIMEOUT_MS,
        operation_timeout_ms=_TIMEOUT_MS,
    )
    return BlockingClient(bootstrap, settings)
