"""What a gateway counts of its clients' requests and connections."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container
from typing import TYPE_CHECKING

from raylog.actors.metrics.counts import Bounded, Histogram
from raylog.actors.metrics.errors import ErrorCounts, api_name
from raylog.actors.metrics.families import gateway as families
from raylog.actors.metrics.samples import Samples

if TYPE_CHECKING:
    from raylog.actors.gateway.connection import Slot

_BOUNDS = families.REQUEST_SECONDS.bounds


class ApiCounts:
    """The requests of one API.

    What most requests do not wait for is counted only where one did: the others are as many as
    have been answered beside them.
    """

    __slots__ = ("_local", "_queue", "_remote", "_send", "_whole", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self._whole = Histogram(_BOUNDS)
        self._queue = Histogram(_BOUNDS)
        self._local = Histogram(_BOUNDS)
        self._remote = Histogram(_BOUNDS)
        self._send = Histogram(_BOUNDS)

    def answered(self, slot: Slot, now_s: float) -> None:
        """Count the times of a request whose answer leaves."""
        begun_s, left_s, filled_s = slot.begun_s, slot.left_s, slot.filled_s
        whole = self._whole  # `Histogram.observe` twice, in line: every request comes here
        took_s = now_s - slot.taken_s
        whole.counts[bisect_left(_BOUNDS, took_s)] += 1
        whole.total += took_s
        local = self._local
        took_s = (left_s or filled_s) - begun_s
        local.counts[bisect_left(_BOUNDS, took_s)] += 1
        local.total += took_s
        if left_s:
            self._remote.observe(filled_s - left_s)
        if begun_s != slot.taken_s:
            self._queue.observe(begun_s - slot.taken_s)
        if now_s != filled_s:
            self._send.observe(now_s - filled_s)

    def sample(self, samples: Samples, api: str) -> None:
        """Tell all of it."""
        samples.add(families.REQUESTS, self.requests, api)
        samples.histogram(families.REQUEST_SECONDS, self._whole, api)
        count = sum(self._whole.counts)
        for stage, counted in (
            ("queue", self._queue),
            ("local", self._local),
            ("remote", self._remote),
            ("send", self._send),
        ):
            samples.histogram(families.STAGE_SECONDS, _with_others(counted, count), api, stage)


NOT_COUNTED = ApiCounts()
"""Of requests that no handler has seen; nobody is told of it."""


def _with_others(counted: Histogram, count: int) -> Histogram:
    """The same with `count` values: those that were not counted are 0."""
    made = Histogram(counted.bounds)
    made.total = counted.total
    made.counts = [*counted.counts]
    made.counts[0] += count - sum(made.counts)
    return made


class _Apis(dict[int, ApiCounts]):
    """Counts by API; those of one begin with its first request."""

    def __missing__(self, api_key: int) -> ApiCounts:
        made = self[api_key] = ApiCounts()
        return made


class TopicBytes:
    """What was sent of one topic."""

    __slots__ = ("out",)

    def __init__(self) -> None:
        self.out = 0


class GatewayCounts:
    """All that one gateway counts."""

    __slots__ = ("accepted", "apis", "bytes_in", "bytes_out", "closed", "errors", "topics")

    def __init__(self, topics_max: int) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.accepted = 0
        self.closed = {"limit": 0, "silent": 0, "protocol": 0}
        """Connections that were closed from here, by reason."""
        self.errors = ErrorCounts()
        self.topics = Bounded(TopicBytes, topics_max)
        self.apis = _Apis()
        """By API that is served."""

    def forget_topics(self, existing: Container[str]) -> None:
        """End the series of topics that are gone."""
        for topic, _ in tuple(self.topics.items()):
            if topic not in existing:
                self.topics.forget(topic)

    def sample(self, samples: Samples) -> None:
        """Tell all of it."""
        for api_key, counts in self.apis.items():
            counts.sample(samples, api_name(api_key))
        self.errors.sample(samples)
        for topic, counted in self.topics.items():
            samples.add(families.BYTES_OUT, counted.out, topic)
        samples.add(families.NETWORK_BYTES, self.bytes_in, "in")
        samples.add(families.NETWORK_BYTES, self.bytes_out, "out")
        samples.add(families.ACCEPTED, self.accepted)
        for reason, count in self.closed.items():
            samples.add(families.CLOSED, count, reason)
