"""When a client instance may request its subscription and push metrics (KIP-714).

The rules are those of Apache Kafka 4.3.1:

- It may request its subscription once per push interval, and at once after the error
  UNKNOWN_SUBSCRIPTION_ID or UNSUPPORTED_COMPRESSION_TYPE.
- It may push once after that request, and then once per push interval. Its last push may come at
  any time, and no other push may follow it.

Apache Kafka identifies instances by their ids, which anybody can make up, and keeps some thousands
of them. Here a connection has one instance, which keeps its intervals if it changes its id.
"""

from __future__ import annotations

from raylog.actors.config.client_metrics import Subscription
from raylog.actors.gateway.telemetry.subscriptions import Asked
from raylog.wire.compression import LEVELS, Codec
from raylog.wire.errors import (
    InvalidRequest,
    TelemetryTooLarge,
    ThrottlingQuotaExceeded,
    UnknownSubscriptionId,
    UnsupportedCompressionType,
)
from raylog.wire.messages.push_telemetry import PushTelemetryRequest

ACCEPTED = sorted(filter(None, Codec), key=lambda codec: (codec in LEVELS, codec), reverse=True)
"""Best first, in Kafka's order; pushes may also be uncompressed."""
TELEMETRY_BYTES_MAX = 1 << 20
"""Maximum size of a push, compressed and decompressed; Kafka's default of `telemetry.max.bytes`."""
_NEVER_MS = float("-inf")


class ClientInstance:
    """The state of one client instance at one gateway; it ends with the client's connection."""

    __slots__ = (
        "_asked_ms",
        "_may_ask_again",
        "_pushed_ms",
        "_terminating",
        "asked",
        "instance_id",
        "subscriptions",
    )

    def __init__(
        self,
        instance_id: bytes,
        subscriptions: tuple[Subscription, ...],
        asked: Asked,
        other: ClientInstance | None = None,
    ) -> None:
        """`other` is the previous instance of this connection, with another id."""
        self.instance_id = instance_id
        self.subscriptions = subscriptions
        """The subscriptions from which `asked` was built."""
        self.asked = asked
        self._asked_ms: float = _NEVER_MS if other is None else other._asked_ms
        self._pushed_ms: float = _NEVER_MS if other is None else other._pushed_ms
        self._may_ask_again = False
        self._terminating = False

    def ask(self, now_ms: float) -> None:
        """Handle a request for the subscription; raises ThrottlingQuotaExceeded."""
        last_ms = max(self._asked_ms, self._pushed_ms)
        if now_ms - last_ms >= self.asked.push_interval_ms:
            self._asked_ms = now_ms
        elif not self._may_ask_again:
            raise ThrottlingQuotaExceeded(
                f"subscriptions are given once per {self.asked.push_interval_ms} ms"
            )
        self._may_ask_again = False

    def push(self, request: PushTelemetryRequest, now_ms: float) -> None:
        """Handle a push; raises Kafka's error for a refused push."""
        self._may_ask_again = False
        was_terminating, self._terminating = self._terminating, request.terminating
        if was_terminating:
            raise InvalidRequest("the client has said that its push before was the last one")
        if not self._push_is_due(now_ms) and not request.terminating:
            raise ThrottlingQuotaExceeded(
                f"metrics are taken once per {self.asked.push_interval_ms} ms"
            )
        if request.subscription_id != self.asked.subscription_id:
            self._may_ask_again = True
            raise UnknownSubscriptionId(
                f"the subscription is {self.asked.subscription_id}, not {request.subscription_id}"
            )
        if request.compression_type not in (Codec.NONE, *ACCEPTED):
            self._may_ask_again = True
            raise UnsupportedCompressionType(
                f"compression type {request.compression_type} is none of {[*map(int, ACCEPTED)]}"
            )
        if len(request.metrics) > TELEMETRY_BYTES_MAX:
            raise TelemetryTooLarge(
                f"{len(request.metrics)} bytes of metrics: at most {TELEMETRY_BYTES_MAX} are taken"
            )
        if request.metrics and not self.asked.metrics:
            raise InvalidRequest("the client pushes metrics, and was asked for none")

    def _push_is_due(self, now_ms: float) -> bool:
        first = self._asked_ms > self._pushed_ms
        if not first and now_ms - self._pushed_ms < self.asked.push_interval_ms:
            return False
        self._pushed_ms = now_ms
        return True
