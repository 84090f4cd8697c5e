"""Whatever an application does while the fetching task waits, records follow its position."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from raylog.client.cluster import TopicPartition
from raylog.client.consumer.fetcher import Fetcher
from raylog.client.consumer.settings import ConsumerSettings
from raylog.client.core import Core
from raylog.client.io import run_blocking
from raylog.client.offsets import EARLIEST, LATEST
from raylog.client.settings import ClientSettings
from raylog.wire.api import ApiKey
from raylog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.worlds.client.cluster import FakeCluster, FakeIo, topic_id
from tests.worlds.client.fetcher_partitions import Logs

KEYS = [TopicPartition("t", number) for number in range(3)]
END = 200
ROUNDS_MAX = 300
IDLE_MS = 150.0
"""After so long without a request, a task that uses a connection first suspends."""


class Act(NamedTuple):
    """What the application does, or what happens to a partition."""

    what: str
    key: TopicPartition
    offset: int


ACTS = st.builds(
    Act,
    st.sampled_from(["seek", "seek", "take", "take", "pause", "resume", "assign anew", "lead"]),
    st.sampled_from(KEYS),
    st.sampled_from([EARLIEST, LATEST, 0, 7, 130, END]),
)


class SwitchingIo(FakeIo):
    """Lets the application act wherever the fetching task suspends."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(cluster)
        self.switch: Callable[[], None] = lambda: None

    async def wait(self, ready: Callable[[], bool], timeout_ms: float) -> bool:
        """Let the application act, then wait."""
        self.switch()
        return await super().wait(ready, timeout_ms)

    async def spawn(self, work: Coroutine[object, object, None]) -> Callable[[], object]:
        """Let the application act, then run the work to its end."""
        self.switch()
        return await super().spawn(work)


class Sessions:
    """Fetch sessions (KIP-227) in front of brokers that take full requests only."""

    def __init__(self, logs: Logs) -> None:
        self._fetch = logs.fetch
        self._sessions: dict[int, dict[int, FetchPartition]] = {}
        logs.cluster.handlers[ApiKey.FETCH] = self.fetch

    def fetch(self, broker: int, request: object) -> object:
        """Answer about every partition of the session."""
        assert isinstance(request, FetchRequest)
        if request.session_epoch == 0:
            self._sessions[broker] = {}
        session = self._sessions[broker]
        for gone in request.forgotten_topics_data:
            for number in gone.partitions:
                del session[number]
        session.update((one.partition, one) for topic in request.topics for one in topic.partitions)
        assert session, "nothing would be waited for"
        listed = list(session.values())
        whole = FetchTopic(topic="t", topic_id=topic_id("t"), partitions=listed)
        response = self._fetch(broker, FetchRequest(topics=[whole]))
        assert isinstance(response, FetchResponse)
        response.session_id = 7
        return response


class Application:
    """Acts on a consumer, and checks that records follow its position."""

    def __init__(self, consumer: Fetcher, cluster: FakeCluster, acts: list[Act]) -> None:
        self._consumer = consumer
        self._cluster = cluster
        self._acts = deque(acts)
        self.next = dict.fromkeys(KEYS, 0)
        """The next offset to read."""

    def act(self) -> None:
        """Do the next thing, if any is left."""
        if self._acts:
            self._do(self._acts.popleft())

    def _do(self, act: Act) -> None:
        match act.what:
            case "seek":
                self._seek(act.key, act.offset)
            case "take":
                self.take()
            case "pause":
                self._consumer.pause([act.key])
            case "resume":
                self._consumer.resume([act.key])
            case "assign anew":
                self._consumer.remove([act.key])
                self._seek(act.key, act.offset)
            case "lead":
                leaders = self._cluster.topics["t"]
                leaders[act.key.partition] = 3 - leaders[act.key.partition]
                self._cluster.epochs["t"] += 1

    def _seek(self, key: TopicPartition, offset: int) -> None:
        self._consumer.seek(key, offset)
        self.next[key] = {EARLIEST: 0, LATEST: END}.get(offset, offset)

    def take(self) -> None:
        """Take some records."""
        for group in self._consumer.take(40, exactly=True):
            key = TopicPartition(group.topic, group.partition)
            assert key not in self._consumer.paused()
            first = self.next[key]
            self.next[key] = first + len(group.records)
            assert [one.offset for one in group.records] == list(range(first, self.next[key]))


@given(
    acts=st.lists(ACTS, min_size=20, max_size=40),
    pauses_ms=st.lists(st.sampled_from([1.0, IDLE_MS]), min_size=10, max_size=20),
)
def test_records_follow_the_position(acts: list[Act], pauses_ms: list[float]) -> None:
    cluster = FakeCluster(2, {"t": {0: 1, 1: 2, 2: 1}}, epochs={"t": 0})
    Sessions(Logs(cluster, end=dict.fromkeys(range(3), END), epochs=[(0, 0)]))
    io = SwitchingIo(cluster)
    consumer = Fetcher(Core(io, ClientSettings((("fake", 9001),))), ConsumerSettings())
    application = Application(consumer, cluster, acts)
    consumer.assign(application.next)
    io.switch = application.act
    for pause_ms in pauses_ms:
        run_blocking(consumer.step())
        run_blocking(io.pause(pause_ms))
    io.switch = lambda: None
    consumer.resume(KEYS)
    for _ in range(ROUNDS_MAX):
        run_blocking(consumer.step())
        run_blocking(io.pause(IDLE_MS))
        application.take()
    assert set(application.next.values()) == {END}
