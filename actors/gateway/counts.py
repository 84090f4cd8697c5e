"""Counts a gateway's requests and connections."""

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
_QUICK_S = _BOUNDS[0]


class ApiCounts:
    """Counts the requests of one API.

    Most requests are answered by their handler at once. All of their time is `local`, so it is
    counted only once. Other requests are counted in each stage in which they waited.
    """

    __slots__ = ("_at_once", "_local", "_queue", "_remote", "_send", "_whole", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self._at_once = Histogram(_BOUNDS)
        """Times of requests that did not wait."""
        self._whole = Histogram(_BOUNDS)
        """Times of all other requests."""
        self._local = Histogram(_BOUNDS)
        """A stage of these requests. This stage and the next three are counted only if they took
        time."""
        self._queue = Histogram(_BOUNDS)
        self._remote = Histogram(_BOUNDS)
        self._send = Histogram(_BOUNDS)

    def answered(self, slot: Slot, now_s: float) -> None:
        """Count the time of a request whose response is sent at once."""
        taken_s = slot.taken_s
        if slot.left_s or slot.begun_s != taken_s:
            self.waited(slot, now_s, now_s)
            return
        took_s = now_s - taken_s
        # An inlined `Histogram.observe`, because every request comes here and most are fast.
        self._at_once.counts[bisect_left(_BOUNDS, took_s) if took_s > _QUICK_S else 0] += 1
        self._at_once.total += took_s

    def waited(self, slot: Slot, filled_s: float, now_s: float) -> None:
        """Count the times of a request whose response was ready at `filled_s` and is sent now."""
        begun_s, left_s = slot.begun_s, slot.left_s
        self._whole.observe(now_s - slot.taken_s)
        self._local.observe((left_s or filled_s) - begun_s)
        if left_s:
            self._remote.observe(filled_s - left_s)
        if begun_s != slot.taken_s:
            self._queue.observe(begun_s - slot.taken_s)
        if now_s != filled_s:
            self._send.observe(now_s - filled_s)

    def sample(self, samples: Samples, api: str) -> None:
        """Sample all counts."""
        samples.add(families.REQUESTS, self.requests, api)
        whole = _sum(self._at_once, self._whole)
        samples.histogram(families.REQUEST_SECONDS, whole, api)
        count = sum(whole.counts)
        for stage, counted in (
            ("queue", self._queue),
            ("local", _sum(self._at_once, self._local)),
            ("remote", self._remote),
            ("send", self._send),
        ):
            samples.histogram(families.STAGE_SECONDS, _with_others(counted, count), api, stage)


NOT_COUNTED = ApiCounts()
"""For requests that never reached a handler; not reported."""


def _with_others(counted: Histogram, count: int) -> Histogram:
    """Return a copy with `count` values, in which missing values are 0."""
    made = Histogram(counted.bounds)
    made.total = counted.total
    made.counts = [*counted.counts]
    made.counts[0] += count - sum(made.counts)
    return made


def _sum(one: Histogram, other: Histogram) -> Histogram:
    """Return a histogram with the values of both."""
    made = Histogram(one.bounds)
    made.total = one.total + other.total
    made.counts = [a + b for a, b in zip(one.counts, other.counts, strict=True)]
    return made


class _Apis(dict[int, ApiCounts]):
    """Counts by API, each created by its first request."""

    def __missing__(self, api_key: int) -> ApiCounts:
        made = self[api_key] = ApiCounts()
        return made


class TopicBytes:
    """The bytes sent for one topic."""

    __slots__ = ("out",)

    def __init__(self) -> None:
        self.out = 0


class GatewayCounts:
    """All counts of one gateway."""

    __slots__ = ("accepted", "apis", "bytes_in", "bytes_out", "closed", "errors", "topics")

    def __init__(self, topics_max: int) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.accepted = 0
        self.closed = {"limit": 0, "silent": 0, "protocol": 0}
        """Connections that the gateway closed, by reason."""
        self.errors = ErrorCounts()
        self.topics = Bounded(TopicBytes, topics_max)
        self.apis = _Apis()
        """By API."""

    def forget_topics(self, existing: Container[str]) -> None:
        """Remove the series of topics that no longer exist."""
        for topic, _ in tuple(self.topics.items()):
            if topic not in existing:
                self.topics.forget(topic)

    def sample(self, samples: Samples) -> None:
        """Sample all counts."""
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
