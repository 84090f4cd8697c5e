"""What `raylog up` notes about the cluster it started, for `down` and `status`.

| path under `--data` | contents |
|---|---|
| `run/cluster.json` | this record, while the cluster is up |
| `run/ray-<n>.json` | one Ray node that we started: address, processes |
| `run/ray.token` | access to that Ray |
| `run/cluster.secret` | access to the actors' links |
| `run/ray/` | Ray's sessions and all logs |
| `broker-<id>/` | each broker's data |
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path

from raylog.cli.failures import CommandFailed

_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """A broker as it was started, so that it can be started again."""

    broker_id: int
    directory: str
    settings: dict[str, str]
    node_id: str | None
    """The Ray node it is held to."""


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """A cluster that was started from here."""

    cluster_id: str
    broker_ids: list[int]
    bootstrap: list[str]
    """host:port of each broker."""
    ray_address: str
    token_path: str | None
    """None: a Ray that we joined, with whatever access its environment gives."""
    secret_path: str
    brokers: list[BrokerRecord] = field(default_factory=list)

    def write(self, run: Path) -> None:
        """Note it, at once or not at all."""
        draft = run / "cluster.draft"
        draft.write_text(json.dumps(asdict(self), indent=1))
        draft.replace(run / "cluster.json")


def read_record(run: Path) -> ClusterRecord | None:
    """The record, if a cluster was started and not stopped; CommandFailed if it is damaged."""
    path = run / "cluster.json"
    if not path.exists():
        return None
    text = path.read_bytes()
    try:
        noted = json.loads(text)
        brokers = [BrokerRecord(**broker) for broker in noted.pop("brokers", [])]
        return ClusterRecord(**noted, brokers=brokers)
    except (ValueError, TypeError, AttributeError) as broken:
        raise CommandFailed(
            f"{path} is damaged, or of another build: expected is what `raylog up` notes about a "
            f"cluster, found is {text[:40]!r} ({broken})",
            "If nothing of that cluster runs any more, remove the file: no data is in it",
        ) from broken


def forget_record(run: Path) -> None:
    """The cluster is down."""
    (run / "cluster.json").unlink(missing_ok=True)


def run_directory(data: Path) -> Path:
    """Where what runs is noted; made if missing, for its owner only."""
    run = data.absolute() / "run"
    run.mkdir(mode=0o700, parents=True, exist_ok=True)
    return run


def secret_path(run: Path) -> Path:
    """The secret that opens the actors' links, made on first use."""
    path = run / "cluster.secret"
    if not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_SECRET_BYTES))
    return path
