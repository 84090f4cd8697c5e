"""Process starts of an actor that Ray restarts, so that a crash loop slows down.

Ray restarts such an actor at once, however often. Only a file outlives its processes. It is in
`starts/` beside the links' secret, one for each actor, as JSON:

| key       | value                                                                        |
|-----------|------------------------------------------------------------------------------|
| `spawned` | the spawn it belongs to: spawning the name again starts a new series         |
| `losses`  | consecutive ends                                                             |
| `due_ms`  | when the last start was due, in ms since the machine was booted              |
| `reason`  | why the last process ended itself; "" if unknown                             |

A file that cannot be read or written only costs the delays.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from raylog.actors.backoff import Backoff

log = logging.getLogger(__name__)
_STALE_S = 3_600
"""A file that was not written for this long is no longer relevant."""


class Restarts:
    """The starts of one actor since it was spawned (`spawned`)."""

    def __init__(self, directory: Path, name: str, spawned: str) -> None:
        self._path = directory / f"{quote(name, safe='')}.json"
        self._spawned = spawned
        self.reason = ""
        """Why the previous process ended itself."""

    def begin(self, now_ms: float) -> int:
        """Record that a process starts; return how many ms the start should be delayed."""
        known = self._read()
        if known is None:
            self._write(Backoff(0, now_ms), "")
            return 0
        backoff = Backoff(known["losses"], known["due_ms"])
        self.reason = known["reason"]
        delay_ms = backoff.lost(now_ms)
        self._write(backoff, "")
        return delay_ms

    def ends(self, reason: str) -> None:
        """Record why this process ends itself."""
        known = self._read()
        if known is not None:
            self._write(Backoff(known["losses"], known["due_ms"]), reason)

    def _read(self) -> dict[str, Any] | None:
        """Return what is recorded of this spawn; None if there is nothing usable."""
        try:
            noted = json.loads(self._path.read_text())
            known = {
                "losses": int(noted["losses"]),
                "due_ms": float(noted["due_ms"]),
                "reason": str(noted["reason"]),
            }
            return known if noted["spawned"] == self._spawned else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as failure:
            log.warning("%s cannot be read, earlier starts are unknown: %s", self._path, failure)
            return None

    def _write(self, backoff: Backoff, reason: str) -> None:
        noted = {
            "spawned": self._spawned,
            "losses": backoff.losses,
            "due_ms": backoff.due_ms,
            "reason": reason,
        }
        draft = self._path.with_suffix(".draft")
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            draft.write_text(json.dumps(noted))
            draft.replace(self._path)
            _remove_stale(self._path.parent)
        except OSError as failure:
            log.warning("the starts cannot be recorded in %s: %s", self._path, failure)


def _remove_stale(directory: Path) -> None:
    """Remove old files: controllers get ever new names, so theirs would accumulate."""
    oldest = time.time() - _STALE_S
    for path in directory.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < oldest:
                path.unlink()
