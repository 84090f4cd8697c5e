"""Joins the cluster, retrying as long as the cluster refuses.

As in Kafka, a broker repeats its registration, because the reason may pass: another process with
this broker's id, or metadata from an older copy. A broker that gave up would keep running without
serving.
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
    """Repeat `join` until it succeeds; `refused` gets each reason, and None at the end."""
    delay_ms = RETRY_MS
    last_reported = ""
    while True:
        try:
            await join()
        except KafkaError as why:
            if last_reported != str(why):
                last_reported = str(why)
                log.error("the cluster refuses this broker: %s", why)
            refused(why)
        else:
            refused(None)
            return
        await runtime.sleep(delay_ms / 1000)
        delay_ms = min(2 * delay_ms, RETRY_MS_MAX)
