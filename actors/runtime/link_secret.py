"""The secret of links: where actors find it, and how it is replaced during operation.

| source           | the secret is                                                               |
|------------------|-----------------------------------------------------------------------------|
| a path           | in that file of the machine                                                 |
| `env:VARIABLE`   | in the file that this environment variable names where the actor runs       |
| `ray:CLUSTER ID` | in Ray's key-value store, which Ray's token protects                        |

The last two work wherever Ray starts an actor. Only the last one imports Ray.

A secret is any bytes. While it is being replaced there are two, stored as text:

| line             | meaning                                                                   |
|------------------|---------------------------------------------------------------------------|
| `raylog-secrets` | always the first line                                                     |
| `current HEX`    | the secret that a process proves                                          |
| `next HEX`       | the new one, already accepted; becomes current once every process accepts |
|                  | it                                                                        |
| `before HEX`     | the old one, still accepted; dropped once every process proves the new    |
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import threading
from pathlib import Path

from raylog.wire.errors import InvalidConfig

FROM_ENVIRONMENT, FROM_RAY = "env:", "ray:"
SECRET_BYTES_MIN = 16
_FIRST_LINE = b"raylog-secrets\n"
_LINES = ("current", "next", "before")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})+")
_known: dict[str, LinkSecrets] = {}
"""Secrets that this process has read, by source."""
_lock = threading.Lock()
"""Held while secrets are read, so that an older result never replaces a newer one."""


class SecretMissing(Exception):
    """The secret is not where it should be."""


class LinkSecrets:
    """The secrets of a process's links: what it proves, and what it accepts from a peer."""

    def __init__(
        self, current: bytes, *, coming: bytes | None = None, before: bytes | None = None
    ) -> None:
        self.current = current
        self.coming = coming
        """The new one, until every process is known to accept it."""
        self.before = before
        """The old one, until every process is known to prove the new one."""

    @property
    def accepted(self) -> tuple[bytes, ...]:
        """Every secret that a peer may prove, the current one first."""
        return tuple(one for one in (self.current, self.coming, self.before) if one is not None)

    def take(self, other: LinkSecrets) -> None:
        """Use another instance's secrets from the next link on."""
        self.current, self.coming, self.before = other.current, other.coming, other.before

    def advanced(self, fresh: bytes) -> LinkSecrets:
        """Return the next step of a replacement, which starts with `fresh`.

        The steps are: the old secret with the new one as next; the new one with the old one before;
        the new one alone.
        """
        if self.coming is not None:
            return LinkSecrets(self.coming, before=self.current)
        if self.before is not None:
            return LinkSecrets(self.current)
        return LinkSecrets(self.current, coming=fresh)

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """Ids of the accepted secrets that do not reveal them, the current one first."""
        return tuple(hashlib.sha256(b"raylog" + one).hexdigest()[:12] for one in self.accepted)

    def to_bytes(self) -> bytes:
        """Encode the secrets for storage; a single secret is just its bytes."""
        named = zip(_LINES, (self.current, self.coming, self.before), strict=True)
        lines = [f"{name} {one.hex()}\n" for name, one in named if one is not None]
        return self.current if len(lines) == 1 else _FIRST_LINE + "".join(lines).encode()


def secrets_of(source: str, *, anew: bool = False) -> LinkSecrets:
    """Return the secrets of this process's links; they are read once, or again with `anew`.

    With `anew` all users in this process get the new ones. Blocking; raises as `read_secrets`.
    """
    with _lock:
        known = _known.get(source)
        if known is None:
            known = _known[source] = read_secrets(source)
        elif anew:
            known.take(read_secrets(source))
        return known


def reread(source: str) -> tuple[str, ...]:
    """Make this process use the secrets that a source has now; return the fingerprints.

    Blocking. If the source has none, raises InvalidConfig and keeps the known ones.
    """
    try:
        return secrets_of(source, anew=True).fingerprints
    except (SecretMissing, OSError, ValueError) as failure:
        raise InvalidConfig(f"the secret was not changed: {failure}") from failure


def read_secrets(source: str) -> LinkSecrets:
    """Read the secrets of a source. Blocking.

    Raises SecretMissing, OSError, and ValueError for invalid contents.
    """
    if source.startswith(FROM_RAY):
        from raylog.actors.runtime import ray_kv

        contents = ray_kv.get(_key(source.removeprefix(FROM_RAY)))
        if contents is None:
            raise SecretMissing(f"Ray's key-value store has no secret {source}")
    else:
        contents = _path(source).read_bytes()
    found = _parsed(source, contents)
    for secret in found.accepted:
        if len(secret) < SECRET_BYTES_MIN:
            raise ValueError(
                f"{source} holds {len(secret)} bytes, a cluster secret has at least "
                f"{SECRET_BYTES_MIN}"
            )
    return found


def _parsed(source: str, contents: bytes) -> LinkSecrets:
    if not contents.startswith(_FIRST_LINE):
        return LinkSecrets(contents)
    found: dict[str, bytes] = {}
    for number, line in enumerate(contents.decode(errors="replace").splitlines()[1:], 2):
        name, _, digits = line.partition(" ")
        if name not in _LINES or name in found or not _HEX.fullmatch(digits):
            raise ValueError(
                f"{source}, line {number}: expected `NAME HEX`, each of {', '.join(_LINES)} once"
            )
        found[name] = bytes.fromhex(digits)
    if _LINES[0] not in found:
        raise ValueError(f"{source} has no line `{_LINES[0]} HEX`")
    return LinkSecrets(found[_LINES[0]], coming=found.get(_LINES[1]), before=found.get(_LINES[2]))


def write_secrets(source: str, secrets: LinkSecrets) -> None:
    """Store secrets atomically in a file or in Ray's key-value store. Blocking.

    A file keeps its owner and its mode, so its readers can still read it. Raises OSError, also if
    the owner cannot be kept, and ValueError for a source that is a file on every machine.
    """
    if source.startswith(FROM_RAY):
        from raylog.actors.runtime import ray_kv

        ray_kv.put(_key(source.removeprefix(FROM_RAY)), secrets.to_bytes())
        return
    if source.startswith(FROM_ENVIRONMENT):
        raise ValueError(f"{source} names a file of every machine: it is written there by hand")
    path = Path(source).resolve()
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if path.exists():
                before = path.stat()
                os.fchown(descriptor, before.st_uid, before.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
            file.write(secrets.to_bytes())
            file.flush()
            os.fsync(descriptor)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def give_to_ray(cluster_id: str, secret: bytes) -> str:
    """Put a cluster's secret into Ray's key-value store unless it has one; return the source."""
    from raylog.actors.runtime import ray_kv

    ray_kv.put(_key(cluster_id), secret, overwrite=False)
    return f"{FROM_RAY}{cluster_id}"


def _key(cluster_id: str) -> str:
    return f"secret/{cluster_id}"


def _path(source: str) -> Path:
    if not source.startswith(FROM_ENVIRONMENT):
        return Path(source)
    variable = source.removeprefix(FROM_ENVIRONMENT)
    path = os.environ.get(variable)
    if not path:
        raise SecretMissing(
            f"{variable} is not set here: it names the file with the cluster's secret, and Ray "
            "must be started with it on every machine"
        )
    return Path(path)
