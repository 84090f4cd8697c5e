"""Plays sessions whose markers are held to one broker: all first acts, then all second ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

from raylog.actors.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tests.differential import playing, transaction_playing
from tests.differential.held_sessions import HELD, Acts, HeldSession
from tests.differential.playing import TOPICS, Transcripts
from tests.differential.replica_stage import creation
from tests.differential.session_stage import Stage, Transcript
from tests.differential.transaction_playing import SETTINGS
from tests.support.wire_client import WireClient

RECORDED = Path(__file__).with_name("apache-kafka-4.3.1-held.json")
COORDINATOR = 1
"""The broker that leads all partitions but that of HELD."""


def make_topics(address: str, holder: int) -> None:
    """Make HELD at the broker that is to hold markers, and all else at COORDINATOR."""
    internal = int(SETTINGS["transaction.state.log.num.partitions"])
    compacted = {TRANSACTIONS_TOPIC: internal, OFFSETS_TOPIC: internal}
    host, _, port = address.rpartition(":")
    with WireClient(host, int(port)) as client:
        for counts, configs, broker in (
            (compacted, {"cleanup.policy": "compact"}, COORDINATOR),
            (TOPICS, {}, COORDINATOR),
            ({HELD: 1}, {}, holder),
        ):
            placed = {name: [[broker]] * count for name, count in counts.items()}
            answer = client.ask(creation(placed, configs), 7)
            assert not any(topic.error_code for topic in answer.topics), answer


def prepare(address: str) -> None:
    """Wait until all coordinators serve."""
    transaction_playing.prepare(address)
    playing.prepare(address)


def play(
    address: str,
    sessions: Iterable[HeldSession],
    release: Callable[[], None],
    expected: Mapping[str, Transcript] | None = None,
) -> Transcripts:
    """Play sessions, one after the other, to a broker that holds markers until `release`."""
    known = expected or {}
    transcripts: Transcripts = {}
    going_on: list[Acts] = []
    with ExitStack() as stages:
        for one in sessions:
            stage = Stage(address, one.name, known.get(one.name))
            stages.callback(stage.close)
            transcripts[one.name] = stage.transcript
            acts = one.play(stage)
            next(acts)
            going_on.append(acts)
        release()
        for acts in going_on:
            assert next(acts, "over") == "over"
    return transcripts
