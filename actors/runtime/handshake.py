"""The handshake of a link: both ends prove that they know a secret, which never travels.

Each end first sends `["raylog", newest link version, nonce, instance, build, oldest link version]`.
Further fields are of newer builds and ignored. The ends speak the newest version that both know,
and close the link if there is none. Then each proves that it knows the cluster secret: `["raylog",
"proof", HMAC-SHA-256(secret, side, own nonce, peer's nonce)]`. The side is part of the proof, so a
proof cannot be replayed to its author. Nothing else is read before both proofs are checked. What
follows is neither encrypted nor authenticated, so links between hosts belong on a private network.
"""

from __future__ import annotations

import hmac
from secrets import token_bytes
from typing import Any

from raylog.actors.build import BUILD
from raylog.actors.runtime.frames import LINK_VERSION, LINK_VERSION_MIN
from raylog.actors.runtime.link_secret import LinkSecrets
from raylog.wire.errors import DecodeError

GREETING = "raylog"
GREETING_BYTES_MAX = 1024
"""Maximum frame size of a peer that has not authenticated yet."""
CONNECTING, SERVING = b"connecting", b"serving"
_PROOF = "proof"
_NONCE_BYTES = 16
_GREETING_FIELDS = 6
_GREETING_FIELDS_OLD = 4
"""In link versions before 3."""


class Handshake:
    """One end of a handshake; `side` is CONNECTING or SERVING."""

    def __init__(self, secrets: LinkSecrets, side: bytes, instance: str) -> None:
        self.done = False
        self.peer_instance = ""
        """The peer's instance, to be trusted only when `done`."""
        self.version = 0
        """The agreed version of the link protocol, once the peer's greeting has arrived."""
        self._current = secrets.current
        self._accepted = secrets.accepted
        self._side = side
        self._instance = instance
        self._nonce = token_bytes(_NONCE_BYTES)
        self._peer_nonce = b""

    def greeting(self) -> list[Any]:
        """Return the head of the first frame to send."""
        return [GREETING, LINK_VERSION, self._nonce, self._instance, BUILD, LINK_VERSION_MIN]

    def took(self, head: list[Any]) -> list[Any] | None:
        """Handle a frame's head; return the head of the frame to send now, if any.

        Raises DecodeError if the peer cannot be trusted.
        """
        if not self._peer_nonce:
            self._greeted(head)
            own = _proof(self._current, self._side, self._nonce, self._peer_nonce)
            return [GREETING, _PROOF, own]
        peer_side = SERVING if self._side == CONNECTING else CONNECTING
        proved = (
            head[:2] == [GREETING, _PROOF]
            and isinstance(head[2], bytes)
            and any(
                hmac.compare_digest(
                    head[2], _proof(secret, peer_side, self._peer_nonce, self._nonce)
                )
                for secret in self._accepted
            )
        )
        if not proved:
            raise DecodeError("a peer without the cluster's secret")
        self.done = True
        return None

    def _greeted(self, head: list[Any]) -> None:
        if len(head) < _GREETING_FIELDS_OLD or head[0] != GREETING:
            raise DecodeError("a peer that does not speak the link protocol")
        self.version = _agreed(head)
        if not isinstance(head[2], bytes) or len(head[2]) != _NONCE_BYTES:
            raise DecodeError(f"a greeting without a nonce of {_NONCE_BYTES} bytes")
        self._peer_nonce = head[2]
        self.peer_instance = str(head[3])


def _proof(secret: bytes, side: bytes, nonce: bytes, peer_nonce: bytes) -> bytes:
    return hmac.digest(secret, side + nonce + peer_nonce, "sha256")


def _agreed(greeting: list[Any]) -> int:
    """Return the newest version that both speak; raises DecodeError if there is none."""
    newest = greeting[1]
    build, oldest = greeting[4:6] if len(greeting) >= _GREETING_FIELDS else ("before 3", newest)
    if not isinstance(newest, int) or not isinstance(oldest, int) or oldest > newest:
        raise DecodeError(f"expected link versions, found {oldest!a:.40} to {newest!a:.40}")
    agreed = min(newest, LINK_VERSION)
    if agreed < max(oldest, LINK_VERSION_MIN):
        raise DecodeError(
            f"a peer of build {build!a:.80} speaks link versions {oldest} to {newest}, this build "
            f"{BUILD} speaks {LINK_VERSION_MIN} to {LINK_VERSION}"
        )
    return agreed
