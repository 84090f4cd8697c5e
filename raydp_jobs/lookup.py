"""What a sink has written, for those who only look: no Spark, no Arrow, nobody is fenced."""

from __future__ import annotations

from collections.abc import Sequence

from raylog.client.admin.groups import GroupAdmin
from raylog.client.core import Core
from raylog.client.io import run_blocking
from raylog.client.settings import ClientSettings
from raylog.client.sockets import BlockingIo
from raylog.raydp_jobs.batches import StateLost
from raylog.raydp_jobs.continuity import state_of
from raylog.raydp_jobs.marks import group_marks
from raylog.raydp_jobs.sink_state import SinkState
from raylog.raydp_jobs.state_topic import STATE_TOPIC, StateTopic


def name_of(sink_id: str) -> str:
    """The transactional id and the group of a sink."""
    return f"raylog-sink-{sink_id}"


def look_up_state(
    client: ClientSettings,
    sink_id: str,
    topics: Sequence[str],
    *,
    state_topic: str = STATE_TOPIC,
) -> SinkState | None:
    """What a sink has written to its topics, while it runs or not; nobody is fenced.

    None: nothing is known.
    """
    io = BlockingIo()
    core = Core(io, client)
    try:
        stored = run_blocking(StateTopic(core, state_topic, sink_id).look())
        offsets = run_blocking(GroupAdmin(core).group_offsets(name_of(sink_id)))
        marks = group_marks(offsets)
        try:
            found = state_of(stored, is_registered=True, marks=marks, topics=topics)
        except StateLost:
            return None
        return None if found == SinkState() else found
    finally:
        core.close()
        io.close()
