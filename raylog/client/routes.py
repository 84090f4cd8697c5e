"""Leaders, and connections to them, for a task that sends to many brokers.

Metadata and connections are obtained beside that task, so that a broker that does not answer holds
up its own partitions only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable

from raylog.client.backoff import Backoff
from raylog.client.cluster import TopicPartition
from raylog.client.core import Core, is_retriable
from raylog.client.errors import ClientError
from raylog.wire.errors import KafkaError


class Routes:
    """Leaders and connections of one producer or consumer. For one task at a time."""

    def __init__(
        self,
        core: Core,
        metadata: Core | None = None,
        refreshed: Callable[[Collection[str]], None] | None = None,
    ) -> None:
        """`core` connects, and asks for metadata unless `metadata` does.

        `refreshed` is called with the topics that were looked up.
        """
        self.has_news = False
        """Whether something that was waited for has ended since this was set to False."""
        self._core = core
        self._metadata = metadata or core
        self._refreshed = refreshed
        self._stale: set[str] = set()
        """Topics whose leaders may have moved."""
        self._refresh_at_ms = 0.0
        self._refusal: Exception | None = None
        """Why metadata will never be answered."""
        self._backoffs: dict[TopicPartition, Backoff] = {}
        """Of partitions that could not be sent to."""
        self._unreached: dict[int, tuple[Exception, float]] = {}
        """Brokers to which the last connection could not be made: why, and when that was."""
        self._under_way: dict[int | None, Callable[[], object]] = {}
        """What ends each attempt: to connect to a broker, or (None) to get metadata."""

    @property
    def is_waiting(self) -> bool:
        """Whether something is under way, whose end sets `has_news`."""
        return bool(self._under_way)

    @property
    def is_refreshing(self) -> bool:
        """Whether metadata is being asked for."""
        return None in self._under_way

    def mark_stale(self, topic: str) -> None:
        """Its leaders may have moved."""
        self._stale.add(topic)

    def retry_at_ms(self, key: TopicPartition) -> float:
        """When to try a partition again that cannot be sent to; later after each failure."""
        backoff = self._backoffs.get(key)
        if backoff is None:
            backoff = self._backoffs[key] = self._core.backoff()
        return self._core.io.now_ms() + backoff.next_ms()

    def reached(self, keys: Iterable[TopicPartition]) -> None:
        """Something leaves for these partitions."""
        if self._backoffs:
            for key in keys:
                self._backoffs.pop(key, None)

    def forget(self, topics: Collection[str]) -> None:
        """Nothing was sent to these topics for long."""
        self._stale.difference_update(topics)
        for key in [key for key in self._backoffs if key.topic in topics]:
            del self._backoffs[key]

    async def refresh(self, topics: Collection[str]) -> None:
        """Look up topics that are stale, or of which nothing was heard for long.

        Raises what no repeat cures: then there will never be metadata.
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
        """Whether a broker is connected; if not, a connection is being made from now on.

        Raises why the last one could not be made, once.
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
        """Whether there is a failure to raise; one that nobody asked for in time is forgotten."""
        _, at_ms = self._unreached.get(node_id, (None, float("-inf")))
        if self._core.io.now_ms() - at_ms <= self._core.settings.retry_backoff_max_ms:
            return True
        self._unreached.pop(node_id, None)
        return False

    def close(self) -> None:
        """Give up what is under way."""
        for end in list(self._under_way.values()):
            end()

    async def _spawn(
        self, what: int | None, attempt: Callable[[], Coroutine[object, object, None]]
    ) -> None:
        """Run an attempt beside the caller; what is ended before it began is never made."""

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
    """Ends an attempt whose end the caller waits for itself."""
