"""The task that sends a producer's batches in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from raylog.client.errors import RequestTimedOut
from raylog.client.io import Io
from raylog.client.producer.core import ProducerCore


class SenderTask:
    """Sends batches that are full or have lingered, in its own task. For one event loop."""

    def __init__(self, producer: ProducerCore, io: Io) -> None:
        self._producer = producer
        self._io = io
        self._task: asyncio.Task[None] | None = None
        self._urgent = 0
        """Number of callers that wait for everything to be sent without lingering."""
        self._is_poked = False

    async def make_room(self) -> None:
        """Wait until new records are accepted; raises BufferExhausted."""
        producer = self._producer
        timeout_ms = producer.settings.max_block_ms
        if not await self._sent_until(lambda: not producer.is_full, timeout_ms):
            raise producer.exhausted(timeout_ms)

    async def flush(self, timeout_s: float | None = None) -> None:
        """Send all records added so far and wait until each is acknowledged or has failed.

        Raises DeliveryFailed if a record without future and callback has failed, RequestTimedOut
        after the timeout; the task then continues to send.
        """
        timeout_ms = float("inf") if timeout_s is None else timeout_s * 1000
        with self._producer.unfinished() as unfinished:
            is_flushed = await self._sent_until(lambda: not unfinished, timeout_ms)
        if not is_flushed:
            held = self._producer.statistics()
            raise RequestTimedOut(
                f"{held.batches_waiting + held.batches_in_flight} batches are unacknowledged after "
                f"{timeout_ms:.0f} ms: {self._producer.refusal or 'they are on their way'}"
            )
        self._producer.raise_failures()

    async def end_transaction(self, *, commit: bool) -> None:
        """Let the sender finish or give up the transaction's records, then end the transaction."""
        self._producer.prepare_end(commit=commit)
        await self._sent_until(lambda: self._producer.is_idle, float("inf"))
        await self._producer.end_transaction(commit=commit)

    async def finish(self, timeout_s: float | None) -> None:
        """Before closing: flush, or abort the open transaction, within `timeout_s`."""
        if self._producer.has_open_transaction:
            try:
                async with asyncio.timeout(timeout_s):
                    await self.end_transaction(commit=False)
            except TimeoutError:
                return  # the coordinator will abort it
        else:
            await self.flush(timeout_s)

    async def stop(self) -> None:
        """Stop the task and close the connections; unflushed records are lost."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._producer.close()

    def poke(self) -> asyncio.Task[None]:
        """Make the task check for work; start it if necessary."""
        self._is_poked = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="raylog producer")
        self._io.wake()
        return self._task

    async def _sent_until(self, enough: Callable[[], bool], timeout_ms: float) -> bool:
        """Send without lingering until `enough()`; False on timeout. Raises the task's error."""
        if enough():
            return True
        self._urgent += 1
        try:
            task = self.poke()
            found = await self._io.wait(lambda: enough() or task.done(), timeout_ms)
            if task.done():
                await task
            return found
        finally:
            self._urgent -= 1

    async def _run(self) -> None:
        """Send batches as they become ready, until cancelled.

        Starting a batch must be followed by `poke`: this may be waiting for a later time.
        """
        producer = self._producer
        try:
            while True:
                if producer.is_idle:
                    await self._io.wait(lambda: self._is_poked, float("inf"))
                self._is_poked = False
                everything = self._urgent > 0
                await producer.step(everything=everything)
                self._io.wake()
                if not producer.is_idle:
                    await producer.wait_for_work(lambda: self._is_poked, everything=everything)
        except Exception as error:
            producer.give_up(error)  # such as a missing permission: nobody must wait for ever
            raise
        finally:
            self._io.wake()
