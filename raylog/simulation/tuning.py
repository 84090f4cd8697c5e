"""Constants of the product that a simulation makes small, since it lasts only a few seconds.

They are not settings, because no operator has a reason to change them. Checkpoints are drawn in
every seed. Limits per turn, which the small worlds of a simulation never reach, are drawn in the
last two of every eight seeds. In the other seeds everything is done in one turn, so their histories
do not change when limits are added here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from random import Random
from types import ModuleType
from typing import NamedTuple
from unittest.mock import patch

from raylog.actors.broker import metadata_log as log
from raylog.actors.broker.rules import pending_effects, reconcile_queue, voter
from raylog.actors.controller import actor as controller
from raylog.actors.controller import term
from raylog.actors.controller.rules import brokers, internal_topics, leaders, partitions
from raylog.actors.coordination import appending, reading, requests, timers
from raylog.actors.coordination import hosting as coordination_hosting
from raylog.actors.group import actor as groups
from raylog.actors.group import hosting, loading
from raylog.actors.group.rules import splitting, sweeping
from raylog.actors.group.rules.classic import subscriptions
from raylog.actors.peers import metadata_copies as snapshots
from raylog.actors.replica import (
    cleaner,
    isolation,
    log_manager,
    lookups,
    partition_files,
    verifying,
)
from raylog.actors.replica.rules import config as replica_config
from raylog.actors.replica.rules import sessions, throttle
from raylog.actors.transaction import actor as transactions
from raylog.actors.transaction import client as transaction_client
from raylog.actors.transaction import hosting as transaction_hosting
from raylog.storage import checking, files, reader, rewriting, scan, segment_work
from raylog.storage.config import LogConfig

INDEX_CHECKPOINT_BYTES = (200, 1_000, 16 << 20)
"""Growth of a segment after which a checkpoint saves its index. Recovery can resume there."""
CHECKPOINT_TICKS = (1, 3, 10)
"""Seconds between checkpoints of a growing log."""


class Limit(NamedTuple):
    """A constant and its small values."""

    name: str
    modules: tuple[ModuleType, ...]
    """The modules that define it or have imported it by name."""
    small: tuple[int, ...]


LIMITS = (
    Limit("RECONCILED_AT_ONCE", (reconcile_queue,), (1, 3)),
    Limit("OPEN_AT_ONCE", (pending_effects,), (1, 2)),
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
    Limit("ITEMS_A_TURN", (groups,), (1, 3)),
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
    Limit("RECENT_BYTES", (reader,), (0, 500)),
    Limit("_HINTS_KEPT", (reader,), (1, 2)),
    Limit("_CHUNK", (rewriting,), (1, 100)),
    Limit("_CHECKED_WINDOW", (scan,), (64, 300)),
    Limit("_SKIPPING_WINDOW", (scan,), (64, 300)),
    Limit("_BUFFER_BYTES", (segment_work,), (1, 300)),
    Limit("_RECORDS_BETWEEN_PAUSES", (segment_work,), (1, 5)),
    Limit("LOOKED_AT_ONCE", (partitions,), (1, 2)),
    Limit("ANSWERED_AT_ONCE", (coordination_hosting,), (1, 2)),
    Limit("NOTIFIED_AT_ONCE", (isolation,), (1, 2)),
)
"""Limits of remembered state (`REFUSED_MAX`, `TERMS_MAX`, `BATCHES_KEPT`) are not included, because
guarantees end there. Neither are those of gateways' handlers, which simulations do not use."""
_EIGHTH = 8
_SMALL_FROM = 6


def has_small_limits(seed: int) -> bool:
    """Whether the limits of a seed are drawn."""
    return seed % _EIGHTH >= _SMALL_FROM


def draw_limits(random: Random) -> dict[Limit, int]:
    """Draw three in four of the limits and their values."""
    return {one: random.choice(one.small) for one in LIMITS if random.random() < 3 / 4}


@contextmanager
def tuned(random: Random, *, small_limits: bool) -> Iterator[None]:
    """Draw the constants of one simulation, and apply them within the context."""
    log_config = partial(LogConfig, index_checkpoint_bytes=random.choice(INDEX_CHECKPOINT_BYTES))
    with ExitStack() as stack:
        stack.enter_context(patch.object(replica_config, "LogConfig", log_config))
        ticks = random.choice(CHECKPOINT_TICKS)
        stack.enter_context(patch.object(log_manager, "CHECKPOINT_TICKS", ticks))
        for limit, value in draw_limits(random).items() if small_limits else ():
            for module in limit.modules:
                stack.enter_context(patch.object(module, limit.name, value))
        yield
