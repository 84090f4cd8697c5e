"""Retry and dead-letter topics are created before they are needed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from raylog.client import NewTopic
from raylog.client.admin.aio import AsyncAdmin
from raylog.client.errors import ConnectionLost, NotConnected, RequestTimedOut
from raylog.client.io import run_blocking
from raylog.client.parallel.policy import FailureTopics, RetryPolicy
from raylog.client.parallel.topics import ensure_topics
from raylog.wire.errors import PolicyViolation, TopicAlreadyExists
from tests.worlds.client.cluster import FakeCluster, FakeIo, core_of

NAMES = FailureTopics("g", RetryPolicy(topic_delays_ms=[10]))
RETRY, DEAD = "t.g.retry.1", "t.g.dlq"


class _Admin(AsyncAdmin):
    """Records the requested topics; refuses the retry topic."""

    def __init__(self, refusal: Exception | None = None, topics: Sequence[str] = ()) -> None:
        cluster = FakeCluster(1, {name: {0: 1, 1: 1} for name in ("t", *topics)})
        super().__init__(None, core_of(cluster).settings)
        self._io = FakeIo(cluster)  # type: ignore[assignment]  # instead of connections
        self.created: list[tuple[str, int]] = []
        self._refusal = refusal
        self._core = core_of(cluster)

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> None:
        (topic,) = topics
        self.created.append((topic.name, topic.partitions))
        if self._refusal is not None and topic.name == RETRY:
            raise self._refusal


def test_missing_retry_topic_gets_the_source_partition_count() -> None:
    admin = _Admin(topics=[DEAD])
    run_blocking(ensure_topics(admin, NAMES, ["t"]))
    assert admin.created == [(RETRY, 2)]


@pytest.mark.parametrize(
    "refusal",
    [
        TopicAlreadyExists("another one was faster"),
        PolicyViolation("not such names"),
        ConnectionLost("the controller died"),
        NotConnected("no broker can be reached"),
        RequestTimedOut("no answer"),
    ],
)
def test_a_topic_that_cannot_be_created_now_keeps_nobody_from_the_work(refusal: Exception) -> None:
    admin = _Admin(refusal)
    run_blocking(ensure_topics(admin, NAMES, ["t"]))
    assert admin.created == [(RETRY, 2), (DEAD, 2)]
