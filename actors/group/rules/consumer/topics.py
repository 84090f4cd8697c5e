"""The topics that a group subscribes to: their hash, and the matches of patterns."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from struct import Struct

from raylog.actors.group.rules.consumer.state import ResolvedRegex
from raylog.actors.metadata.image import MetadataImage, Topic
from raylog.actors.patterns import STEPS_MAX, BadPattern, Pattern, compiled, steps_of
from raylog.assignors import api
from raylog.wire.errors import InvalidRegularExpression

_NUMBER = Struct(">q")


def metadata_hash(image: MetadataImage, names: Iterable[str]) -> int:
    """Return a 64-bit hash of the existing topics' ids, partitions and racks; 0 without any.

    Only changes of it matter. Kafka computes another value.
    """
    digest = hashlib.blake2b(digest_size=8)
    empty = True
    for name in sorted(names):
        topic = image.topic(name)
        if topic is not None:
            empty = False
            digest.update(topic.topic_id)
            _digest_partitions(digest, topic, image)
    return 0 if empty else int.from_bytes(digest.digest(), "big", signed=True)


def _digest_partitions(digest: hashlib.blake2b, topic: Topic, image: MetadataImage) -> None:
    digest.update(_NUMBER.pack(len(topic.partitions)))
    for racks in _racks(topic, image):
        digest.update(repr(sorted(racks)).encode())


def _racks(topic: Topic, image: MetadataImage) -> tuple[frozenset[str], ...]:
    """Return the racks of each partition's replicas; empty if no broker has a rack."""
    racks = {one: broker.rack for one, broker in image.brokers.items() if broker.rack is not None}
    if not racks:
        return ()
    return tuple(
        frozenset(racks[replica] for replica in partition.replicas if replica in racks)
        for partition in topic.partitions
    )


def assignable(image: MetadataImage, names: Iterable[str]) -> dict[str, api.Topic]:
    """Return the existing topics as input for assignors."""
    found = {}
    for name in sorted(names):
        topic = image.topic(name)
        if topic is not None:
            found[name] = api.Topic(name, len(topic.partitions), _racks(topic, image))
    return found


def check_regex(pattern: str) -> None:
    """Raise InvalidRegularExpression unless RE2 accepts the pattern."""
    _compiled(pattern)


class Matching:
    """Matches a pattern against the full names of all topics that exist at its start."""

    def __init__(self, pattern: str, image: MetadataImage) -> None:
        self.pattern = pattern
        self._compiled = _compiled(pattern)
        self._offset = image.offset
        self._left = list(image.topic_ids)
        self._found: list[str] = []

    def take_turn(self) -> bool:
        """Match as many names as one turn of the event loop allows; return whether it is done."""
        pattern, left = self._compiled, self._left
        room = STEPS_MAX
        while left and room > 0:
            name = left.pop()
            room -= steps_of(pattern, name)
            if pattern.fullmatch(name):
                self._found.append(name)
        return not left

    def resolved(self, now_ms: int) -> ResolvedRegex:
        """Return the result."""
        return ResolvedRegex(frozenset(self._found), self._offset, now_ms)


def _compiled(pattern: str) -> Pattern:
    try:
        return compiled(pattern)
    except BadPattern as wrong:
        raise InvalidRegularExpression(
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: "
            f"{_described(wrong)}."
        ) from wrong


def _described(wrong: BadPattern) -> str:
    """Describe the error in the words of RE2/J, which Kafka uses."""
    reason = str(wrong).partition(":")[0]
    return _REASONS.get(reason, reason)


_REASONS = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "unexpected )": "regexp/syntax: internal error",
    "no argument for repetition operator": "missing argument to repetition operator",
    "trailing \\": "trailing backslash at end of expression",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
}
