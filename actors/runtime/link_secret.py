"""Where an actor finds the secret of links, and how it is replaced while all goes on.

| source           | the secret is                                                               |
|------------------|-----------------------------------------------------------------------------|
| a path           | in that file of the machine                                                 |
| `env:VARIABLE`   | in the file that this environment variable names where the actor runs       |
| `ray:CLUSTER ID` | in Ray's key-value store, which Ray's token protects                        |

Ray carries the last two to wherever it starts an actor. Ray is imported only for the last one.

A secret is bytes of any kind. While it is replaced there are two, as text:

| line             | meaning                                                                   |
|------------------|---------------------------------------------------------------------------|
| `raylog-secrets` | the first                                                                 |
| `current HEX`    | what a process proves                                                     |
| `next HEX`       | the new one, accepted already: current once every process accepts it      |
| `before HEX`     | the old one, still accepted: dropped once every process proves the new    |
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
"""Of this process, by source."""
_lock = threading.Lock()
"""Held while secrets are read: what was read before is not taken after."""


class SecretMissing(Exception):
    """The secret is not where it should be."""


class LinkSecrets:
    """The secrets of a process' links: what it proves, and what it accepts of a peer."""

    def __init__(
        self, current: bytes, *, coming: bytes | None = None, before: bytes | None = None
    ) -> None:
        self.current = current
        self.coming = coming
        """The new one, while not every process is known to accept it."""
        self.before = before
        """The old one, while not every process is known to prove the new one."""

    @property
    def accepted(self) -> tuple[bytes, ...]:
        """All that a peer may prove, the current one first."""
        return tuple(one for one in (self.current, self.coming, self.before) if one is not None)

    def take(self, other: LinkSecrets) -> None:
        """Prove and accept what another one does, from the next link on."""
        self.current, self.coming, self.before = other.current, other.coming, other.before

    def advanced(self, fresh: bytes) -> LinkSecrets:
        """The next step of replacing it, by `fresh` where that begins.

        From one to two of which the new one is next, from there to the new one and the old one
        before, from there to the new one.
        """
        if self.coming is not None:
            return LinkSecrets(self.coming, before=self.current)
        if self.before is not None:
            return LinkSecrets(self.current)
        return LinkSecrets(self.current, coming=fresh)

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """What tells the accepted ones apart without giving them away; the current one first."""
        return tuple(hashlib.sha256(b"raylog" + one).hexdigest()[:12] for one in self.accepted)

    def to_bytes(self) -> bytes:
        """As it is stored: a secret alone is its bytes."""
        named = zip(_LINES, (self.current, self.coming, self.before), strict=True)
        lines = [f"{name} {one.hex()}\n" for name, one in named if one is not None]
        return self.current if len(lines) == 1 else _FIRST_LINE + "".join(lines).encode()


def secrets_of(source: str, *, anew: bool = False) -> LinkSecrets:
    """The secrets of this process' links, read once, or `anew` for all who use them here.

    Blocking; raises as `read_secrets`.
    """
    with _lock:
        known = _known.get(source)
        if known is None:
            known = _known[source] = read_secrets(source)
        elif anew:
            known.take(read_secrets(source))
        return known


def reread(source: str) -> tuple[str, ...]:
    """Have this process prove and accept what a source has now; returns the fingerprints.

    Blocking. Raises InvalidConfig where it has none: what is known stays.
    """
    try:
        return secrets_of(source, anew=True).fingerprints
    except (SecretMissing, OSError, ValueError) as failure:
        raise InvalidConfig(f"the secret stays as it is: {failure}") from failure


def read_secrets(source: str) -> LinkSecrets:
    """The secrets of a source; raises SecretMissing, OSError, ValueError for what is none.

    Blocking.
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
    """Store secrets in a file or in Ray's key-value store, at once or not at all. Blocking.

    A file keeps its owner and its mode: whoever could read it can do so. Raises OSError, also where
    the owner cannot be kept; ValueError for a source that is a file of every machine.
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
    """Put a cluster's secret into Ray's key-value store, if there is none; returns its source."""
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
