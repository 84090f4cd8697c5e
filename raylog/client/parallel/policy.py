"""Settings for failed records: order, retries and dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from raylog.client.errors import InvalidSetting
from raylog.client.retries import backoff_ms, jittered

_TOPIC_NAME_MAX = 249


class Order(StrEnum):
    """Which records wait for each other."""

    PARTITION = "partition"
    """A partition's cells run one after another."""
    KEY = "key"
    """Records of one key and partition run in order; records without a key do not wait."""
    NONE = "none"
    """No record waits for another."""


class FailureKind(StrEnum):
    """How a run of the function failed."""

    RAISED = "raised"
    STALLED = "stalled"
    """It ran longer than `stall_timeout_ms`, or a drain gave it up."""
    WORKER_LOST = "worker lost"
    """The process or actor that ran it has ended."""
    UNDELIVERED = "undelivered"
    """No broker accepted the function's results."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run failed, as text that can be sent between processes."""

    kind: FailureKind
    exception: str
    """The exception's class, with its module."""
    text: str
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.exception}: {self.text}" if self.text else self.exception


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a failed record is retried, and when it goes to another topic instead.

    A batch that fails is run again record by record, each with all its attempts.
    """

    attempts: int = 3
    """Runs of a record in its cell, including the first; its order is kept meanwhile."""
    backoff_ms: float = 100.0
    """Pause before the second run; it doubles before each later run."""
    backoff_max_ms: float = 10_000.0
    jitter: float = 0.2
    """A pause varies by up to this fraction of it."""
    stall_timeout_ms: float | None = None
    """A longer run counts as failed and is given up; None: no limit.

    A thread cannot be ended: a run that was given up may continue beside the record's next run.
    """
    topic_delays_ms: Sequence[float] = ()
    """Delay of each retry topic; a record that failed all attempts goes to the first topic.

    Each retry topic runs it once, then passes it to the next; the last passes it to the dead-letter
    topic. Later records of the key do not wait for it, so a record in a retry topic loses its
    order.
    """
    topic_name: str = "{topic}.{group}.retry.{n}"

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise InvalidSetting(f"expected attempts of 1 or more, found {self.attempts}")
        if self.backoff_ms < 0 or self.backoff_max_ms < self.backoff_ms:
            raise InvalidSetting(
                "expected 0 <= backoff_ms <= backoff_max_ms, "
                f"found {self.backoff_ms:g} and {self.backoff_max_ms:g}"
            )
        if not 0 <= self.jitter <= 1:
            raise InvalidSetting(f"expected a jitter of 0 to 1, found {self.jitter:g}")
        if self.stall_timeout_ms is not None and self.stall_timeout_ms <= 0:
            raise InvalidSetting(
                f"expected a stall_timeout_ms above 0, found {self.stall_timeout_ms:g}"
            )
        if any(delay < 0 for delay in self.topic_delays_ms):
            raise InvalidSetting("expected topic_delays_ms of 0 or more")
        if self.topic_delays_ms and "{n}" not in self.topic_name:
            raise InvalidSetting(f"expected {{n}} in topic_name, found {self.topic_name!r}")

    def pause_ms(self, failed: int, chance: Random) -> float:
        """Return how long to wait after this many failed runs (at least one)."""
        pause_ms = backoff_ms(self.backoff_ms, self.backoff_max_ms, failed - 1)
        return jittered(pause_ms, chance.random(), self.jitter)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Where records go that cannot be processed."""

    topic_name: str = "{topic}.{group}.dlq"


@dataclass(frozen=True, slots=True)
class FailureTopics:
    """Names of one group's retry and dead-letter topics."""

    group: str
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    dead_letter: DeadLetter | None = field(default_factory=DeadLetter)

    def retry_topic(self, topic: str, level: int) -> str:
        """Return the retry topic of a level, counted from 1."""
        return _name(self.retry.topic_name, topic, self.group, level)

    def dead_letter_topic(self, topic: str) -> str | None:
        """Return the dead-letter topic, if there is one."""
        if self.dead_letter is None:
            return None
        return _name(self.dead_letter.topic_name, topic, self.group, 0)

    def retry_topics(self, topic: str) -> list[str]:
        """Return all retry topics of a topic, by level."""
        levels = range(1, len(self.retry.topic_delays_ms) + 1)
        return [self.retry_topic(topic, level) for level in levels]

    def all_of(self, topic: str) -> list[str]:
        """Return the retry topics and the dead-letter topic of a topic."""
        dead = self.dead_letter_topic(topic)
        return self.retry_topics(topic) + ([] if dead is None else [dead])


def check_topics(what: str, names: Sequence[object]) -> None:
    """Raise InvalidSetting unless these are valid topic names."""
    for name in names:
        if not isinstance(name, str) or not name or not all(map(_is_legal, name)):
            raise InvalidSetting(
                f"expected {what} to be a topic's name (letters, digits, '.', '_' and '-'), "
                f"found {name!r}"
            )


def _is_legal(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character in "._-")


def _name(pattern: str, topic: str, group: str, level: int) -> str:
    """Return a topic's name; replace characters that topics cannot have with "_"."""
    try:
        made = pattern.format(topic=topic, group=group, n=level)
    except (KeyError, IndexError, ValueError) as error:
        raise InvalidSetting(
            f"expected {{topic}}, {{group}} and {{n}} in a topic's name, found {pattern!r}"
        ) from error
    legal = "".join(c if _is_legal(c) else "_" for c in made)
    if len(legal) > _TOPIC_NAME_MAX:
        raise InvalidSetting(f"{legal[:40]}... has {len(legal)} characters, a topic's name 249")
    return legal
