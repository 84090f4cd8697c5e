"""A gateway's intake of client metrics: current subscriptions and pushed values."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from raylog.actors.config import ResourceType
from raylog.actors.config.client_metrics import Subscription, subscription_of
from raylog.actors.gateway.telemetry.instance import TELEMETRY_BYTES_MAX, ClientInstance
from raylog.actors.gateway.telemetry.otlp import Point, points
from raylog.actors.gateway.telemetry.received import ReceivedMetrics, taken_from
from raylog.actors.gateway.telemetry.subscriptions import asked_of
from raylog.actors.metrics.families import clients as families
from raylog.actors.metrics.samples import Samples
from raylog.wire.compression import Codec, decompress
from raylog.wire.errors import InvalidRecord, KafkaError
from raylog.wire.uuids import to_base64

if TYPE_CHECKING:
    from raylog.actors.gateway.cluster import ClusterView
    from raylog.actors.gateway.context import RequestContext


class TelemetryIntake:
    """Created together with its gateway; empty until clients push."""

    def __init__(self, cluster: ClusterView) -> None:
        self.received = ReceivedMetrics()
        self.pushes: Counter[str] = Counter()
        """Number of pushes by error name, with NONE for accepted pushes."""
        self.bytes = 0
        """Bytes of accepted pushes, as received."""
        self._cluster = cluster
        self._configs_version = -1
        self._subscriptions: tuple[Subscription, ...] = ()

    def instance(self, context: RequestContext, instance_id: bytes) -> ClientInstance:
        """Return the state of a client instance; a new one if the subscriptions have changed."""
        connection = context.connection
        subscriptions = self._now()
        known = connection.telemetry
        if (
            known is None
            or known.instance_id != instance_id
            or known.subscriptions is not subscriptions
        ):
            software, version = connection.software
            client = {
                "client_instance_id": to_base64(instance_id),
                "client_id": context.header.client_id or "",
                "client_software_name": software,
                "client_software_version": version,
                "client_source_address": connection.host,
                "client_source_port": str(connection.port),
            }
            asked = asked_of(subscriptions, instance_id, client)
            other = known if known is not None and known.instance_id != instance_id else None
            known = connection.telemetry = ClientInstance(instance_id, subscriptions, asked, other)
        return known

    @property
    def is_wanted(self) -> bool:
        """Whether there is any subscription."""
        return bool(self._now())

    def _now(self) -> tuple[Subscription, ...]:
        version = self._cluster.configs_version
        if version != self._configs_version:
            self._configs_version = version
            now = tuple(
                subscription_of(settings)
                for (kind, _), settings in self._cluster.image.configs.items()
                if kind == ResourceType.CLIENT_METRICS
            )
            if now != self._subscriptions:
                self._subscriptions = now
        return self._subscriptions

    def sample(self, samples: Samples, now_ms: float) -> None:
        """Sample what clients have pushed recently."""
        self.received.expire(now_ms)
        for one in self.received.series():
            labels = one.client_id, one.instance, one.metric, one.attributes
            samples.add(families.CLIENT_METRIC, one.value, *labels)
        for code, count in self.pushes.items():
            samples.add(families.PUSHES, count, code)
        samples.add(families.PUSHED_BYTES, self.bytes)
        samples.add(families.DROPPED_POINTS, self.received.points_dropped)


def decoded(codec: int, data: bytes) -> list[Point]:
    """Decode a push; raises InvalidRecord. Slow: call it in a thread."""
    try:
        plain = decompress(Codec(codec), data, TELEMETRY_BYTES_MAX)
    except KafkaError as failure:
        raise InvalidRecord(f"the metrics cannot be decompressed: {failure}") from failure
    return taken_from(points(plain))
