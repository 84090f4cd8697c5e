"""Constants of the product that a simulation makes small: a few seconds are all that it has.

They are no settings, since no operator has a reason to change them. Checkpoints are drawn in every
seed. Limits of what is done at once, which the small worlds of a simulation never reach, are drawn
in the last two of each eight seeds: in the others everything is done in one turn, and they stay
what they were when more limits are added here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from random import Random
from types import ModuleType
from typing import NamedTuple
from unittest.mock import patch

from raylog.actors.broker import batch, behind, voter
from raylog.actors.controller import actor as controller
from raylog.actors.controller import brokers, internal_topics, leaders, partitions, term
from raylog.actors.coordination import appending, reading, requests, timers
from raylog.actors.coordination import hosting as coordination_hosting
from raylog.actors.group import actor as groups
from raylog.actors.group import hosting, loading, splitting, sweeping
from raylog.actors.group.classic import subscriptions
from raylog.actors.metadata import log, snapshots
from raylog.actors.replica import (
    cleaner,
    isolation,
    lookups,
    partition_files,
    sessions,
    throttle,
    upkeep,
    verifying,
)
from raylog.actors.replica import config as replica_config
from raylog.actors.transaction import actor as transactions
from raylog.actors.transaction import client as transaction_client
from raylog.actors.transaction import hosting as transaction_hosting
from raylog.storage import checking, files, readable, reader, rewriting, scan, segment_work
from raylog.storage.config import LogConfig

INDEX_CHECKPOINT_BYTES = (200, 1_000, 16 << 20)
"""Growth of a segment after which a checkpoint saves its index: from there recovery can resume."""
CHECKPOINT_TICKS = (1, 3, 10)
"""Seconds between checkpoints of a log that grows."""


class Limit(NamedTuple):
    """A constant, and how small it may be."""

    name: str
    modules: tuple[ModuleType, ...]
    """Where it is defined, and where it was imported by its name."""
    small: tuple[int, ...]


LIMITS = (
    Limit("RECONCILED_AT_ONCE", (behind,), (1, 3)),
    Limit("OPEN_AT_ONCE", (batch,), (1, 2)),
    Limit("FETCH_BYTES", (voter,), (1, 500)),
    Limit("GROWN_AT_ONCE", (internal_topics,), (1, 2)),
    Limit("MOVES_AT_ONCE", (leaders,), (1, 2)),
    Limit("LEFT_AT_ONCE", (brokers,), (1, 2)),
    Limit("RECENT_RECORDS_MAX", (term, controller), (2, 20)),
    Limit("FOLLOW_RECORDS_MAX", (term,), (1, 5)),
    Limit("SLICE_RECORDS", (snapshots,), (1, 5)),
    Limit("_READ_BYTES", (log,), (64, 1_000)),
    Limit("APPEND_RECORDS_MAX", (appending,), (1, 2)),
    Limit("CHUNK_BYTES", (reading,), (1, 500)),
    Limit("LIGHT_ELEMENTS_MAX", (requests,), (0, 3)),
    Limit("FIRED_AT_ONCE", (timers,), (1, 2)),
    Limit("TOLD", (groups,), (1, 3)),
    Limit("SWEPT_AT_ONCE", (hosting,), (1, 3)),
    Limit("LIGHT_BYTES_MAX", (hosting, subscriptions), (0, 50)),
    Limit("PART", (sweeping,), (1, 2)),
    Limit("PART", (splitting,), (1, 2)),
    Limit("COMMITS_AT_ONCE", (loading,), (1, 3)),
    Limit("DESCRIBED_AT_ONCE", (transactions,), (1, 2)),
    Limit("LISTED_AT_ONCE", (transactions,), (1, 2)),
    Limit("SWEEP_IDS", (transaction_hosting,), (1, 2)),
    Limit("KNOWN_MAX", (transaction_client,), (1, 2)),
    Limit("LOOKS_MAX", (sessions,), (1, 2)),
    Limit("CLOSED_AT_ONCE", (cleaner,), (1, 2)),
    Limit("WRITES_AT_ONCE", (partition_files,), (1, 2)),
    Limit("LOOKUPS_AT_ONCE", (lookups,), (1,)),
    Limit("RELEASED_AT_ONCE", (throttle,), (1, 2)),
    Limit("HELD_MAX", (verifying,), (1, 2)),
    Limit("AHEAD_BYTES", (checking,), (1, 500)),
    Limit("_INDEXES_KEPT", (files,), (1,)),
    Limit("RECENT_BYTES", (readable,), (0, 500)),
    Limit("_HINTS_KEPT", (reader,), (1, 2)),
    Limit("_CHUNK", (rewriting,), (1, 100)),
    Limit("_CHECKED_WINDOW", (scan,), (64, 300)),
    Limit("_SKIPPING_WINDOW", (scan,), (64, 300)),
    Limit("_BUFFER_BYTES", (segment_work,), (1, 300)),
    Limit("_RECORDS_BETWEEN_PAUSES", (segment_work,), (1, 5)),
    Limit("LOOKED_AT_ONCE", (partitions,), (1, 2)),
    Limit("ANSWERED_AT_ONCE", (coordination_hosting,), (1, 2)),
    Limit("TOLD_AT_ONCE", (isolation,), (1, 2)),
)
"""Not among them: limits of what is remembered (`REFUSED_MAX`, `TERMS_MAX`, `BATCHES_KEPT`), since
guarantees end there, and those of gateways' handlers, which simulations do without."""
_EIGHTH = 8
_SMALL_FROM = 6


def has_small_limits(seed: int) -> bool:
    """Whether a seed's limits are drawn."""
    return seed % _EIGHTH >= _SMALL_FROM


def draw_limits(random: Random) -> dict[Limit, int]:
    """The limits that are small, and how small: three in four of them."""
    return {one: random.choice(one.small) for one in LIMITS if random.random() < 3 / 4}


@contextmanager
def tuned(random: Random, *, small_limits: bool) -> Iterator[None]:
    """Draw the constants of one simulation, and have them in force while entered."""
    log_config = partial(LogConfig, index_checkpoint_bytes=random.choice(INDEX_CHECKPOINT_BYTES))
    with ExitStack() as stack:
        stack.enter_context(patch.object(replica_config, "LogConfig", log_config))
        ticks = random.choice(CHECKPOINT_TICKS)
        stack.enter_context(patch.object(upkeep, "CHECKPOINT_TICKS", ticks))
        for limit, value in draw_limits(random).items() if small_limits else ():
            for module in limit.modules:
                stack.enter_context(patch.object(module, limit.name, value))
        yield
