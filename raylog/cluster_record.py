"""The record of a cluster that `raylog up` started, found by its data directory.

| path under `--data` | contents |
|---|---|
| `run/cluster.json` | this record, while the cluster runs |
| `run/ray-<n>.json` | a Ray node that `raylog up` started: address, processes |
| `run/ray.token` | token of that Ray cluster |
| `run/cluster.secret` | secret of the links between actors |
| `run/ray/` | Ray's sessions and all logs |
| `broker-<id>/` | each broker's data |
"""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path

_SECRET_BYTES = 32


class ClusterRecordDamaged(ValueError):
    """This build cannot read the record."""


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """How a broker was started, so that it can be restarted."""

    broker_id: int
    directory: str
    settings: dict[str, str]
    node_id: str | None
    """The Ray node it is held to."""


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """A cluster that was started with this data directory."""

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
        """Write the record atomically."""
        draft = run / "cluster.draft"
        draft.write_text(json.dumps(asdict(self), indent=1))
        draft.replace(run / "cluster.json")


def read_record(run: Path) -> ClusterRecord | None:
    """Return the record, or None if no cluster runs. Raises ClusterRecordDamaged."""
    path = run / "cluster.json"
    if not path.exists():
        return None
    text = path.read_bytes()
    try:
        noted = json.loads(text)
        brokers = [BrokerRecord(**broker) for broker in noted.pop("brokers", [])]
        return ClusterRecord(**noted, brokers=brokers)
    except (ValueError, TypeError, AttributeError) as broken:
        raise ClusterRecordDamaged(
            f"{path} is damaged, or of another build: expected is what `raylog up` notes about a "
            f"cluster, found is {text[:40]!r} ({broken})"
        ) from broken


def forget_record(run: Path) -> None:
    """Delete the record of a cluster that has stopped."""
    (run / "cluster.json").unlink(missing_ok=True)


def run_directory(data: Path) -> Path:
    """Return the `run` directory; create it, for its owner only, if it is missing."""
    run = data.absolute() / "run"
    run.mkdir(mode=0o700, parents=True, exist_ok=True)
    return run


def secret_path(run: Path) -> Path:
    """Return the path of the secret of the links between actors.

    If there is none, or the file is empty, make one: only a cluster that is starting asks for it.
    """
    from raylog.actors.runtime.link_secret import LinkSecrets, write_secrets

    path = run / "cluster.secret"
    if not (path.exists() and path.stat().st_size):
        write_secrets(str(path), LinkSecrets(secrets.token_bytes(_SECRET_BYTES)))
    return path
