"""How the two ends of a link come to trust one another; the secret itself never travels.

Each end first says `["raylog", version, nonce, instance]`, then proves that it knows the cluster
secret: `["raylog", "proof", HMAC-SHA-256(secret, side, own nonce, peer's nonce)]`. The side keeps
a proof from being played back to its author. Nothing else is read before. What follows is neither
encrypted nor authenticated: links between hosts belong on a private network.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Any

from raylog.actors.runtime.frames import LINK_VERSION
from raylog.wire.errors import DecodeError

GREETING = "raylog"
GREETING_BYTES_MAX = 1024
"""Of a frame from a peer that has proved nothing yet."""
CONNECTING, SERVING = b"connecting", b"serving"
_PROOF = "proof"
_NONCE_BYTES = 16


class Handshake:
    """One end's part; `side` is CONNECTING or SERVING."""

    def __init__(self, secret: bytes, side: bytes, instance: str) -> None:
        self.done = False
        self.peer_instance = ""
        """What the peer calls itself; only to be believed when `done`."""
        self._secret = secret
        self._side = side
        self._instance = instance
        self._nonce = secrets.token_bytes(_NONCE_BYTES)
        self._peer_nonce = b""

    def greeting(self) -> list[Any]:
        """Head of the first frame to send."""
        return [GREETING, LINK_VERSION, self._nonce, self._instance]

    def took(self, head: list[Any]) -> list[Any] | None:
        """Take a frame's head; returns that of the frame to send now, if there is one.

        Raises DecodeError when the peer is not to be trusted.
        """
        if not self._peer_nonce:
            self._greeted(head)
            return [GREETING, _PROOF, self._proof(self._side, self._nonce, self._peer_nonce)]
        peer_side = SERVING if self._side == CONNECTING else CONNECTING
        expected = self._proof(peer_side, self._peer_nonce, self._nonce)
        proved = (
            head[:2] == [GREETING, _PROOF]
            and isinstance(head[2], bytes)
            and hmac.compare_digest(head[2], expected)
        )
        if not proved:
            raise DecodeError("a peer without the cluster's secret")
        self.done = True
        return None

    def _greeted(self, head: list[Any]) -> None:
        if len(head) != 4 or head[0] != GREETING:
            raise DecodeError("a peer that does not speak the link protocol")
        if head[1] != LINK_VERSION:
            raise DecodeError(f"a peer of link version {head[1]}, this is {LINK_VERSION}")
        if not isinstance(head[2], bytes) or len(head[2]) != _NONCE_BYTES:
            raise DecodeError(f"a greeting without a nonce of {_NONCE_BYTES} bytes")
        self._peer_nonce = head[2]
        self.peer_instance = str(head[3])

    def _proof(self, side: bytes, nonce: bytes, peer_nonce: bytes) -> bytes:
        return hmac.digest(self._secret, side + nonce + peer_nonce, "sha256")
