"""Records of a Fetch that are read from disk or pass through interceptors."""

from __future__ import annotations

import logging

from raylog.actors.gateway.interception import TopicInterceptors
from raylog.actors.gateway.maps import read_cold
from raylog.actors.runtime.base import Buffer, Runtime
from raylog.wire.errors import ErrorCode, KafkaError
from raylog.wire.messages.fetch import PartitionData

log = logging.getLogger(__name__)


class LateRecords:
    """The records of one partition for which a response waits."""

    __slots__ = ("_interceptors", "_slice", "_view", "data")

    def __init__(
        self,
        data: PartitionData,
        slice_: tuple[str, str, int, int],
        view: memoryview | None,
        interceptors: TopicInterceptors | None,
    ) -> None:
        self.data = data
        self._slice = slice_
        self._view = view
        """None if they are not in memory."""
        self._interceptors = interceptors

    async def records(self, runtime: Runtime) -> Buffer:
        """Return the records for the client. Raises OSError (disk), KafkaError (interceptor)."""
        found: Buffer | None = self._view
        if found is None:
            found = await runtime.run_blocking(read_cold, *self._slice)
        if self._interceptors is None:
            return found
        return await self._interceptors.run(lambda chain: chain.fetched(found))

    def fail(self, failure: Exception) -> None:
        """Report an error instead of the records."""
        self.data.records = b""
        if isinstance(failure, KafkaError):
            self.data.error_code = int(failure.code)
        else:
            log.warning("cold read of %s failed: %s", self._slice, failure)
            self.data.error_code = int(ErrorCode.KAFKA_STORAGE_ERROR)
