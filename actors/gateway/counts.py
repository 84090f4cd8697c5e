"""What a gateway counts of its clients' requests and connections."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from raylog.actors.metrics.counts import Bounded, Histogram
from raylog.actors.metrics.errors import ErrorCounts, api_name
from raylog.actors.metrics.families import gateway as families
from raylog.actors.metrics.samples import Samples

if TYPE_CHECKING:
    from raylog.actors.gateway.connection import Slot

_BOUNDS_MS = tuple(1000 * bound for bound in families.REQUEST_SECONDS.bounds)


class ApiCounts:
    """The requests of one API; times in ms.

    What most requests do not wait for is counted only where one did: the others are as many as
    have been answered beside them.
    """

    __slots__ = ("local", "queue", "remote", "requests", "send", "whole")

    def __init__(self) -> None:
        self.requests = 0
        self.whole = Histogram(_BOUNDS_MS)
        self.queue = Histogram(_BOUNDS_MS)
        self.local = Histogram(_BOUNDS_MS)
        self.remote = Histogram(_BOUNDS_MS)
        self.send = Histogram(_BOUNDS_MS)

    def answered(self, slot: Slot, now_ms: float) -> None:
        """Count the times of a request whose answer leaves."""
        begun_ms, left_ms, filled_ms = slot.begun_ms, slot.left_ms, slot.filled_ms
        self.whole.observe(now_ms - slot.taken_ms)
        if left_ms:
            self.local.observe(left_ms - begun_ms)
            self.remote.observe(filled_ms - left_ms)
        else:
            self.local.observe(filled_ms - begun_ms)
        if begun_ms != slot.taken_ms:
            self.queue.observe(begun_ms - slot.taken_ms)
        if now_ms != filled_ms:
            self.send.observe(now_ms - filled_ms)

    def sample(self, samples: Samples, api: str) -> None:
        """Tell all of it."""
        samples.add(families.REQUESTS, self.requests, api)
        whole = sum(self.whole.counts)
        samples.histogram(families.REQUEST_SECONDS, _in_seconds(self.whole, whole), api)
        for stage in ("queue", "local", "remote", "send"):
            counts = _in_seconds(getattr(self, stage), whole)
            samples.histogram(families.STAGE_SECONDS, counts, api, stage)


def _in_seconds(counted: Histogram, whole: int) -> Histogram:
    """The same in seconds, with `whole` values: those that were not counted are 0."""
    made = Histogram(families.REQUEST_SECONDS.bounds)
    made.total = counted.total / 1000
    made.counts = [*counted.counts]
    made.counts[0] += whole - sum(made.counts)
    return made


class TopicBytes:
    """What was sent of one topic."""

    __slots__ = ("out",)

    def __init__(self) -> None:
        self.out = 0


class GatewayCounts:
    """All that one gateway counts."""

    __slots__ = ("_apis", "accepted", "bytes_in", "bytes_out", "closed", "errors", "topics")

    def __init__(self, topics_max: int) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.accepted = 0
        self.closed = {"limit": 0, "silent": 0, "protocol": 0}
        """Connections that were closed from here, by reason."""
        self.errors = ErrorCounts()
        self.topics = Bounded(TopicBytes, topics_max)
        self._apis: dict[int, ApiCounts] = {}

    def begun(self, slot: Slot, api_key: int) -> None:
        """A request of a known API begins to be handled."""
        counts = self._apis.get(api_key)
        if counts is None:
            counts = self._apis[api_key] = ApiCounts()
        counts.requests += 1
        slot.api_counts = counts

    def forget_topics(self, existing: Container[str]) -> None:
        """End the series of topics that are gone."""
        for topic, _ in tuple(self.topics.items()):
            if topic not in existing:
                self.topics.forget(topic)

    def sample(self, samples: Samples) -> None:
        """Tell all of it."""
        for api_key, counts in self._apis.items():
            counts.sample(samples, api_name(api_key))
        self.errors.sample(samples)
        for topic, counted in self.topics.items():
            samples.add(families.BYTES_OUT, counted.out, topic)
        samples.add(families.NETWORK_BYTES, self.bytes_in, "in")
        samples.add(families.NETWORK_BYTES, self.bytes_out, "out")
        samples.add(families.ACCEPTED, self.accepted)
        for reason, count in self.closed.items():
            samples.add(families.CLOSED, count, reason)
