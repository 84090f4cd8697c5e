"""Constants of the product that a simulation makes small: a few seconds are all that it has.

They are no settings, since no operator has a reason to change them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from random import Random
from unittest.mock import patch

from raylog.actors.replica import config as replica_config
from raylog.actors.replica import upkeep
from raylog.storage.config import LogConfig

INDEX_CHECKPOINT_BYTES = (200, 1_000, 16 << 20)
"""Growth of a segment after which a checkpoint saves its index: from there recovery can resume."""
CHECKPOINT_TICKS = (1, 3, 10)
"""Seconds between checkpoints of a log that grows."""


@contextmanager
def tuned(random: Random) -> Iterator[None]:
    """Draw the constants of one simulation, and have them in force while entered."""
    log_config = partial(LogConfig, index_checkpoint_bytes=random.choice(INDEX_CHECKPOINT_BYTES))
    with ExitStack() as stack:
        stack.enter_context(patch.object(replica_config, "LogConfig", log_config))
        ticks = random.choice(CHECKPOINT_TICKS)
        stack.enter_context(patch.object(upkeep, "CHECKPOINT_TICKS", ticks))
        yield
