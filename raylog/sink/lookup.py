"""Looks up what a sink has written, without Spark or Arrow, and without fencing its driver."""

from __future__ import annotations

from collections.abc import Sequence

from raylog.client.admin.groups import GroupAdmin
from raylog.client.io import run_blocking
from raylog.client.settings import ClientSettings
from raylog.client.sockets import connected
from raylog.sink.batches import StateLost
from raylog.sink.continuity import state_of
from raylog.sink.marks import group_marks
from raylog.sink.state import SinkState
from raylog.sink.state_topic import STATE_TOPIC, StateTopic


def name_of(sink_id: str) -> str:
    """Return a sink's transactional id, which is also its group id."""
    return f"raylog-sink-{sink_id}"


def look_up_state(
    client: ClientSettings,
    sink_id: str,
    topics: Sequence[str],
    *,
    state_topic: str = STATE_TOPIC,
) -> SinkState | None:
    """Return a sink's state, even while the sink runs; None if there is none."""
    with connected(client) as core:
        stored = run_blocking(StateTopic(core, state_topic, sink_id).look())
        offsets = run_blocking(GroupAdmin(core).group_offsets(name_of(sink_id)))
    marks = group_marks(offsets)
    try:
        found = state_of(stored, is_registered=True, marks=marks, topics=topics)
    except StateLost:
        return None
    return None if found == SinkState() else found
