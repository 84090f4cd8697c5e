"""Leaders and connections for a task that sends to many brokers.

Background tasks refresh metadata and connect, so that a broker that does not answer delays only its
own partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable

from raylog.client.cluster import TopicPartition
from raylog.client.core import Core
from raylog.client.errors import ClientError
from raylog.client.retries import Backoff, is_retriable
from raylog.wire.errors import KafkaError


class Routes:
    """Leaders and connections of one producer or consumer. Not safe for concurrent tasks."""

    def __init__(
        self,
        core: Core,
        metadata: Core | None = None,
        refreshed: Callable[[Collection[str]], None] | None = None,
    ) -> None:
        """Use `core` for connections, and `metadata` (default: `core`) for metadata requests.

        `refreshed` is called with the topics whose metadata was refreshed.
        """
        self.has_news = False
        """Whether a background task has ended since this was set to False."""
        self._core = core
        self._metadata = metadata or core
        self._refreshed = refreshed
        self._stale: set[str] = set()
        """Topics whose leaders may have moved."""
        self._refresh_at_ms = 0.0
        self._refusal: Exception | None = None
        """A metadata error that is not retriable, to be raised by the next `refresh`."""
        self._backoffs: dict[TopicPartition, Backoff] = {}
        """Backoffs of partitions that could not be sent to."""
        self._unreached: dict[int, tuple[Exception, float]] = {}
        """Brokers that could not be connected to: the failure and its time."""
        self._under_way: dict[int | None, Callable[[], object]] = {}
        """Cancels each background task; by broker id, or None for metadata."""

    @property
    def is_waiting(self) -> bool:
        """Whether a background task is running; it sets `has_news` when it ends."""
        return bool(self._under_way)

    @property
    def is_refreshing(self) -> bool:
        """Whether a metadata request is in progress."""
        return None in self._under_way

    def mark_stale(self, topic: str) -> None:
        """Record that the topic's leaders may have moved."""
        self._stale.add(topic)

    def retry_at_ms(self, key: TopicPartition) -> float:
        """Return when to retry an unreachable partition; the pause grows with each failure."""
        backoff = self._backoffs.get(key)
        if backoff is None:
            backoff = self._backoffs[key] = self._core.backoff()
        return self._core.io.now_ms() + backoff.next_ms()

    def reached(self, keys: Iterable[TopicPartition]) -> None:
        """Reset the backoff of partitions to which a request is being sent."""
        if self._backoffs:
            for key in keys:
                self._backoffs.pop(key, None)

    def forget(self, topics: Collection[str]) -> None:
        """Forget topics to which nothing was sent for a long time."""
        self._stale.difference_update(topics)
        for key in [key for key in self._backoffs if key.topic in topics]:
            del self._backoffs[key]

    async def refresh(self, topics: Collection[str]) -> None:
        """Start refreshing topics whose metadata is stale or old.

        Raises an error of an earlier refresh that is not retriable.
        """
        if self._refusal is not None:
            refusal, self._refusal = self._refusal, None
            raise refusal
        self._stale.update(topic for topic in topics if self._metadata.is_aged(topic))
        if not self._stale or self.is_refreshing:
            return
        if self._core.io.now_ms() >= self._refresh_at_ms:
            stale = set(self._stale)
            await self._spawn(None, lambda: self._refresh(stale))

    async def reach(self, node_id: int) -> bool:
        """Return whether a broker is connected; if not, start connecting.

        Raises the failure of the last connection attempt, once.
        """
        if self._core.is_connected(node_id):
            return True
        if node_id not in self._under_way and not self._has_just_failed(node_id):
            await self._spawn(node_id, lambda: self._connect(node_id))
        failure, _ = self._unreached.pop(node_id, (None, 0.0))
        if failure is not None:
            raise failure
        return self._core.is_connected(node_id)

    def _has_just_failed(self, node_id: int) -> bool:
        """Whether there is a failure to raise; a failure that has become too old is dropped."""
        _, at_ms = self._unreached.get(node_id, (None, float("-inf")))
        if self._core.io.now_ms() - at_ms <= self._core.settings.retry_backoff_max_ms:
            return True
        self._unreached.pop(node_id, None)
        return False

    def close(self) -> None:
        """Cancel the background tasks."""
        for end in list(self._under_way.values()):
            end()

    async def _spawn(
        self, what: int | None, attempt: Callable[[], Coroutine[object, object, None]]
    ) -> None:
        """Run an attempt in the background; one that is cancelled before it starts never runs."""

        async def run() -> None:
            try:
                await attempt()
            finally:
                if self._under_way.pop(what, None) is not _nothing:
                    self.has_news = True
                    self._core.io.wake()

        self._under_way[what] = _nothing
        end = await self._core.io.spawn(run())
        if what in self._under_way:
            self._under_way[what] = end

    async def _refresh(self, topics: set[str]) -> None:
        try:
            await self._metadata.refresh(topics)
        except (ClientError, KafkaError) as error:
            if not is_retriable(error):
                self._refusal = error
            self._refresh_at_ms = self._core.io.now_ms() + self._core.settings.retry_backoff_ms
        else:
            self._stale -= topics
            if self._refreshed is not None:
                self._refreshed(topics)

    async def _connect(self, node_id: int) -> None:
        try:
            await self._core.api_versions(node_id)
        except (ClientError, KafkaError) as error:
            self._unreached[node_id] = error, self._core.io.now_ms()


def _nothing() -> None:
    """Stand in for the cancel function of an attempt that ends before `spawn` returns."""
