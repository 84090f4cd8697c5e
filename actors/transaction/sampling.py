"""Samples a transaction coordinator's ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from raylog.actors.coordination.rules.step import Counted
from raylog.actors.metrics.families import coordinators as families
from raylog.actors.metrics.samples import Samples
from raylog.actors.runtime.base import Runtime
from raylog.actors.transaction.hosting import TransactionHost
from raylog.actors.transaction.rules.state import PREPARED, State

TURN = 1_000
"""Transactional ids handled in one turn of the event loop."""


async def sample_transactions(
    runtime: Runtime, shards: Iterable[TransactionHost], samples: Samples
) -> None:
    """Sample how many ids are in each state, and the age of the oldest transaction."""
    states: Counter[State] = Counter()
    now_ms = runtime.now_ms()
    oldest_ms = now_ms
    looked_at = 0
    for host in shards:
        if not host.is_active:
            continue
        for one in list(host.shard.ids.transactions.values()):
            looked_at += 1
            if looked_at % TURN == 0:
                await runtime.sleep(0)
            states[one.state] += 1
            if one.state is State.ONGOING or one.state in PREPARED:
                oldest_ms = min(oldest_ms, one.start_ms)
    for state in State:
        if states[state] or state is State.ONGOING:
            samples.add(families.TRANSACTIONS, states[state], state.label)
    samples.add(families.OLDEST, (now_ms - oldest_ms) / 1000)


def sample_ends(counted: Counter[Counted], samples: Samples) -> None:
    """Sample how transactions have ended."""
    samples.add(families.ENDED, counted[Counted.COMMITTED], "committed")
    samples.add(families.ENDED, counted[Counted.ABORTED], "aborted")
    samples.add(families.TIMED_OUT, counted[Counted.TIMED_OUT])
