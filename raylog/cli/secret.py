"""The command `raylog secret`: replaces the secret of links between brokers while they serve."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from raylog.cli.acting import acting
from raylog.cli.failures import EXIT_FAILED, CommandFailed, last_line
from raylog.cli.options import DEFAULT_DATA, Address, Data
from raylog.cli.output import print_done

if TYPE_CHECKING:
    from raylog.actors.runtime.link_secret import LinkSecrets

app = typer.Typer(no_args_is_help=True, help="Replace the secret of the links between brokers.")
_SECRET_BYTES = 32
Know = Callable[["tuple[str, ...] | None"], Coroutine[Any, Any, None]]
"""Makes every process of the cluster read its secrets again."""


@dataclass(frozen=True, slots=True)
class _Cluster:
    cluster_id: str
    broker_ids: list[int]
    source: str


@app.command("rotate")
@acting
def rotate(data: Data = DEFAULT_DATA, address: Address = None) -> None:
    """Replace the secret while brokers serve.

    Brokers first accept both secrets, then use the new one, then refuse the old
    one. Every broker must answer. If the command is interrupted, run it again.
    """
    from raylog.actors.runtime import rotation
    from raylog.actors.runtime.link_secret import FROM_ENVIRONMENT

    with _cluster(data, address) as cluster:
        if cluster.source.startswith(FROM_ENVIRONMENT):
            raise CommandFailed(
                f"the secret is in the file that {cluster.source.removeprefix(FROM_ENVIRONMENT)} "
                "names on every machine, and this command cannot write these files",
                "Write the files in three steps, and after each step run: raylog secret reload "
                "(docs/operations.md, The link secret)",
            )
        _run(
            lambda know: rotation.rotate(
                _Stored(cluster.source), know, os.urandom(_SECRET_BYTES), print_done
            ),
            cluster,
        )


@app.command("reload")
@acting
def reload(data: Data = DEFAULT_DATA, address: Address = None) -> None:
    """Make every process read the secret again. Fails if they read different ones."""
    with _cluster(data, address) as cluster:
        _run(lambda know: know(None), cluster)
        print_done("every process has read the same secret")


class _Stored:
    """The secrets stored in a source."""

    def __init__(self, source: str) -> None:
        self._source = source

    def read(self) -> LinkSecrets:
        """Read the secrets."""
        from raylog.actors.runtime.link_secret import read_secrets

        return read_secrets(self._source)

    def write(self, secrets: LinkSecrets) -> None:
        """Store the secrets."""
        from raylog.actors.runtime.link_secret import write_secrets

        write_secrets(self._source, secrets)


def _run(do: Callable[[Know], Coroutine[Any, Any, object]], cluster: _Cluster) -> None:
    import asyncio

    from raylog.actors.runtime.base import PeerLost, PeerTimeout
    from raylog.actors.runtime.link_secret import SecretMissing
    from raylog.actors.runtime.ray import RayRuntime
    from raylog.actors.runtime.rotation import all_know
    from raylog.wire.errors import KafkaError

    async def main() -> None:
        runtime = RayRuntime.of_driver(cluster.source)
        await do(lambda prints: all_know(runtime, cluster.cluster_id, cluster.broker_ids, prints))

    try:
        asyncio.run(main())
    except (KafkaError, PeerLost, PeerTimeout, SecretMissing, ValueError, OSError) as failure:
        raise CommandFailed(
            last_line(failure),
            "Brokers are still connected. Fix the problem and run the same command again: it "
            "continues where this one ended",
            EXIT_FAILED,
        ) from failure


@contextmanager
def _cluster(data: Path, address: str | None) -> Iterator[_Cluster]:
    """Connect to the Ray of the selected cluster, and return the cluster."""
    if address is None:
        from raylog.cli.local_cluster import connected, running_record

        record = running_record(data)
        with connected(record):
            yield _Cluster(record.cluster_id, record.broker_ids, record.secret_path)
        return
    from raylog.cli.ray_cluster import cluster_to_change, on_ray

    with on_ray(address):
        desired = cluster_to_change(address, data)
        ids = [one.broker_id for one in desired.brokers]
        yield _Cluster(desired.cluster_id, ids, desired.secret_source)
