"""Records of a Fetch that come from the disk, or go through interceptors: the answer waits."""

from __future__ import annotations

import logging
from functools import partial

from raylog.actors.gateway.interception import TopicInterceptors
from raylog.actors.gateway.maps import read_cold
from raylog.actors.interceptors.chain import Chain
from raylog.actors.runtime.base import Buffer, Runtime
from raylog.wire.errors import ErrorCode, KafkaError
from raylog.wire.messages.fetch import PartitionData

log = logging.getLogger(__name__)


class LateRecords:
    """Records of one partition that the answer waits for."""

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
        """None: not in memory."""
        self._interceptors = interceptors

    async def records(self, runtime: Runtime) -> Buffer:
        """What the client gets. OSError of a failing disk, KafkaError of an interceptor."""
        found: Buffer | None = self._view
        if found is None:
            found = await runtime.run_blocking(read_cold, *self._slice)
        if self._interceptors is None:
            return found
        return await self._interceptors.run(partial(_fetched, found))

    def fail(self, failure: Exception) -> None:
        """Answer an error in the records' place."""
        self.data.records = b""
        if isinstance(failure, KafkaError):
            self.data.error_code = int(failure.code)
        else:
            log.warning("cold read of %s failed: %s", self._slice, failure)
            self.data.error_code = int(ErrorCode.KAFKA_STORAGE_ERROR)


def _fetched(data: Buffer, chain: Chain) -> bytes:
    return chain.fetched(data)
