"""Apache Kafka and Raylog answer alike about transactions whose markers are in progress.

Apache Kafka's answers are recorded (`record_held`): the broker that leads HELD was stopped
(SIGSTOP) during the first acts. Here the coordinator holds the markers back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pytest

from raylog.actors.transaction.markers import MarkerSender
from raylog.testing import EmbeddedBroker
from tests.differential.golden import read
from tests.differential.held_playing import COORDINATOR, RECORDED, make_topics, play, prepare
from tests.differential.held_sessions import HELD, SESSIONS
from tests.differential.normalized import differences
from tests.differential.playing import Transcripts
from tests.differential.transaction_playing import SETTINGS

ANSWERED = read(RECORDED)
pytestmark = pytest.mark.timeout(300)


class HeldMarkers:
    """The markers of HELD, which their sender holds until they are released."""

    def __init__(self) -> None:
        self._add = MarkerSender._add
        self._held: list[Callable[[], object]] | None = []

    def add(self, sender: MarkerSender, pieces: Iterable[Any]) -> None:
        """In the place of MarkerSender._add."""
        due = list(pieces)
        if self._held is not None:
            held = [piece for piece in due if piece.topic == HELD]
            due = [piece for piece in due if piece.topic != HELD]
            again = partial(self._add, sender, held)
            self._held.append(partial(asyncio.get_running_loop().call_soon_threadsafe, again))
        self._add(sender, due)

    def release(self) -> None:
        """Send them, and hold no more."""
        held, self._held = self._held or [], None
        for send in held:
            send()


@pytest.fixture(scope="module")
def played() -> Iterator[Transcripts]:
    """What Raylog answers."""
    with pytest.MonkeyPatch.context() as patched:
        markers = HeldMarkers()
        patched.setattr(MarkerSender, "_add", lambda *asked: markers.add(*asked))
        with EmbeddedBroker(settings=SETTINGS, first_broker_id=COORDINATOR) as broker:
            make_topics(broker.bootstrap, COORDINATOR)
            prepare(broker.bootstrap)
            sessions = [one for one in SESSIONS if one.name in ANSWERED]
            yield play(broker.bootstrap, sessions, markers.release, ANSWERED)


@pytest.mark.parametrize("name", list(ANSWERED))
def test_the_same_answers(played: Transcripts, name: str) -> None:
    unlike = differences(ANSWERED[name], played[name])
    assert not unlike, "\n".join(unlike)


def test_every_session_is_recorded() -> None:
    assert ANSWERED.keys() == {one.name for one in SESSIONS}
    assert len(ANSWERED) == 70
