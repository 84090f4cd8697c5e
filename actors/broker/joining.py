"""Joining the cluster, however often that is refused.

As in Kafka, whose brokers repeat a registration: what stands in the way may pass, such as another
process that carries this broker's id, or metadata from an older copy. A broker that gave up would
live and serve nobody.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from raylog.actors.runtime.base import Runtime
from raylog.wire.errors import KafkaError

log = logging.getLogger(__name__)
RETRY_MS = 500
"""After the first refusal; it doubles with each, up to RETRY_MS_MAX."""
RETRY_MS_MAX = 10_000


async def keep_joining(
    runtime: Runtime,
    join: Callable[[], Awaitable[None]],
    refused: Callable[[KafkaError | None], None],
) -> None:
    """Run `join` until it is not refused; `refused` is told each reason, and None in the end."""
    delay_ms = RETRY_MS
    told = ""
    while True:
        try:
            await join()
        except KafkaError as why:
            if told != str(why):
                told = str(why)
                log.error("the cluster does not take this broker: %s", why)
            refused(why)
        else:
            refused(None)
            return
        await runtime.sleep(delay_ms / 1000)
        delay_ms = min(2 * delay_ms, RETRY_MS_MAX)
