"""Checks that Apache Kafka still answers as recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from bench.peers import ApacheKafka
from tests.differential.playing import Transcripts
from tests.differential.session_stage import Transcript

ATTEMPTS = 3


class Named(Protocol):
    """A session."""

    @property
    def name(self) -> str:
        """Of the record."""


S = TypeVar("S", bound=Named)


def differing(
    play: Callable[[str, Sequence[S], Mapping[str, Transcript]], Transcripts],
    settings: dict[str, str],
    sample: Sequence[S],
    recorded: Mapping[str, Transcript],
) -> Transcripts:
    """What an Apache Kafka with these settings answers otherwise, each time that it is asked.

    Sessions have timers: on a busy machine Apache Kafka itself may be a step late in one of them.
    """
    found: Transcripts = {}
    for _ in range(ATTEMPTS):
        with ApacheKafka(settings).run() as kafka:
            played = play(kafka.address, sample, recorded)
        found = {name: one for name, one in played.items() if one != recorded[name]}
        sample = [one for one in sample if one.name in found]
        if not sample:
            break
    return found
